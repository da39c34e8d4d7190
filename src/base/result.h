// Result<T>: a value, or one clear line that says why there is none. No exceptions cross a folder's boundary.
//
// Thread rule: Immutable once made.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace lockstep {

// One line: who, what, value, limit, effect. Written for the person who has to act on it.
struct Error {
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Only after ok(); asking for the value of a failure is our own mistake and ends the process.
  T& value() & {
    require_ok();
    return std::get<0>(state_);
  }
  const T& value() const& {
    require_ok();
    return std::get<0>(state_);
  }
  T&& value() && {
    require_ok();
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const std::string& error() const { return std::get<1>(state_).message; }

 private:
  void require_ok() const {
    if (!ok()) std::abort();
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : failed_(true), error_(std::move(error)) {}

  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  const std::string& error() const { return error_.message; }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace lockstep
