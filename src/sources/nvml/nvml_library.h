// NVIDIA's management library, loaded by name at run time and called through pointers.
//
// Thread rule: Confined.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "sources/nvml/nvml_abi.h"

namespace lockstep::nvml {

class Library {
 public:
  // path: empty for libnvidia-ml.so.1. An error where there is no such file, or where it lacks what everything needs;
  // other functions may be missing. Does not call init.
  static Result<Library> open(const std::string& path);

  Library(Library&& other) noexcept : file_(std::exchange(other.file_, nullptr)), api_(other.api_) {}
  Library& operator=(Library&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(api_, other.api_);
    return *this;
  }
  ~Library();

  const Api& api() const { return api_; }

 private:
  explicit Library(void* file) : file_(file) {}
  void* file_ = nullptr;
  Api api_;
};

}  // namespace lockstep::nvml
