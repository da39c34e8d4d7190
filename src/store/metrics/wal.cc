#include "store/metrics/wal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/disk.h"
#include "base/format_versions.h"
#include "base/text.h"
#include "store/columns/byte_codec.h"

namespace lockstep::metrics {
namespace {

constexpr std::string_view kMagic = formats::kMetricLog.magic;
constexpr uint32_t kVersion = formats::kMetricLog.version;
constexpr size_t kHeadBytes = 16;
constexpr uint64_t kFileBytesMax = 4ull << 30;

std::string file_head() {
  std::string head(kMagic);
  columns::put_fixed(head, kVersion);
  columns::put_fixed(head, uint32_t{0});
  return head;
}

void put_record(std::string& out, std::string_view payload) {
  columns::put_fixed(out, static_cast<uint32_t>(payload.size()));
  columns::put_fixed(out, crc32c(payload));
  out.append(payload);
}

}  // namespace

std::string WalFileName::text() const {
  if (segment == 0) return format("shard-%02u-gen-%08llu.snap", shard, static_cast<unsigned long long>(generation));
  return format("shard-%02u-gen-%08llu-seg-%06llu.wal", shard, static_cast<unsigned long long>(generation),
                static_cast<unsigned long long>(segment));
}

bool WalFileName::parse(std::string_view name, WalFileName& to) {
  auto number = [&](std::string_view before, uint64_t& value) {
    if (!name.starts_with(before)) return false;
    name.remove_prefix(before.size());
    const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    std::optional<uint64_t> parsed = parse_uint(name.substr(0, digits));
    if (!parsed) return false;
    value = *parsed;
    name.remove_prefix(digits);
    return true;
  };
  uint64_t shard = 0;
  to = {};
  if (!number("shard-", shard) || shard > 63 || !number("-gen-", to.generation)) return false;
  to.shard = static_cast<uint32_t>(shard);
  if (name == ".snap") return true;
  return number("-seg-", to.segment) && to.segment > 0 && name == ".wal";
}

Wal::Wal(std::string folder, uint32_t shard, uint64_t generation, uint64_t segment_bytes_max)
    : folder_(std::move(folder)),
      shard_(shard),
      segment_bytes_max_(segment_bytes_max),
      current_{shard, generation, 1} {}

uint64_t Wal::begin_record() {
  MutexLock lock(mutex_);
  if (current_bytes_ >= segment_bytes_max_) {
    ++current_.segment;
    current_bytes_ = 0;
    ++epoch_;
  }
  return epoch_;
}

uint64_t Wal::append(std::string_view payload) {
  MutexLock lock(mutex_);
  if (pending_.empty() || !(pending_.back().name == current_)) pending_.push_back({current_, {}});
  put_record(pending_.back().bytes, payload);
  current_bytes_ += payload.size() + 8;
  appended_ += payload.size() + 8;
  return appended_;
}

void Wal::begin_generation(uint64_t generation) {
  MutexLock lock(mutex_);
  current_ = {shard_, generation, 1};
  current_bytes_ = 0;
  generation_start_ = appended_;
  ++epoch_;
}

void Wal::restated(uint64_t generation) {
  MutexLock lock(mutex_);
  done_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return !writing_; });
  std::erase_if(pending_, [&](const Part& part) { return part.name.generation < generation; });
  written_ = std::max(written_, generation_start_);
  synced_ = std::max(synced_, generation_start_);
  if (file_name_.generation < generation) {
    file_.reset();
    corrupt_ = false;
  }
  if (!corrupt_) failure_.clear();
  done_.notify_all();
}

bool Wal::is_corrupt() const {
  MutexLock lock(mutex_);
  return corrupt_;
}

std::string Wal::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

uint64_t Wal::bytes_appended() const {
  MutexLock lock(mutex_);
  return appended_;
}

Result<void> Wal::commit(uint64_t end, Ack ack) {
  if (ack == Ack::kMemory) return {};
  MutexLock lock(mutex_);
  while ((ack == Ack::kWritten ? written_ : synced_) < end) {
    if (writing_) {
      done_.wait(mutex_);
      continue;
    }
    LOCKSTEP_TRY(write_out(ack == Ack::kFsynced));
  }
  return {};
}

Result<void> Wal::flush(bool sync) {
  MutexLock lock(mutex_);
  const uint64_t end = appended_;
  while ((sync ? synced_ : written_) < end) {
    if (writing_) {
      done_.wait(mutex_);
      continue;
    }
    LOCKSTEP_TRY(write_out(sync));
  }
  return {};
}

// Whoever comes first writes for all that wait.
Result<void> Wal::write_out(bool sync) {
  if (corrupt_) return Error{failure_};
  writing_ = true;
  std::vector<Part> parts;
  parts.swap(pending_);
  const uint64_t end = appended_;
  mutex_.unlock();
  Result<void> outcome;
  size_t done = 0;
  for (; done < parts.size() && outcome.ok(); ++done) {
    outcome = write_part(parts[done]);
    if (!outcome.ok()) break;
  }
  if (outcome.ok() && sync) outcome = sync_file();
  mutex_.lock();
  writing_ = false;
  corrupt_ = std::exchange(sync_failed_, false);
  if (outcome.ok()) {
    written_ = end;
    if (sync) synced_ = end;
    failure_.clear();
  } else {
    failure_ = outcome.error();
    parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(std::min(done, parts.size())));
    // What came meanwhile goes behind; two parts of one segment stay two, which is the same file. Of a corrupt log
    // nothing is written again: restated() takes it away.
    for (Part& part : pending_) parts.push_back(std::move(part));
    pending_ = std::move(parts);
  }
  done_.notify_all();
  return outcome;
}

Error Wal::failed(const char* what, const WalFileName& name) const {
  return Error{format("metrics log %s/%s: %s: %s", folder_.c_str(), name.text().c_str(), what, std::strerror(errno))};
}

Result<void> Wal::sync_file() {
  if (!file_.valid() || disk::sync(file_.get()) == 0) return {};
  Error error = failed("sync", file_name_);
  file_.reset();
  sync_failed_ = true;
  return error;
}

Result<void> Wal::write_part(const Part& part) {
  if (!file_.valid() || !(file_name_ == part.name)) {
    LOCKSTEP_TRY(sync_file());
    file_.reset();
    const std::string path = folder_ + "/" + part.name.text();
    UniqueFd file(disk::open(path, disk::Open::kWrite));
    if (!file.valid()) return failed("open", part.name);
    const std::string head = file_head();
    if (disk::truncate(file.get(), 0) != 0 || disk::pwrite(file.get(), head, 0) != kHeadBytes) {
      const int error = errno;
      disk::unlink(path);
      errno = error == 0 ? ENOSPC : error;
      return failed("start", part.name);
    }
    if (Result<void> synced = sync_directory(folder_); !synced.ok()) {
      disk::unlink(path);  // the name is made anew, so that the next sync is about it
      return synced;
    }
    file_ = std::move(file);
    file_name_ = part.name;
    file_bytes_ = kHeadBytes;
  }
  size_t done = 0;
  while (done < part.bytes.size()) {
    const ssize_t put = disk::pwrite(file_.get(), std::string_view(part.bytes).substr(done), file_bytes_ + done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      const int error = put == 0 ? ENOSPC : errno;
      (void)!disk::truncate(file_.get(), file_bytes_);  // all of it is written again later
      errno = error;
      return failed("write", part.name);
    }
    done += static_cast<size_t>(put);
  }
  file_bytes_ += part.bytes.size();
  return {};
}

Result<void> write_wal_file(const std::string& path, const std::vector<std::string>& records) {
  std::string content = file_head();
  for (const std::string& record : records) put_record(content, record);
  return write_file_atomically(path, content);
}

WalReadOutcome read_wal_bytes(std::string_view bytes, const std::function<bool(std::string_view)>& each) {
  WalReadOutcome outcome;
  columns::ByteReader in(bytes);
  if (bytes.size() < kHeadBytes) {
    outcome.torn = true;
    return outcome;
  }
  if (bytes.find_first_not_of('\0') == std::string_view::npos) {  // a crash before anything of it was written
    outcome.torn = true;
    return outcome;
  }
  const std::string_view magic = in.raw(kMagic.size());
  const uint32_t version = in.fixed<uint32_t>();
  in.fixed<uint32_t>();
  if (magic != kMagic || version != kVersion) {
    outcome.damage =
        magic != kMagic ? "not a metrics log" : format("format version %u, this program reads %u", version, kVersion);
    return outcome;
  }
  outcome.bytes_good = kHeadBytes;
  while (!in.at_end()) {
    const size_t left = in.left();
    const uint32_t size = in.fixed<uint32_t>();
    const uint32_t crc = in.fixed<uint32_t>();
    if (!in.ok() || size > in.left() || size > kWalRecordBytesMax) {
      outcome.torn = true;
      return outcome;
    }
    if (size == 0) {  // no record is empty; zeros are what a crash leaves of pages that were not written
      outcome.torn = bytes.find_first_not_of('\0', bytes.size() - left) == std::string_view::npos;
      if (!outcome.torn) outcome.damage = format("nothing was written at byte %zu", bytes.size() - left);
      return outcome;
    }
    const std::string_view payload = in.raw(size);
    if (crc32c(payload) != crc) {
      // The last record of a file whose end did not reach the disk looks like this too.
      if (in.at_end()) {
        outcome.torn = true;
      } else {
        outcome.damage = format("record at byte %zu has a wrong checksum", bytes.size() - left);
      }
      return outcome;
    }
    if (!each(payload)) {
      outcome.damage = format("record at byte %zu cannot be understood", bytes.size() - left);
      return outcome;
    }
    ++outcome.records;
    outcome.bytes_good = bytes.size() - in.left();
  }
  return outcome;
}

Result<WalReadOutcome> read_wal_file(const std::string& path, const std::function<bool(std::string_view)>& each) {
  std::string bytes = LOCKSTEP_TRY(read_file(path, kFileBytesMax));
  return read_wal_bytes(bytes, each);
}

}  // namespace lockstep::metrics
