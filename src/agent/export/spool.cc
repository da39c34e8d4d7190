#include "agent/export/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "base/files.h"
#include "base/format_versions.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kSuffix = ".otlp";
constexpr std::string_view kUnfinished = ".tmp";
constexpr size_t kSequenceDigits = 20;
constexpr size_t kTornLinesMax = 10;
constexpr Signal kSignals[] = {Signal::kMetrics, Signal::kLogs, Signal::kSpans};
struct Name {
  SpooledRequest request;
  bool old = false;  // without value and length
};

std::optional<Name> parse_name(std::string_view name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const std::vector<std::string_view> parts = split(name, '-');
  if (parts.size() != 3 && parts.size() != 5) return std::nullopt;
  const auto sequence = parse_uint(parts[0]);
  const auto records = parse_int(parts[2]);
  if (!sequence || !records || *records < 0) return std::nullopt;
  Name found;
  found.old = parts.size() == 3;
  found.request.sequence = *sequence;
  found.request.records = *records;
  const auto signal =
      std::find_if(std::begin(kSignals), std::end(kSignals), [&](Signal one) { return parts[1] == to_text(one); });
  if (signal == std::end(kSignals)) return std::nullopt;
  found.request.signal = *signal;
  found.request.value = value_of(*signal);
  if (found.old) return found;
  const auto row = std::find_if(kDataValueTable.begin(), kDataValueTable.end(),
                                [&](const DataValueRow& one) { return parts[3] == one.name; });
  const auto bytes = parse_uint(parts[4]);
  if (row == kDataValueTable.end() || !bytes) return std::nullopt;
  found.request.value = row->value;
  found.request.bytes = *bytes;
  return found;
}

// A write that a crash interrupted: by our own name only.
bool is_unfinished(std::string_view name) {
  if (!name.ends_with(kUnfinished)) return false;
  name.remove_suffix(kUnfinished.size());
  return name.find('-') == kSequenceDigits && parse_name(name).has_value();
}

bool is_disk_full(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

}  // namespace

int64_t SpoolDrops::total() const {
  return std::accumulate(records.begin(), records.end(), int64_t{0});
}

std::string Spool::path_of(const SpooledRequest& request) const {
  return format("%s/%020llu-%s-%lld-%s-%llu%s", folder_.c_str(), static_cast<unsigned long long>(request.sequence),
                to_text(request.signal), static_cast<long long>(request.records), to_text(request.value),
                static_cast<unsigned long long>(request.bytes), kSuffix.data());
}

void Spool::add(const SpooledRequest& request) {
  queue(request.value, request.signal).push_back({request.sequence, request.bytes, request.records});
  bytes_ += request.bytes;
  bytes_by_value_[static_cast<size_t>(request.value)] += request.bytes;
  records_ += request.records;
  ++count_;
}

void Spool::take_up(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  if (is_unfinished(name)) {
    unlink(path.c_str());
    return;
  }
  std::optional<Name> found = parse_name(name);
  if (!found) {
    if (name.ends_with(kSuffix)) ++unknown_files_;
    return;
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  SpooledRequest& request = found->request;
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  next_sequence_ = std::max(next_sequence_, request.sequence + 1);
  if (found->old) request.bytes = size;
  if (size != request.bytes || (size == 0 && request.records > 0)) {
    if (++torn_files_ <= kTornLinesMax)
      LOCKSTEP_LOG_WARN("agent", "spool: %s has %llu bytes, not what was written; %lld records are lost", path.c_str(),
                        static_cast<unsigned long long>(size), static_cast<long long>(request.records));
    torn_.records[static_cast<size_t>(request.value)] += request.records;
    unlink(path.c_str());
    return;
  }
  if (found->old && rename(path.c_str(), path_of(request).c_str()) != 0) {
    LOCKSTEP_LOG_WARN("agent", "spool: cannot rename %s: %s; it is left alone", path.c_str(), std::strerror(errno));
    return;
  }
  add(request);
}

Result<Spool> Spool::open(std::string folder, uint64_t bytes_max) {
  LOCKSTEP_TRY(make_directories(folder));
  std::vector<std::string> names = LOCKSTEP_TRY(list_directory(folder));
  // The folder's own name must survive a power cut too. Where that cannot be had (no right to open what is above),
  // the spool works all the same.
  (void)sync_directory(folder + "/..").ok();
  Spool spool;
  spool.folder_ = std::move(folder);
  spool.bytes_max_ = bytes_max;
  for (const std::string& name : names) spool.take_up(name);
  if (spool.unknown_files_ > 0)
    LOCKSTEP_LOG_WARN(
        "agent",
        "spool: %s: %zu files have names that are not of format version %u or %u, which this agent reads; "
        "they are left alone and not sent",
        spool.folder_.c_str(), spool.unknown_files_, formats::kSpool.oldest, formats::kSpool.version);
  if (spool.torn_files_ > kTornLinesMax)
    LOCKSTEP_LOG_WARN("agent", "spool: %zu files in all were torn", spool.torn_files_);
  for (auto& by_signal : spool.queues_) {
    for (Queue& queue : by_signal)
      std::sort(queue.begin(), queue.end(), [](const Entry& a, const Entry& b) { return a.sequence < b.sequence; });
  }
  return spool;
}

Result<void> Spool::write(const std::string& path, std::string_view payload, bool* disk_full) const {
  const std::string beside = path + std::string(kUnfinished);
  // The reason is taken before anything else can change errno.
  auto failed = [&](const char* what) {
    const int error = errno;
    *disk_full = is_disk_full(error);
    unlink(beside.c_str());
    return Error{format("spool: cannot %s %s: %s", what, beside.c_str(), std::strerror(error))};
  };
  {
    UniqueFd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file.valid()) return failed("create");
    if (!write_all(file.get(), payload).ok()) return failed("write");
    if (fdatasync(file.get()) != 0) return failed("sync");
  }
  if (rename(beside.c_str(), path.c_str()) != 0) return failed("rename");
  return {};
}

std::optional<SpooledRequest> Spool::lowest(DataValue at_most) const {
  for (const DataValueRow& row : kDataValueTable) {
    const DataValue value = row.value;
    if (value > at_most) break;
    std::optional<SpooledRequest> first;
    for (Signal signal : kSignals) {
      const Queue& queue = queues_[static_cast<size_t>(value)][static_cast<size_t>(signal)];
      if (queue.empty() || (first && first->sequence < queue.front().sequence)) continue;
      first = SpooledRequest{queue.front().sequence, signal, value, queue.front().records, queue.front().bytes};
    }
    if (first) return first;
  }
  return std::nullopt;
}

void Spool::drop(const SpooledRequest& request, SpoolDrops& drops) {
  drops.records[static_cast<size_t>(request.value)] += request.records;
  remove(request);
}

SpoolPush Spool::push(Signal signal, DataValue value, int64_t records, std::string_view payload) {
  SpoolPush pushed;
  if (payload.size() > bytes_max_) {
    pushed.why = format("spool: a request of %zu bytes is larger than the whole spool (%llu bytes)", payload.size(),
                        static_cast<unsigned long long>(bytes_max_));
    return pushed;
  }
  const SpooledRequest request{next_sequence_++, signal, value, records, payload.size()};
  // Is there room enough among what is worth no more? If not, the request itself is the one to go.
  const uint64_t kept_bytes =
      std::accumulate(bytes_by_value_.begin() + static_cast<ptrdiff_t>(value) + 1, bytes_by_value_.end(), uint64_t{0});
  if (kept_bytes + payload.size() > bytes_max_) {
    pushed.dropped.records[static_cast<size_t>(value)] += records;
    return pushed;
  }
  const std::string path = path_of(request);
  uint64_t freed = 0;
  while (true) {
    bool disk_full = false;
    Result<void> written = write(path, payload, &disk_full);
    if (written.ok()) break;
    pushed.disk_full = disk_full;
    // The disk is full of others' files as well; only as much of ours goes as this request needs, rounded up to what a
    // disk deals in.
    const std::optional<SpooledRequest> victim = lowest(value);
    if (!disk_full || !victim || freed > payload.size() + (64 << 10)) {
      pushed.why = written.error();
      return pushed;
    }
    freed += victim->bytes;
    drop(*victim, pushed.dropped);
  }
  // Room is made only once the new request is safe: a push that fails for another reason drops nothing.
  while (bytes_ + payload.size() > bytes_max_) {
    const std::optional<SpooledRequest> victim = lowest(value);
    if (!victim) break;
    drop(*victim, pushed.dropped);
  }
  add(request);
  pushed.stored = true;
  return pushed;
}

Result<void> Spool::sync() const {
  return sync_directory(folder_);
}

bool Spool::has(Signal signal) const {
  return std::any_of(queues_.begin(), queues_.end(),
                     [&](const auto& by_signal) { return !by_signal[static_cast<size_t>(signal)].empty(); });
}

std::optional<SpooledRequest> Spool::oldest(std::array<size_t, 3> from) const {
  std::optional<SpooledRequest> first;
  for (const DataValueRow& row : kDataValueTable) {
    const DataValue value = row.value;
    for (Signal signal : kSignals) {
      const Queue& queue = queues_[static_cast<size_t>(value)][static_cast<size_t>(signal)];
      if (static_cast<size_t>(value) < from[static_cast<size_t>(signal)] || queue.empty()) continue;
      if (first && first->sequence < queue.front().sequence) continue;
      first = SpooledRequest{queue.front().sequence, signal, value, queue.front().records, queue.front().bytes};
    }
  }
  return first;
}

Result<std::string> Spool::read(const SpooledRequest& request) const {
  const std::string path = path_of(request);
  Result<std::string> payload = read_file(path, bytes_max_);
  if (payload.ok() && payload->size() != request.bytes)
    return Error{format("%s has %zu bytes, not what was written", path.c_str(), payload->size())};
  return payload;
}

void Spool::remove(const SpooledRequest& request) {
  unlink(path_of(request).c_str());
  Queue& from = queue(request.value, request.signal);
  if (from.empty() || from.front().sequence != request.sequence) return;
  from.pop_front();
  bytes_ -= request.bytes;
  bytes_by_value_[static_cast<size_t>(request.value)] -= request.bytes;
  records_ -= request.records;
  --count_;
}

}  // namespace lockstep
