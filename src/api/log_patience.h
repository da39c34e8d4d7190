// How long an answer looks through log records, and whether somebody still waits for it.
//
// Thread rule: Thread-safe. Borrows the context and the request.
#pragma once

#include <cstdint>

#include "api/context.h"
#include "base/clock.h"
#include "base/memory_budget.h"
#include "net/http_server.h"

namespace lockstep {

class LogPatience {
 public:
  static constexpr int64_t kSeconds = 20;

  LogPatience(const ApiContext& context, const ServerRequest& request)
      : context_(context), request_(request), until_ns_(context.clock.monotonic_ns() + kSeconds * 1'000'000'000) {}

  bool is_gone() const { return request_.is_gone && request_.is_gone(); }
  bool has_no_memory() const { return context_.memory != nullptr && context_.memory->spent(); }
  bool nobody_waits() const { return is_gone() || has_no_memory(); }
  bool is_over() const { return nobody_waits() || context_.clock.monotonic_ns() > until_ns_; }

 private:
  const ApiContext& context_;
  const ServerRequest& request_;
  const int64_t until_ns_;
};

}  // namespace lockstep
