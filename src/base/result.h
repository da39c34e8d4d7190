// Result<T>: a value, or one clear line that says why there is none. No exceptions cross a folder's boundary.
//
// Thread rule: Immutable once made.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lockstep {

// What a caller may have to tell apart, beside the line that is for a person. A code is here once a caller acts on it.
enum class ErrorCode {
  kUnspecified,    // nobody tells it from others: report the line
  kTooLarge,       // well-formed perhaps, but more than a limit of ours allows (HTTP 413)
  kNotFound,       // what was asked for is not there, which is no fault
  kOtherProtocol,  // a peer answers, and speaks another protocol than was expected of it
};

// One line: who, what, value, limit, effect. Written for the person who has to act on it.
struct Error {
  std::string message;
  ErrorCode code = ErrorCode::kUnspecified;
};

// The same failure, its line begun by where it came up; the code stays, so that a caller still tells it from others:
//
//   if (!text.ok()) return prefixed(text.failure(), "--config: ");
inline Error prefixed(Error error, std::string_view prefix) {
  error.message.insert(0, prefix);
  return error;
}

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

  // Only after a failure: its line, its code, and both, to be handed on.
  const std::string& error() const { return std::get<1>(state_).message; }
  ErrorCode code() const { return std::get<1>(state_).code; }
  const Error& failure() const& { return std::get<1>(state_); }
  Error&& failure() && { return std::get<1>(std::move(state_)); }

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
  void value() const {
    if (failed_) std::abort();
  }
  const std::string& error() const { return error_.message; }
  ErrorCode code() const { return error_.code; }
  const Error& failure() const& { return error_; }
  Error&& failure() && { return std::move(error_); }

 private:
  bool failed_ = false;
  Error error_;
};

// The value of a Result; where there is none, the enclosing function returns the failure as it came:
//
//   const std::string text = LOCKSTEP_TRY(read_file(path, kBytesMax));
//   LOCKSTEP_TRY(make_directories(folder));
//
// As the whole of a statement, of an initializer or of the right side of an assignment, never inside another one: what
// else an expression has evaluated by then is not defined (a GNU statement expression, which GCC and Clang share).
// Where the line has to say more, write the return by hand: `return prefixed(...)`.
#define LOCKSTEP_TRY(...)                                                 \
  ({                                                                      \
    auto lockstep_tried = (__VA_ARGS__);                                  \
    if (!lockstep_tried.ok()) return std::move(lockstep_tried).failure(); \
    std::move(lockstep_tried).value();                                    \
  })

}  // namespace lockstep
