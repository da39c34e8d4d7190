// A disk whose calls fail where a test says so, as long as this lives.
//
// Thread rule: Confined. For tests.
#pragma once

#include <functional>
#include <utility>

#include "base/disk.h"

namespace lockstep::disk {

class FailingDisk final : public Hook {
 public:
  // Gives the errno of a call that is to fail, else 0.
  explicit FailingDisk(std::function<int(const Call&)> fails) : fails_(std::move(fails)) { set_hook(this); }
  ~FailingDisk() override { set_hook(nullptr); }
  FailingDisk(const FailingDisk&) = delete;
  FailingDisk& operator=(const FailingDisk&) = delete;

  int before(const Call& call, size_t& /*bytes_max*/) override { return fails_(call); }
  void after(const Call& /*call*/, int64_t /*outcome*/) override {}

 private:
  const std::function<int(const Call&)> fails_;
};

}  // namespace lockstep::disk
