#include "sources/kernel/kernel_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/clock.h"
#include "base/format_versions.h"
#include "base/text.h"
#include "sources/kernel/line_words.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kOpenAgainNs = 10 * kSecondNs;
constexpr int64_t kKeepEveryNs = 5 * kSecondNs;   // after something worth an event
constexpr int64_t kKeepIdleNs = 60 * kSecondNs;   // else
constexpr int kRecordsPerClock = 256;             // the clock is looked at so often
constexpr size_t kChunk = 64 * 1024;              // of a plain file
constexpr int64_t kStampMost = int64_t{1} << 53;  // 285 years of microseconds

int64_t now_ns() {
  return SystemClock().monotonic_ns();
}

}  // namespace

std::optional<KernelRecord> parse_kernel_record(std::string_view bytes) {
  KernelRecord record;
  const std::optional<int64_t> priority = take_number(bytes, 1 << 20);
  if (!priority || !skip(bytes, ",")) return std::nullopt;
  const std::optional<int64_t> seq = take_number(bytes, std::numeric_limits<int64_t>::max() / 16);
  if (!seq || !skip(bytes, ",")) return std::nullopt;
  const std::optional<int64_t> stamp = take_number(bytes, kStampMost);
  if (!stamp || !skip(bytes, ",")) return std::nullopt;
  const size_t semicolon = bytes.find(';');
  const size_t line_end = bytes.find('\n');
  if (semicolon == std::string_view::npos || line_end < semicolon) return std::nullopt;
  record.priority = static_cast<int>(*priority & 7);
  record.seq = *seq;
  record.stamp_us = *stamp;
  record.text = bytes.substr(semicolon + 1, line_end == std::string_view::npos ? line_end : line_end - semicolon - 1);
  return record;
}

void unescape_kernel_text(std::string_view text, std::string& out) {
  out.clear();
  for (size_t at = 0; at < text.size();) {
    const size_t escape = std::min(text.find('\\', at), text.size());
    out.append(text.substr(at, escape - at));
    at = escape;
    if (at == text.size()) break;
    if (at + 3 < text.size() && text[at + 1] == 'x' && hex_digit(text[at + 2]) >= 0 && hex_digit(text[at + 3]) >= 0) {
      out += static_cast<char>(hex_digit(text[at + 2]) << 4 | hex_digit(text[at + 3]));
      at += 4;
    } else {
      out += text[at++];
    }
  }
}

KernelLog::KernelLog(KernelLogOptions options) : options_(std::move(options)) {
  Result<std::string> boot = read_file(options_.boot_id_path, 4096);
  boot_id_ = boot.ok() ? std::string(trim(*boot)) : "";
  if (boot_id_.empty() || boot_id_.find(' ') != std::string::npos) boot_id_ = std::string("-");
  load_state();
  open_file();
}

KernelLog::~KernelLog() {
  write_state();
}

std::string KernelLog::take_note() {
  return std::exchange(note_, std::string());
}

void KernelLog::open_file() {
  file_ = UniqueFd(open(options_.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file_.valid() || fstat(file_.get(), &info) != 0) {
    open_error_ = errno;
    file_.reset();
    return;
  }
  open_error_ = 0;
  plain_ = S_ISREG(info.st_mode);
  inode_ = info.st_ino;
  rewind();
}

// From the oldest record; what was read before is passed over.
void KernelLog::rewind() {
  if (plain_) {
    offset_ = 0;
    buffer_.clear();
  } else if (lseek(file_.get(), 0, SEEK_SET) < 0) {
    // A pipe or the like: it begins where it begins.
  }
  resuming_ = last_.seq >= 0;
  passed_any_ = false;
}

void KernelLog::load_state() {
  if (options_.state_file.empty()) return;
  Result<std::string> state = read_file(options_.state_file, 4096);
  if (!state.ok()) return;  // the first start
  const std::vector<std::string_view> words = split(trim(*state), ' ');
  if (words.size() != 3) {
    note_ = format("kernel log: %s is not of format version %u, which this agent reads; old events are reported again",
                   options_.state_file.c_str(), formats::kKernelLogState.version);
    return;
  }
  if (words[0] != boot_id_) return;  // another boot counts its records anew
  const std::optional<int64_t> seq = parse_int(words[1]);
  const std::optional<int64_t> stamp = parse_int(words[2]);
  if (!seq || !stamp || *seq < 0 || *stamp < 0) return;
  last_ = done_ = kept_ = {*seq, *stamp};
}

void KernelLog::write_state() {
  if (options_.state_file.empty() || done_ == kept_ || done_.seq < 0) return;
  Result<void> written = write_file_atomically(
      options_.state_file, format("%s %lld %lld\n", boot_id_.c_str(), static_cast<long long>(done_.seq),
                                  static_cast<long long>(done_.stamp_us)));
  if (written.ok()) {
    kept_ = done_;
  } else if (!state_said_) {
    state_said_ = true;
    note_ = "kernel log: " + written.error() + "; after a restart old events are reported again";
  }
}

bool KernelLog::done(int64_t monotonic_ns, bool soon) {
  done_ = last_;
  const bool first = kept_.seq < 0 && kept_ns_ == 0;
  if (!first && monotonic_ns - kept_ns_ < (soon ? kKeepEveryNs : kKeepIdleNs)) return false;
  kept_ns_ = monotonic_ns;
  write_state();
  return true;
}

void KernelLog::look_for_replacement() {
  struct stat info {};
  if (stat(options_.path.c_str(), &info) != 0) return;  // gone: what is open stays
  if (info.st_ino != inode_) {
    open_file();
  } else if (info.st_size < offset_) {
    rewind();
  }
}

bool KernelLog::read(int64_t monotonic_ns, int64_t unix_ns, const std::function<void(const KernelRecord&)>& record) {
  if (!file_.valid()) {
    if (tried_ns_ != 0 && monotonic_ns - tried_ns_ < kOpenAgainNs) return true;
    tried_ns_ = monotonic_ns;
    open_file();
    if (!file_.valid()) return true;
  }
  now_monotonic_ns_ = monotonic_ns;
  now_unix_ns_ = unix_ns;
  handed_ = 0;
  const int64_t deadline_ns = now_ns() + kKernelReadNs;
  if (plain_) look_for_replacement();
  bool all = file_.valid() && (plain_ ? read_plain(deadline_ns, record) : read_device(deadline_ns, record));
  if (all && is_another_log()) {
    last_ = {};
    another_log_ = false;
    rewind();
    all = false;
  }
  drained_unix_ns_ = all ? unix_ns : 0;
  return all;
}

// At the end of what is there, and never came to the record that was read last. (Nothing at all says nothing.)
bool KernelLog::is_another_log() const {
  return another_log_ || (resuming_ && passed_any_);
}

bool KernelLog::read_device(int64_t deadline_ns, const std::function<void(const KernelRecord&)>& record) {
  buffer_.resize(kKernelRecordMax);
  while (!another_log_) {
    if (handed_ >= kKernelRecordsPerRead) return false;
    if (handed_ % kRecordsPerClock == kRecordsPerClock - 1 && now_ns() > deadline_ns) return false;
    ++handed_;
    const ssize_t got = ::read(file_.get(), buffer_.data(), buffer_.size());
    if (got > 0) {
      take(std::string_view(buffer_).substr(0, static_cast<size_t>(got)), record);
    } else if (got == 0 || errno == EAGAIN) {
      return true;
    } else if (errno == EINVAL) {
      ++malformed_;  // a record beyond our buffer; the kernel has moved on
    } else if (errno != EPIPE && errno != EINTR) {
      note_ = format("kernel log: cannot read %s: %s", options_.path.c_str(), std::strerror(errno));
      file_.reset();
      tried_ns_ = now_monotonic_ns_;
      return true;
    }
    // EPIPE: the kernel was faster. The next record's number tells how many are gone.
  }
  return true;
}

bool KernelLog::read_plain(int64_t deadline_ns, const std::function<void(const KernelRecord&)>& record) {
  while (!another_log_) {
    const size_t had = buffer_.size();
    buffer_.resize(had + kChunk);
    const ssize_t got = pread(file_.get(), buffer_.data() + had, kChunk, offset_ + static_cast<off_t>(had));
    buffer_.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    size_t begin = 0;
    bool stopped = false;
    while (!another_log_) {
      const size_t end = buffer_.find('\n', begin);
      if (end == std::string::npos) break;
      const bool late = handed_ % kRecordsPerClock == kRecordsPerClock - 1 && now_ns() > deadline_ns;
      if (handed_ >= kKernelRecordsPerRead || late) {
        stopped = true;
        ++handed_;
        break;
      }
      ++handed_;
      const std::string_view line = std::string_view(buffer_).substr(begin, end - begin);
      begin = end + 1;
      // A blank begins a line of key and value that belongs to the record before it.
      if (!line.empty() && line.front() != ' ') take(line, record);
    }
    offset_ += static_cast<off_t>(begin);
    buffer_.erase(0, begin);
    if (stopped) {
      buffer_.clear();  // read again from offset_: what waits may be replaced meanwhile
      return false;
    }
    if (got <= 0) break;
    if (buffer_.size() > kKernelRecordMax && buffer_.find('\n') == std::string::npos) {
      ++malformed_;  // no end in sight: pass over it
      offset_ += static_cast<off_t>(buffer_.size());
      buffer_.clear();
    }
  }
  buffer_.clear();  // a line without an end is read again when it has one
  return true;
}

void KernelLog::take(std::string_view bytes, const std::function<void(const KernelRecord&)>& record) {
  std::optional<KernelRecord> parsed = parse_kernel_record(bytes);
  if (!parsed) {
    ++malformed_;
    return;
  }
  if (resuming_) {
    passed_any_ = true;
    if (parsed->seq < last_.seq) return;
    resuming_ = false;
    another_log_ = parsed->seq == last_.seq && parsed->stamp_us != last_.stamp_us;
    if (parsed->seq == last_.seq) return;
  }
  if (last_.seq >= 0 && parsed->seq > last_.seq + 1) lost_ += parsed->seq - last_.seq - 1;
  last_ = {parsed->seq, parsed->stamp_us};
  ++records_;
  if (parsed->text.find('\\') != std::string_view::npos) {
    unescape_kernel_text(parsed->text, text_);
    parsed->text = text_;
  }
  parsed->time_unix_ns = unix_of(parsed->stamp_us);
  record(*parsed);
}

int64_t KernelLog::unix_of(int64_t stamp_us) const {
  // The log's clock is not disciplined and drifts against the monotonic one; what came since we last had read
  // everything cannot be older than that, and nothing comes from the future.
  const int64_t time = now_unix_ns_ - (now_monotonic_ns_ - stamp_us * 1000);
  return std::min(std::max(time, drained_unix_ns_), now_unix_ns_);
}

}  // namespace lockstep
