#include "profile/read/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/files.h"
#include "base/text.h"
#include "profile/read/inflater.h"

namespace lockstep::profile {
namespace {

class FileSource : public ByteSource {
 public:
  FileSource(std::string path, UniqueFd fd, std::function<void(uint64_t)> progress)
      : path_(std::move(path)), fd_(std::move(fd)), progress_(std::move(progress)) {}
  Result<size_t> read(char* into, size_t bytes_max) override {
    while (true) {
      const ssize_t got = ::read(fd_.get(), into, bytes_max);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error{format("%s: %s", path_.c_str(), std::strerror(errno))};
      done_ += static_cast<uint64_t>(got);
      if (progress_) progress_(done_);
      return static_cast<size_t>(got);
    }
  }

 private:
  std::string path_;
  UniqueFd fd_;
  std::function<void(uint64_t)> progress_;
  uint64_t done_ = 0;
};

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : left_(bytes) {}
  Result<size_t> read(char* into, size_t bytes_max) override {
    const size_t count = std::min(bytes_max, left_.size());
    if (count > 0) std::memcpy(into, left_.data(), count);
    left_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view left_;
};

// The first bytes decide whether there is anything to undo. Several gzip members in a row are one stream, as gzip has it.
class InflatingSource : public ByteSource {
 public:
  explicit InflatingSource(std::unique_ptr<ByteSource> inner) : inner_(std::move(inner)), input_(256 << 10) {}
  Result<size_t> read(char* into, size_t bytes_max) override {
    if (state_ == State::kUnknown) LOCKSTEP_TRY(begin());
    if (state_ == State::kPlain) {
      if (input_at_ == input_end_) return inner_->read(into, bytes_max);
      const size_t count = std::min(bytes_max, input_end_ - input_at_);
      std::memcpy(into, input_.data() + input_at_, count);
      input_at_ += count;
      return count;
    }
    return inflate_some(into, bytes_max);
  }

 private:
  enum class State { kUnknown, kPlain, kGzip };

  Result<void> refill() {
    input_at_ = 0;
    input_end_ = LOCKSTEP_TRY(inner_->read(input_.data(), input_.size()));
    return {};
  }
  Result<void> begin() {
    while (input_end_ < 2) {  // a pipe may give single bytes
      const size_t got = LOCKSTEP_TRY(inner_->read(input_.data() + input_end_, input_.size() - input_end_));
      if (got == 0) break;
      input_end_ += got;
    }
    const bool is_gzip = input_end_ >= 2 && input_[0] == '\x1f' && input_[1] == '\x8b';
    if (is_gzip) inflater_ = std::make_unique<Inflater>();
    state_ = is_gzip ? State::kGzip : State::kPlain;
    return {};
  }
  Error damaged() const { return Error{format("the gzip stream is damaged (%s)", inflater_->damage())}; }
  Result<size_t> inflate_some(char* into, size_t bytes_max) {
    size_t written = 0;
    if (is_damaged_) return damaged();
    while (written == 0) {
      if (input_at_ == input_end_) {
        LOCKSTEP_TRY(refill());
        if (input_end_ == 0) {
          if (is_between_members_) return size_t{0};
          return Error{"the gzip stream ends before its end"};
        }
      }
      if (is_between_members_) {
        if (input_[input_at_] != '\x1f') return size_t{0};  // padding after the last member, as gzip ignores it
        inflater_->begin_member();
        is_between_members_ = false;
      }
      size_t taken = 0;
      const Inflater::Outcome outcome =
          inflater_->run(input_.data() + input_at_, input_end_ - input_at_, taken, into, bytes_max, written);
      input_at_ += taken;
      is_between_members_ = outcome == Inflater::Outcome::kMemberEnd;
      if (outcome != Inflater::Outcome::kDamaged) continue;
      is_damaged_ = true;
      if (written > 0) break;  // what came before it is good
      return damaged();
    }
    return written;
  }

  std::unique_ptr<ByteSource> inner_;
  std::vector<char> input_;
  size_t input_at_ = 0;
  size_t input_end_ = 0;
  State state_ = State::kUnknown;
  bool is_between_members_ = false;
  bool is_damaged_ = false;  // then there is no going on
  std::unique_ptr<Inflater> inflater_;
};

class BytesBefore final : public ByteSource {
 public:
  BytesBefore(std::string first, std::unique_ptr<ByteSource> rest, std::optional<Error> ended)
      : first_(std::move(first)), rest_(std::move(rest)), ended_(std::move(ended)) {}
  Result<size_t> read(char* into, size_t bytes_max) override {
    if (taken_ == first_.size() && ended_) return *ended_;
    if (taken_ == first_.size()) return rest_->read(into, bytes_max);
    const size_t count = std::min(bytes_max, first_.size() - taken_);
    std::memcpy(into, first_.data() + taken_, count);
    taken_ += count;
    return count;
  }

 private:
  const std::string first_;
  const std::unique_ptr<ByteSource> rest_;
  const std::optional<Error> ended_;
  size_t taken_ = 0;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_trace_file(const std::string& path, std::function<void(uint64_t)> progress) {
  UniqueFd fd(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnspecified;
    return Error{format("%s: %s", path.c_str(), std::strerror(errno)), code};
  }
  struct stat info = {};
  if (::fstat(fd.get(), &info) == 0 && S_ISDIR(info.st_mode)) return Error{path + ": is a folder, not a trace"};
  return std::unique_ptr<ByteSource>(std::make_unique<FileSource>(path, std::move(fd), std::move(progress)));
}

std::unique_ptr<ByteSource> bytes_in_memory(std::string_view bytes) {
  return std::make_unique<MemorySource>(bytes);
}

std::unique_ptr<ByteSource> bytes_before(std::string first, std::unique_ptr<ByteSource> rest,
                                         std::optional<Error> ended) {
  return std::make_unique<BytesBefore>(std::move(first), std::move(rest), std::move(ended));
}

std::unique_ptr<ByteSource> inflating(std::unique_ptr<ByteSource> inner) {
  return std::make_unique<InflatingSource>(std::move(inner));
}

}  // namespace lockstep::profile
