#include "agent/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kSuffix = ".otlp";

std::optional<SpooledRequest> parse_name(std::string_view name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  std::vector<std::string_view> parts = split(name, '-');
  if (parts.size() != 3) return std::nullopt;
  auto sequence = parse_uint(parts[0]);
  auto records = parse_int(parts[2]);
  if (!sequence || !records || *records < 0) return std::nullopt;
  SpooledRequest request;
  request.sequence = *sequence;
  request.records = *records;
  for (Signal signal : {Signal::kMetrics, Signal::kLogs, Signal::kSpans}) {
    if (parts[1] == to_text(signal)) {
      request.signal = signal;
      return request;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string Spool::path_of(const SpooledRequest& request) const {
  return format("%s/%020llu-%s-%lld%s", folder_.c_str(), static_cast<unsigned long long>(request.sequence),
                to_text(request.signal), static_cast<long long>(request.records), kSuffix.data());
}

Result<Spool> Spool::open(std::string folder, uint64_t bytes_max) {
  if (Result<void> made = make_directories(folder); !made.ok()) return Error{made.error()};
  Result<std::vector<std::string>> names = list_directory(folder);
  if (!names.ok()) return Error{names.error()};
  Spool spool;
  spool.folder_ = std::move(folder);
  spool.bytes_max_ = bytes_max;
  for (const std::string& name : *names) {
    std::optional<SpooledRequest> request = parse_name(name);
    if (!request) continue;
    struct stat info {};
    if (stat((spool.folder_ + "/" + name).c_str(), &info) != 0) continue;
    request->bytes = static_cast<uint64_t>(info.st_size);
    spool.bytes_ += request->bytes;
    spool.next_sequence_ = std::max(spool.next_sequence_, request->sequence + 1);
    spool.queue_.push_back(*request);
  }
  std::sort(spool.queue_.begin(), spool.queue_.end(),
            [](const SpooledRequest& a, const SpooledRequest& b) { return a.sequence < b.sequence; });
  return spool;
}

Result<int64_t> Spool::push(Signal signal, int64_t records, std::string_view payload) {
  if (payload.size() > bytes_max_)
    return Error{format("a request of %zu bytes is larger than the whole spool (%llu bytes)", payload.size(),
                        static_cast<unsigned long long>(bytes_max_))};
  SpooledRequest request{next_sequence_++, signal, records, payload.size()};
  std::string path = path_of(request);
  std::string beside = path + ".tmp";
  auto failed = [&](const std::string& why) {
    unlink(beside.c_str());
    return Error{"spool: " + why};
  };
  {
    UniqueFd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file.valid()) return failed(format("cannot create %s: %s", beside.c_str(), std::strerror(errno)));
    if (Result<void> written = write_all(file.get(), payload); !written.ok()) return failed(written.error());
  }
  if (rename(beside.c_str(), path.c_str()) != 0)
    return failed(format("cannot rename to %s: %s", path.c_str(), std::strerror(errno)));
  // Room is made only once the new request is safe: a push that fails drops nothing.
  int64_t dropped = 0;
  while (!queue_.empty() && bytes_ + payload.size() > bytes_max_) {
    dropped += queue_.front().records;
    pop_front();
  }
  bytes_ += request.bytes;
  queue_.push_back(request);
  return dropped;
}

int64_t Spool::records() const {
  int64_t total = 0;
  for (const SpooledRequest& request : queue_) total += request.records;
  return total;
}

Result<std::string> Spool::read_front() const {
  return read_file(path_of(queue_.front()), bytes_max_);
}

void Spool::pop_front() {
  unlink(path_of(queue_.front()).c_str());
  bytes_ -= queue_.front().bytes;
  queue_.pop_front();
}

}  // namespace lockstep
