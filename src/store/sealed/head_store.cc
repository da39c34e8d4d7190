#include "store/sealed/head_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"

namespace lockstep::sealed {
namespace {
// Many small requests are joined now and then, so that a head of single rows does not become a head of small tables.
constexpr size_t kSmallPartRows = 256;
constexpr size_t kSmallPartsMax = 32;
}  // namespace

HeadStore::HeadStore(const StoreKind& kind, FileOptions files, HeadOptions head, const Clock& clock, Counters& counters)
    : FileStore(kind, std::move(files), clock, counters), head_options_(head) {}

bool HeadStore::add(Part part, uint64_t log_sequence, int64_t received_unix_ns) {
  if (part.rows > 0) {
    part.origin.first_sequence = part.origin.last_sequence = log_sequence;
    part.origin.received_unix_ns.add(received_unix_ns);
    if (head_rows_ == 0) head_since_ns_ = clock_.monotonic_ns();
    head_rows_ += part.rows;
    head_bytes_ += part.bytes;
    head_.push_back(std::move(part));
    join_small_parts();
    drop_over_limit();
  }
  report_sizes();
  return is_full();
}

void HeadStore::join_small_parts() {
  size_t small = 0;
  while (head_.size() - small > parts_in_seal_ && head_[head_.size() - 1 - small].rows < kSmallPartRows) ++small;
  if (small < kSmallPartsMax) return;
  const auto first = head_.end() - static_cast<ptrdiff_t>(small);
  const std::vector<Part> parts(first, head_.end());
  Part joined = join_parts(parts);
  for (const Part& part : parts) {
    joined.origin.add(part.origin);
    head_bytes_ -= part.bytes;
  }
  head_bytes_ += joined.bytes;
  head_.erase(first, head_.end());
  head_.push_back(std::move(joined));
}

void HeadStore::drop_over_limit() {
  while (head_bytes_ > head_options_.unsealed_bytes_max && head_.size() > parts_in_seal_ + 1) {
    const auto oldest = head_.begin() + static_cast<ptrdiff_t>(parts_in_seal_);
    count_dropped("unsealed", oldest->rows);
    head_rows_ -= oldest->rows;
    head_bytes_ -= oldest->bytes;
    head_.erase(oldest);
  }
}

void HeadStore::report_sizes() {
  rows_.store(static_cast<int64_t>(head_rows_ + file_rows_), std::memory_order_relaxed);
  counters_.set("lockstep_store_bytes", kind_.table, static_cast<int64_t>(head_bytes_ + other_bytes()));
}

bool HeadStore::holds(uint64_t log_sequence, int64_t received_unix_ns) const {
  SharedLock lock(mutex_);
  bool is_before_some = false;
  for (const FilePointer& file : *files_) {
    const FileInfo& info = file->info();
    // A log that was made anew counts from one again: the time tells its records from those of the old one.
    if (info.last_sequence == 0 || received_unix_ns > info.received_unix_ns.most) continue;
    if (log_sequence >= info.first_sequence && log_sequence <= info.last_sequence) return true;
    is_before_some |= log_sequence < info.first_sequence;
  }
  // Older than what is held: dropped since, unless it was in a file that cannot be read.
  return is_before_some && !lost_.has(log_sequence);
}

uint64_t HeadStore::first_unsealed() const {
  SharedLock lock(mutex_);
  uint64_t first = UINT64_MAX;
  for (const Part& part : head_) {
    if (part.origin.first_sequence != 0) first = std::min(first, part.origin.first_sequence);
  }
  return first;
}

bool HeadStore::is_full() const {
  return head_rows_ >= head_options_.rows_max || head_bytes_ >= head_options_.bytes_max;
}

bool HeadStore::seal_is_due() const {
  SharedLock lock(mutex_);
  return head_rows_ > 0 && (is_full() || clock_.monotonic_ns() - head_since_ns_ >= head_options_.age_max_ns);
}

Result<bool> HeadStore::seal_some(Which) {
  MutexLock one_at_a_time(seal_mutex_);
  std::vector<Part> parts;
  FileInfo info;
  size_t rows = 0, bytes = 0;
  {
    MutexLock lock(mutex_);
    for (const Part& part : head_) {
      if (rows > 0 &&
          (rows + part.rows > head_options_.file_rows_max || bytes + part.bytes > 2 * head_options_.bytes_max))
        break;
      rows += part.rows;
      bytes += part.bytes;
      info.add(part.origin);
      parts.push_back(part);
    }
    parts_in_seal_ = parts.size();
  }
  if (parts.empty()) return false;
  info.number = next_number_++;
  const Result<FilePointer> file = write_file(parts, info);

  MutexLock lock(mutex_);
  parts_in_seal_ = 0;
  if (!file.ok()) {
    counters_.add(kind_.failed_counter);
    drop_over_limit();
    report_sizes();
    return file.failure();
  }
  head_.erase(head_.begin(), head_.begin() + static_cast<ptrdiff_t>(parts.size()));
  head_rows_ -= rows;
  head_bytes_ -= bytes;
  head_since_ns_ = clock_.monotonic_ns();
  on_sealed();
  add_file(*file);
  return true;
}

SealWork HeadStore::work() {
  SealWork work = FileStore::work();
  work.is_due = [this] { return seal_is_due(); };
  work.limit = [this] { return human_bytes(static_cast<double>(head_options_.unsealed_bytes_max)); };
  return work;
}

FileInfo HeadStore::joined_info(const Files& files, uint64_t number) {
  FileInfo info;
  info.number = number;
  for (const FilePointer& file : files) info.add_replaced(file->info());
  return info;
}

}  // namespace lockstep::sealed
