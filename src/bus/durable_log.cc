// The durable log as segment files (docs/formats/log.md).
//
// Group commit by leader and follower: whoever finds no write under way takes everything that waits, writes it with one
// writev and one fdatasync and wakes the others. While it waits for the disk the next group gathers, so the number of
// syncs follows the disk's pace and not the number of callers.
//
// A failed group leaves nothing behind: the segment is cut back to where the group began before anyone is told, and its
// sequence numbers are given to the next group. Where the disk does not let us cut, or a sync has failed (nobody knows
// which pages the kernel gave up on, and a sync that succeeds later does not say), the segment is left and another one
// begun: its name says where the one before it ends, whatever lies behind.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/contained.h"
#include "base/crc32c.h"
#include "base/disk.h"
#include "base/files.h"
#include "base/format_versions.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "bus/log.h"

namespace lockstep {
namespace {

constexpr uint32_t kMagic = 0x3152534C;  // "LSR1"
constexpr std::string_view kMagicBytes = "LSR1";
static_assert(kMagicBytes.substr(0, 3) == formats::kDurableLog.magic && formats::kDurableLog.version == 1);
// Whoever is told of a failure may send nothing more, so that nobody would find out that it is over.
constexpr std::chrono::seconds kTroubleLasts{10};
constexpr const char* kNoMemory = "the log failed (its line says how); nothing of this request was kept, try again";
constexpr uint64_t kGroupBytesMax = 128ull << 20;  // a group never waits for much more than one longest record

// Written as it lies in memory; every machine we build for is little-endian.
struct RecordHeader {
  uint32_t magic;
  uint32_t header_crc;  // of the bytes after this field
  uint32_t payload_bytes;
  uint32_t payload_crc;
  uint64_t sequence;
  int64_t received_unix_ns;
  uint8_t kind;
  uint8_t reserved[7];
};
static_assert(sizeof(RecordHeader) == 40);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

uint32_t header_checksum(const RecordHeader& header) {
  constexpr size_t skip = offsetof(RecordHeader, payload_bytes);
  return crc32c({reinterpret_cast<const char*>(&header) + skip, sizeof header - skip});
}

struct Record {
  RecordHeader header{};
  std::string_view payload;
};

// Reads the record at the front. false: what is there is not a whole, intact record.
bool read_record(std::string_view bytes, Record* record) {
  if (bytes.size() < sizeof(RecordHeader)) return false;
  std::memcpy(&record->header, bytes.data(), sizeof(RecordHeader));
  const RecordHeader& header = record->header;
  if (header.magic != kMagic || header.header_crc != header_checksum(header)) return false;
  if (header.payload_bytes > DurableLog::kRecordBytesMax || header.payload_bytes > bytes.size() - sizeof(RecordHeader))
    return false;
  record->payload = bytes.substr(sizeof(RecordHeader), header.payload_bytes);
  return crc32c(record->payload) == header.payload_crc;
}

// Reads the record at `offset` of a file of which the first `end` bytes count, into `buffer`. One that is not whole and
// intact: its magic is 0. An error: the disk's.
Result<void> read_one(int fd, uint64_t offset, uint64_t end, std::string& buffer, Record& record) {
  record.header.magic = 0;
  RecordHeader header{};
  const auto read_at = [&](char* to, size_t bytes, uint64_t from) -> Result<void> {
    for (size_t done = 0; done < bytes;) {
      const ssize_t got = disk::pread(fd, to + done, bytes - done, from + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error{format("cannot read the log: %s", std::strerror(errno))};
      if (got == 0) return Error{"a segment of the log is shorter than it was"};
      done += static_cast<size_t>(got);
    }
    return {};
  };
  if (offset + sizeof header > end) return {};
  LOCKSTEP_TRY(read_at(reinterpret_cast<char*>(&header), sizeof header, offset));
  if (header.magic != kMagic || header.header_crc != header_checksum(header)) return {};
  if (header.payload_bytes > DurableLog::kRecordBytesMax || header.payload_bytes > end - offset - sizeof header)
    return {};
  buffer.resize(sizeof header + header.payload_bytes);
  std::memcpy(buffer.data(), &header, sizeof header);
  LOCKSTEP_TRY(read_at(buffer.data() + sizeof header, header.payload_bytes, offset + sizeof header));
  if (!read_record(buffer, &record)) record.header.magic = 0;
  return {};
}

struct Segment {
  uint64_t first_sequence = 0;
  uint64_t bytes = 0;
};

// The segment in which a reader goes on, of one at least: that of its position, or the oldest one.
size_t segment_of(const std::vector<Segment>& segments, const LogPosition& at) {
  size_t found = 0;
  while (found + 1 < segments.size() && segments[found + 1].first_sequence <= at.sequence) ++found;
  return found;
}

// What the checksums prove of one segment: the records from its beginning up to the first bad one, or to where the next
// segment begins.
struct Scan {
  uint64_t good_bytes = 0;
  uint64_t records = 0;
};
template <typename Visit>
Scan scan_segment(std::string_view content, uint64_t first_sequence, uint64_t next_segment, Visit visit) {
  Scan scan;
  Record record;
  while (first_sequence + scan.records < next_segment && read_record(content.substr(scan.good_bytes), &record) &&
         record.header.sequence == first_sequence + scan.records) {
    visit(record);
    scan.good_bytes += sizeof(RecordHeader) + record.payload.size();
    ++scan.records;
  }
  return scan;
}

// A header is enough: its checksum does not match by chance, and payloads chosen by a peer cannot make this loop long.
bool has_intact_header(std::string_view bytes) {
  RecordHeader header;
  for (size_t at = bytes.find(kMagicBytes); at != std::string_view::npos && bytes.size() - at >= sizeof header;
       at = bytes.find(kMagicBytes, at + 1)) {
    std::memcpy(&header, bytes.data() + at, sizeof header);
    if (header.header_crc == header_checksum(header)) return true;
  }
  return false;
}

class SegmentLog final : public DurableLog {
 public:
  SegmentLog(LogOptions options, Counters& counters)
      : options_(std::move(options)),
        segment_bytes_max_(std::min(options_.segment_bytes_max, std::max<uint64_t>(options_.total_bytes_max / 4, 1))),
        counters_(counters),
        received_(counters.at("lockstep_log_records_received_total")),
        appended_(counters.at("lockstep_log_records_appended_total")),
        appended_bytes_(counters.at("lockstep_log_bytes_appended_total")),
        syncs_(counters.at("lockstep_log_syncs_total")),
        bytes_gauge_(counters.at("lockstep_log_bytes")) {}

  Result<void> recover();
  Result<uint64_t> append(RecordKind kind, int64_t received_unix_ns, std::string_view payload) override;
  Result<uint64_t> append_all(std::span<const AppendedRecord> entries) override;
  Result<void> replay(const std::function<void(uint64_t, RecordKind, int64_t, std::string_view)>& apply) override;
  uint64_t next_sequence() const override {
    MutexLock lock(mutex_);
    return next_sequence_;
  }
  std::optional<std::string> trouble() const override;
  Result<HeldLog> hold(const std::string& folder) override;
  std::shared_ptr<void> pin() override;
  Result<void> read_on(LogPosition& at, uint64_t bytes_max,
                       const std::function<void(RecordKind, int64_t, std::string_view)>& visit) override;
  void drop_before(const LogPosition& at) override;
  uint64_t bytes_from(const LogPosition& at) const override;

 private:
  struct Pending {
    RecordHeader header{};
    std::string_view payload;
    bool with_next = false;  // in one group with the one behind it
    bool done = false;
    std::string error;  // empty once done: durable
  };

  std::string path(uint64_t first_sequence) const {
    return format("%s/%020llu.log", options_.folder.c_str(), static_cast<unsigned long long>(first_sequence));
  }
  void lead_or_wait(std::span<Pending> own);
  Result<void> commit(const std::vector<Pending*>& group, uint64_t first_sequence);
  Result<void> write_group(const std::vector<Pending*>& group);
  bool take_back();
  Result<void> open_segment(uint64_t first_sequence);
  void drop_old_segments();
  void close_segment();
  // Some of one segment, of which the records before end_sequence count. False: there was nothing intact.
  Result<bool> read_segment(const Segment& segment, uint64_t end_sequence, LogPosition& at, uint64_t bytes_max,
                            const std::function<void(RecordKind, int64_t, std::string_view)>& visit);
  // No segment is written, begun or dropped during `look`, which gets them and the next sequence.
  template <typename Look>
  void with_segments(Look look) const;

  const LogOptions options_;
  const uint64_t segment_bytes_max_;
  Counters& counters_;
  std::atomic<int64_t>& received_;
  std::atomic<int64_t>& appended_;
  std::atomic<int64_t>& appended_bytes_;
  std::atomic<int64_t>& syncs_;
  std::atomic<int64_t>& bytes_gauge_;

  // By the leader alone (one at a time), and before the first append.
  std::vector<Segment> segments_;  // oldest first; the last is the open one if file_ is valid
  uint64_t total_bytes_ = 0;
  UniqueFd file_;
  std::atomic<int> pins_{0};

  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::vector<Pending*> waiting_ LOCKSTEP_GUARDED_BY(mutex_);
  bool leader_busy_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  uint64_t next_sequence_ LOCKSTEP_GUARDED_BY(mutex_) = 1;
  std::string failure_ LOCKSTEP_GUARDED_BY(mutex_);  // of the last group; empty: it was written
  std::chrono::steady_clock::time_point failed_at_ LOCKSTEP_GUARDED_BY(mutex_);
};

Result<void> SegmentLog::recover() {
  MutexLock lock(mutex_);
  LOCKSTEP_TRY(make_directories(options_.folder));
  std::vector<std::string> names = LOCKSTEP_TRY(list_directory(options_.folder));
  for (const std::string& name : names) {
    if (!name.ends_with(".log")) continue;
    std::optional<uint64_t> first = parse_uint(std::string_view(name).substr(0, name.size() - 4));
    struct stat info {};
    if (!first || path(*first) != options_.folder + "/" + name || stat(path(*first).c_str(), &info) != 0) continue;
    LOCKSTEP_TRY(formats::check_file(formats::kDurableLog, path(*first)));
    segments_.push_back({*first, static_cast<uint64_t>(info.st_size)});
    total_bytes_ += segments_.back().bytes;
  }
  if (!segments_.empty()) {
    Segment& last = segments_.back();
    std::string content = LOCKSTEP_TRY(read_file(path(last.first_sequence), UINT64_MAX));
    Scan scan = scan_segment(content, last.first_sequence, UINT64_MAX, [](const Record&) {});
    next_sequence_ = last.first_sequence + scan.records;
    uint64_t bad_bytes = content.size() - scan.good_bytes;
    const std::string_view bad = std::string_view(content).substr(scan.good_bytes);
    const formats::Found found = formats::read_head(formats::kDurableLog, bad).found;
    const bool is_torn = found == formats::Found::kTorn || found == formats::Found::kKnown;
    if (bad_bytes > 0 && (!is_torn || has_intact_header(bad.substr(1)))) {
      // Not a torn write: it does not begin as one does, or something whole follows. The bytes stay for whoever wants
      // to look; replay() stops before them.
      next_sequence_ = std::max(next_sequence_, last.first_sequence + 1);
    } else if (bad_bytes > 0) {
      counters_.add("lockstep_log_torn_tails_total");
      counters_.add("lockstep_log_torn_bytes_total", "", static_cast<int64_t>(bad_bytes));
      LOCKSTEP_LOG_WARN(
          "log", "%s: an unfinished write of %llu bytes at the end was cut off; %llu records before it are intact",
          path(last.first_sequence).c_str(), static_cast<unsigned long long>(bad_bytes),
          static_cast<unsigned long long>(scan.records));
      if (disk::truncate(path(last.first_sequence), scan.good_bytes) != 0) {
        return Error{format("cannot cut the unfinished write off %s: %s", path(last.first_sequence).c_str(),
                            std::strerror(errno))};
      }
      total_bytes_ -= bad_bytes;
      last.bytes = scan.good_bytes;
    }
    if (last.bytes == 0) {
      disk::unlink(path(last.first_sequence));
      segments_.pop_back();
    } else if (options_.sync) {
      // The process may have ended between a write and its sync; what is replayed now is to be there next time too.
      UniqueFd file(disk::open(path(last.first_sequence), disk::Open::kRead));
      if (!file.valid() || disk::sync(file.get()) != 0)
        return Error{format("cannot sync %s: %s", path(last.first_sequence).c_str(), std::strerror(errno))};
    }
  }
  // Every start begins a segment of its own: nothing is written behind bytes of an earlier life. A log that is too long
  // is cut by the first append: until it has been replayed nobody can say what is needed.
  bytes_gauge_.store(static_cast<int64_t>(total_bytes_));
  return {};
}

Result<void> SegmentLog::replay(const std::function<void(uint64_t, RecordKind, int64_t, std::string_view)>& apply) {
  std::atomic<int64_t>& replayed = counters_.at("lockstep_log_records_replayed_total");
  uint64_t expected = segments_.empty() ? 0 : segments_.front().first_sequence;
  auto missing = [&](uint64_t until) {
    if (until > expected)
      counters_.add("lockstep_log_records_missing_total", "", static_cast<int64_t>(until - expected));
    expected = std::max(expected, until);
  };
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const bool is_last = i + 1 == segments_.size();
    const uint64_t next_segment = is_last ? next_sequence_ : segments_[i + 1].first_sequence;
    missing(segment.first_sequence);
    Result<std::string> content = read_file(path(segment.first_sequence), UINT64_MAX);
    Scan scan;
    if (content.ok()) {
      scan = scan_segment(*content, segment.first_sequence, next_segment, [&](const Record& record) {
        uint8_t kind = record.header.kind;
        if (kind >= static_cast<uint8_t>(RecordKind::kOtlpMetrics) &&
            kind <= static_cast<uint8_t>(RecordKind::kBusSpans)) {
          apply(record.header.sequence, static_cast<RecordKind>(kind), record.header.received_unix_ns, record.payload);
        }
        replayed.fetch_add(1, std::memory_order_relaxed);
      });
    }
    expected = std::max(expected, segment.first_sequence + scan.records);
    // What lies behind the last record before the next segment was refused, or cut off without the disk's knowing.
    const bool is_whole = !is_last && segment.first_sequence + scan.records == next_segment;
    if (!content.ok() || (scan.good_bytes < content->size() && !is_whole)) {
      counters_.add("lockstep_log_corrupt_segments_total");
      LOCKSTEP_LOG_ERROR(
          "log", "%s: %s at byte %llu; kept the %llu records before it and went on with the next segment",
          path(segment.first_sequence).c_str(),
          content.ok() ? "a record's checksum does not match" : content.error().c_str(),
          static_cast<unsigned long long>(scan.good_bytes), static_cast<unsigned long long>(scan.records));
    }
  }
  return {};
}

Result<uint64_t> SegmentLog::append(RecordKind kind, int64_t received_unix_ns, std::string_view payload) {
  return append_all({{AppendedRecord{kind, received_unix_ns, payload}}});
}

Result<uint64_t> SegmentLog::append_all(std::span<const AppendedRecord> entries) {
  uint64_t bytes = 0;
  for (const AppendedRecord& entry : entries) bytes += entry.payload.size();
  const auto count = static_cast<int64_t>(entries.size());
  if (bytes > kRecordBytesMax || entries.empty()) {
    received_.fetch_add(count, std::memory_order_relaxed);
    counters_.add("lockstep_log_records_refused_total", "reason=\"too_large\"", count);
    return Error{format("the log takes records up to %llu bytes; this one has %llu",
                        static_cast<unsigned long long>(kRecordBytesMax), static_cast<unsigned long long>(bytes))};
  }
  std::vector<Pending> own(entries.size());
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].header.magic = kMagic;
    own[i].header.payload_bytes = static_cast<uint32_t>(entries[i].payload.size());
    // Here, so that callers share the work; the leader adds only the sequence.
    own[i].header.payload_crc = crc32c(entries[i].payload);
    own[i].header.received_unix_ns = entries[i].received_unix_ns;
    own[i].header.kind = static_cast<uint8_t>(entries[i].kind);
    own[i].payload = entries[i].payload;
    own[i].with_next = i + 1 < own.size();
  }
  lead_or_wait(own);
  if (!own.back().error.empty()) {
    counters_.add("lockstep_log_records_refused_total", "reason=\"write_failed\"", count);
    return Error{own.back().error};
  }
  return own.front().header.sequence;
}

// Returns once they have been in a group.
void SegmentLog::lead_or_wait(std::span<Pending> own) {
  ReleasableMutexLock lock(mutex_);
  waiting_.reserve(waiting_.size() + own.size());  // all of them or none, where there is no memory
  for (Pending& pending : own) waiting_.push_back(&pending);
  received_.fetch_add(static_cast<int64_t>(own.size()), std::memory_order_relaxed);
  changed_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return own.back().done || !leader_busy_; });
  while (!own.back().done) {  // nobody writes: this caller leads, until its own records have been in a group
    std::vector<Pending*> group;
    const size_t waiting = waiting_.size();
    if (!contained("log", "gathering a group", [&] { group.reserve(waiting); })) {
      std::erase_if(waiting_, [&](const Pending* one) { return one >= &own.front() && one <= &own.back(); });
      changed_.notify_all();  // another leads
      for (Pending& pending : own) pending.error = kNoMemory;
      return;
    }
    leader_busy_ = true;
    uint64_t group_bytes = 0;
    for (Pending* pending : waiting_) {
      group_bytes += sizeof(RecordHeader) + pending->payload.size();
      if (!group.empty() && group_bytes > kGroupBytesMax && !group.back()->with_next) break;
      group.push_back(pending);
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(group.size()));
    uint64_t first_sequence = next_sequence_;
    lock.unlock();
    // Whatever is thrown, whoever waits has its answer and another may lead.
    Result<void> committed = Error{kNoMemory};
    contained("log", "writing a group", [&] { committed = commit(group, first_sequence); });
    lock.lock();
    if (committed.ok()) next_sequence_ += group.size();
    failure_ = committed.ok() ? "" : committed.error();
    failed_at_ = std::chrono::steady_clock::now();
    for (Pending* pending : group) {
      if (!committed.ok()) pending->error = committed.error();
      pending->done = true;
    }
    leader_busy_ = false;
    changed_.notify_all();
  }
}

Result<void> SegmentLog::commit(const std::vector<Pending*>& group, uint64_t first_sequence) {
  if (file_.valid() && segments_.back().bytes >= segment_bytes_max_) close_segment();
  if (!file_.valid()) {
    LOCKSTEP_TRY(open_segment(first_sequence));
  }
  uint64_t sequence = first_sequence;
  uint64_t bytes = 0;
  for (Pending* pending : group) {
    pending->header.sequence = sequence++;
    pending->header.header_crc = header_checksum(pending->header);
    bytes += sizeof(RecordHeader) + pending->payload.size();
  }
  Result<void> written = Error{kNoMemory};
  contained("log", "writing records", [&] { written = write_group(group); });
  const bool sync_failed = written.ok() && options_.sync && disk::sync(file_.get()) != 0;
  if (sync_failed) written = Error{std::strerror(errno)};
  if (!written.ok()) {
    Error error{
        format("cannot write to the log in %s: %s; nothing of this request was kept, try again when there is room",
               options_.folder.c_str(), written.error().c_str())};
    if (!take_back() || sync_failed) close_segment();
    return error;
  }
  segments_.back().bytes += bytes;
  total_bytes_ += bytes;
  appended_.fetch_add(static_cast<int64_t>(group.size()), std::memory_order_relaxed);
  appended_bytes_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  syncs_.fetch_add(1, std::memory_order_relaxed);
  // The group is on disk: what fails from here on is not the group's.
  if (total_bytes_ > options_.total_bytes_max && pins_.load() == 0)
    contained("log", "deleting old segments", [&] { drop_old_segments(); });
  bytes_gauge_.store(static_cast<int64_t>(total_bytes_), std::memory_order_relaxed);
  return {};
}

Result<void> SegmentLog::write_group(const std::vector<Pending*>& group) {
  constexpr size_t kPartsMax = 512;  // below IOV_MAX everywhere
  std::vector<iovec> parts;
  parts.reserve(std::min(group.size() * 2, kPartsMax));
  uint64_t offset = segments_.back().bytes;
  auto flush = [&]() -> Result<void> {
    size_t at = 0;
    while (at < parts.size()) {
      ssize_t put = disk::pwritev(file_.get(), std::span(parts).subspan(at), offset);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Error{std::strerror(errno)};
      size_t left = static_cast<size_t>(put);
      offset += left;
      while (at < parts.size() && left >= parts[at].iov_len) left -= parts[at++].iov_len;
      if (at < parts.size() && left > 0) {
        parts[at].iov_base = static_cast<char*>(parts[at].iov_base) + left;
        parts[at].iov_len -= left;
      }
    }
    parts.clear();
    return {};
  };
  for (Pending* pending : group) {
    parts.push_back({&pending->header, sizeof(RecordHeader)});
    if (!pending->payload.empty())
      parts.push_back({const_cast<char*>(pending->payload.data()), pending->payload.size()});
    if (parts.size() + 2 > kPartsMax) {
      LOCKSTEP_TRY(flush());
    }
  }
  return flush();
}

bool SegmentLog::take_back() {
  return disk::truncate(file_.get(), segments_.back().bytes) == 0 && (!options_.sync || disk::sync(file_.get()) == 0);
}

std::optional<std::string> SegmentLog::trouble() const {
  MutexLock lock(mutex_);
  if (failure_.empty() || std::chrono::steady_clock::now() - failed_at_ > kTroubleLasts) return std::nullopt;
  return failure_;
}

// What is being deleted is gone before it answers.
std::shared_ptr<void> SegmentLog::pin() {
  MutexLock lock(mutex_);
  changed_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return !leader_busy_; });
  pins_.fetch_add(1);
  return {&pins_, [](std::atomic<int>* pins) { pins->fetch_sub(1); }};
}

// As a leader that writes nothing: no segment is written, begun or dropped meanwhile.
Result<HeldLog> SegmentLog::hold(const std::string& folder) {
  ReleasableMutexLock lock(mutex_);
  changed_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return !leader_busy_; });
  leader_busy_ = true;
  HeldLog held;
  held.through_sequence = next_sequence_ - 1;
  lock.unlock();
  Result<void> done;
  for (const Segment& segment : segments_) {
    if (segment.bytes == 0) continue;
    const std::string from = path(segment.first_sequence);
    Result<HeldFile> file = hold_file(from, folder, from.substr(options_.folder.size() + 1));
    if (!file.ok()) {
      done = std::move(file).failure();
      break;
    }
    // What lies behind was refused and not cut off, or will be written while the copy is made.
    file->bytes = segment.bytes;
    file->grows = true;
    held.files.push_back(std::move(*file));
  }
  lock.lock();
  leader_busy_ = false;
  changed_.notify_all();
  LOCKSTEP_TRY(std::move(done));
  return held;
}

// As a leader that writes nothing.
template <typename Look>
void SegmentLog::with_segments(Look look) const {
  MutexLock lock(mutex_);
  changed_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return !leader_busy_; });
  look(next_sequence_);
}

Result<bool> SegmentLog::read_segment(const Segment& segment, uint64_t end_sequence, LogPosition& at,
                                      uint64_t bytes_max,
                                      const std::function<void(RecordKind, int64_t, std::string_view)>& visit) {
  // Where the position is of no use the segment is read from its beginning, and what was read of it is passed over.
  LogPosition here =
      at.segment == segment.first_sequence ? at : LogPosition{segment.first_sequence, segment.first_sequence};
  const UniqueFd file(disk::open(path(segment.first_sequence), disk::Open::kRead));
  if (!file.valid())
    return Error{format("cannot open %s: %s", path(segment.first_sequence).c_str(), std::strerror(errno))};
  uint64_t read_bytes = 0;
  std::string buffer;
  bool is_intact = true;
  while (here.sequence < end_sequence && read_bytes < bytes_max) {
    Record record;
    LOCKSTEP_TRY(read_one(file.get(), here.offset, segment.bytes, buffer, record));
    is_intact = record.header.magic == kMagic && record.header.sequence == here.sequence;
    if (!is_intact) break;
    const uint64_t bytes = sizeof(RecordHeader) + record.payload.size();
    const uint8_t kind = record.header.kind;
    const bool is_known = kind >= static_cast<uint8_t>(RecordKind::kOtlpMetrics) &&
                          kind <= static_cast<uint8_t>(RecordKind::kSpooledSpans);
    if (here.sequence >= at.sequence) {
      if (is_known) visit(static_cast<RecordKind>(kind), record.header.received_unix_ns, record.payload);
      read_bytes += bytes;
    }
    here.offset += bytes;
    ++here.sequence;
  }
  if (!is_intact) {
    counters_.add("lockstep_log_corrupt_segments_total");
    counters_.add("lockstep_log_records_missing_total", "", static_cast<int64_t>(end_sequence - here.sequence));
    LOCKSTEP_LOG_ERROR("log", "%s: a record's checksum does not match at byte %llu; %llu records are lost",
                       path(segment.first_sequence).c_str(), static_cast<unsigned long long>(here.offset),
                       static_cast<unsigned long long>(end_sequence - here.sequence));
    here = {.sequence = end_sequence};
  }
  at = here;
  return read_bytes > 0;
}

Result<void> SegmentLog::read_on(LogPosition& at, uint64_t bytes_max,
                                 const std::function<void(RecordKind, int64_t, std::string_view)>& visit) {
  for (;;) {
    Segment segment;
    uint64_t end_sequence = 0;  // the first that is not in it
    with_segments([&](uint64_t next_sequence) {
      if (segments_.empty()) return;
      const size_t i = segment_of(segments_, at);
      segment = segments_[i];
      end_sequence = i + 1 == segments_.size() ? next_sequence : segments_[i + 1].first_sequence;
    });
    if (at.sequence >= end_sequence) return {};  // nothing more
    const bool has_read = LOCKSTEP_TRY(read_segment(segment, end_sequence, at, bytes_max, visit));
    if (has_read) return {};
  }
}

void SegmentLog::drop_before(const LogPosition& at) {
  ReleasableMutexLock lock(mutex_);
  changed_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return !leader_busy_; });
  // All of it is done with: what comes begins another segment, and this one goes then.
  if (file_.valid() && at.sequence >= next_sequence_ && segments_.back().bytes >= segment_bytes_max_ / 2)
    close_segment();
  while (segments_.size() > 1 && segments_[1].first_sequence <= at.sequence) {
    const std::string oldest = path(segments_.front().first_sequence);
    if (disk::unlink(oldest) != 0 && errno != ENOENT) {
      LOCKSTEP_LOG_WARN("log", "cannot delete %s: %s", oldest.c_str(), std::strerror(errno));
      return;
    }
    total_bytes_ -= segments_.front().bytes;
    segments_.erase(segments_.begin());
  }
  bytes_gauge_.store(static_cast<int64_t>(total_bytes_), std::memory_order_relaxed);
}

uint64_t SegmentLog::bytes_from(const LogPosition& at) const {
  uint64_t bytes = 0;
  with_segments([&](uint64_t next_sequence) {
    if (at.sequence >= next_sequence) return;
    for (const Segment& segment : segments_) {
      if (segment.first_sequence >= at.sequence || segment.first_sequence == at.segment) bytes += segment.bytes;
      if (segment.first_sequence == at.segment) bytes -= std::min(bytes, at.offset);
    }
    if (at.segment == 0) bytes = total_bytes_;
  });
  return bytes;
}

Result<void> SegmentLog::open_segment(uint64_t first_sequence) {
  UniqueFd file(disk::open(path(first_sequence), disk::Open::kNew));
  if (!file.valid() && errno == EEXIST && disk::unlink(path(first_sequence)) == 0)  // of a group that was refused
    file = UniqueFd(disk::open(path(first_sequence), disk::Open::kNew));
  if (!file.valid())
    return Error{format("cannot create log segment %s: %s", path(first_sequence).c_str(), std::strerror(errno))};
  if (options_.sync) {
    if (Result<void> synced = sync_directory(options_.folder); !synced.ok()) {
      disk::unlink(path(first_sequence));
      return synced;
    }
  }
  file_ = std::move(file);
  segments_.push_back({first_sequence, 0});
  return {};
}

void SegmentLog::close_segment() {
  file_.reset();
  if (segments_.back().bytes == 0) {  // its name is free again for the next segment
    disk::unlink(path(segments_.back().first_sequence));
    segments_.pop_back();
  }
}

void SegmentLog::drop_old_segments() {
  uint64_t sealed = options_.sealed_through ? 0 : UINT64_MAX;
  bool reported = false;
  while (total_bytes_ > options_.total_bytes_max &&
         segments_.size() > 1) {  // the newest always stays: it knows the sequence
    const Segment& oldest = segments_.front();
    const uint64_t last = segments_[1].first_sequence - 1;
    if (sealed < last) sealed = options_.sealed_through();
    if (sealed < last && !reported && options_.seal) {
      reported = true;
      options_.seal();
      sealed = options_.sealed_through();
    }
    if (disk::unlink(path(oldest.first_sequence)) != 0 && errno != ENOENT) {
      LOCKSTEP_LOG_WARN("log", "cannot delete old segment %s: %s", path(oldest.first_sequence).c_str(),
                        std::strerror(errno));
      return;
    }
    counters_.add("lockstep_log_segments_dropped_total");
    if (sealed < last) {
      const uint64_t first = std::max(oldest.first_sequence, sealed + 1);
      counters_.add("lockstep_log_unsealed_records_dropped_total", "", static_cast<int64_t>(last - first + 1));
      LOCKSTEP_LOG_ERROR(
          "log",
          "records %llu to %llu deleted to stay within %llu bytes though the stores could not write them to "
          "files; a crash before they can loses them",
          static_cast<unsigned long long>(first), static_cast<unsigned long long>(last),
          static_cast<unsigned long long>(options_.total_bytes_max));
      if (options_.dropped_unsealed) options_.dropped_unsealed(first, last);
    }
    total_bytes_ -= oldest.bytes;
    segments_.erase(segments_.begin());
  }
}

}  // namespace

Result<uint64_t> DurableLog::append_all(std::span<const AppendedRecord>) {
  return Error{"this log takes one record at a time"};
}

Result<HeldLog> DurableLog::hold(const std::string&) {
  return Error{"this log cannot be held"};
}

Result<void> DurableLog::read_on(LogPosition&, uint64_t,
                                 const std::function<void(RecordKind, int64_t, std::string_view)>&) {
  return Error{"this log cannot be followed"};
}

void DurableLog::drop_before(const LogPosition&) {}

uint64_t DurableLog::bytes_from(const LogPosition&) const {
  return 0;
}

Result<std::unique_ptr<DurableLog>> DurableLog::open(LogOptions options, Counters& counters) {
  auto log = std::make_unique<SegmentLog>(std::move(options), counters);
  LOCKSTEP_TRY(log->recover());
  return std::unique_ptr<DurableLog>(std::move(log));
}

}  // namespace lockstep
