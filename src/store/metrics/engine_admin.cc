// What an operator asks of MetricEngine: deleting samples (tombstones, until a merge has left them out) and copies of
// all blocks there are.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/crc32c.h"
#include "base/disk.h"
#include "base/format_versions.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "store/columns/byte_codec.h"
#include "store/metrics/metric_engine.h"

namespace lockstep {

using namespace metrics;

namespace {

constexpr uint64_t kTombstoneBytesMax = 64u << 20;

}  // namespace

Result<void> MetricEngine::remove(std::span<const LabelMatcher> matchers, int64_t from_ms, int64_t to_ms) {
  LOCKSTEP_TRY(compile_matchers(matchers));
  auto too_many = [&](size_t have) -> Result<void> {
    if (have < options_.tombstones_max) return {};
    return refuse_admin("deletion", "limit",
                        format("metrics not deleted: %zu deletions are not merged away yet (limit %zu); POST "
                               ".../admin/tsdb/clean_tombstones first",
                               have, options_.tombstones_max));
  };
  {  // before a block is made for nothing
    SharedLock lock(mutex_);
    LOCKSTEP_TRY(too_many(tombstones_.size()));
  }
  // Everything that is there becomes a block first, so that the tombstone is about blocks alone.
  LOCKSTEP_TRY(seal());
  MutexLock work(work_mutex_);
  std::vector<Tombstone> list;
  {
    SharedLock lock(mutex_);
    list = tombstones_;
  }
  LOCKSTEP_TRY(too_many(list.size()));
  list.push_back({{matchers.begin(), matchers.end()}, from_ms, to_ms, next_block_ - 1});
  return save_tombstones(list);
}

Error MetricEngine::refuse_admin(const char* what, const char* reason, const std::string& line) const {
  counters_.add("lockstep_metric_admin_refused_total", format("what=\"%s\",reason=\"%s\"", what, reason));
  LOCKSTEP_LOG_WARN("metrics", "%s", line.c_str());
  return Error{line};
}

// A copy takes no room as long as the engine has the same blocks: it may come to take all of theirs.
Result<void> MetricEngine::has_room_for_snapshot() const {
  const std::string folder = options_.folder + "/snapshots";
  std::error_code failed;
  size_t copies = 0;
  uint64_t bytes = 0;
  std::set<std::string> seen;  // the same block in several copies is there once
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    ++copies;
    std::error_code ignored;
    for (std::filesystem::directory_iterator block(at->path() / "blocks", ignored); !ignored && block != end;
         block.increment(ignored)) {
      if (!seen.insert(block->path().filename().string()).second) continue;
      const uint64_t size = block->file_size(ignored);
      if (!ignored) bytes += size;
    }
  }
  if (copies >= options_.snapshots_max)
    return refuse_admin("snapshot", "limit",
                        format("metrics not copied: %s holds %zu copies (limit %zu); delete one there", folder.c_str(),
                               copies, options_.snapshots_max));
  uint64_t more = 0;
  for (const auto& block : *blocks()) more += seen.contains(block->info().name()) ? 0 : block->bytes();
  auto human = [](uint64_t count) { return human_bytes(static_cast<double>(count)); };
  if (bytes + more > options_.snapshot_bytes_max)
    return refuse_admin(
        "snapshot", "bytes",
        format("metrics not copied: with this one copies in %s would take %s (limit %s); delete one there",
               folder.c_str(), human(bytes + more).c_str(), human(options_.snapshot_bytes_max).c_str()));
  const std::filesystem::space_info disk = std::filesystem::space(options_.folder, failed);
  if (!failed && disk.available < disk_bytes())
    return refuse_admin("snapshot", "disk",
                        format("metrics not copied: a copy may come to take %s and the disk has %s free",
                               human(disk_bytes()).c_str(), human(disk.available).c_str()));
  return {};
}

Result<void> MetricEngine::clean() {
  MutexLock work(work_mutex_);
  std::vector<Tombstone> tombstones;
  {
    SharedLock lock(mutex_);
    tombstones = tombstones_;
  }
  const std::shared_ptr<const Blocks> list = blocks();
  for (uint32_t tier = 0; tier < kTiers; ++tier) {
    // Of two samples of the same time the one in the block of the higher number is shown: what overlaps a block that
    // gets a new number gets one too.
    Blocks rewritten;
    for (const auto& block : *list) {
      const BlockInfo& info = block->info();
      if (info.tier != tier) continue;
      const auto meets = [&](int64_t from_ms, int64_t to_ms) {
        return info.first_ms <= to_ms && info.last_ms >= from_ms;
      };
      const bool is_due = std::any_of(tombstones.begin(), tombstones.end(), [&](const Tombstone& one) {
        return info.number <= one.block_number_max && meets(one.from_ms, one.to_ms);
      });
      const bool overlaps = std::any_of(rewritten.begin(), rewritten.end(), [&](const auto& other) {
        return meets(other->info().first_ms, other->info().last_ms);
      });
      if (!is_due && !overlaps) continue;
      LOCKSTEP_TRY(merge_these(tier, {block}, info.level, false));
      rewritten.push_back(block);
    }
  }
  // Blocks that are left have nothing of what was deleted.
  return save_tombstones({});
}

Result<std::string> MetricEngine::snapshot() {
  LOCKSTEP_TRY(has_room_for_snapshot());
  LOCKSTEP_TRY(seal());
  MutexLock work(work_mutex_);  // no block goes meanwhile, and no other copy is made
  LOCKSTEP_TRY(has_room_for_snapshot());
  const std::string time = utc_time(clock_.unix_ns() / 1'000'000, "%Y%m%dT%H%M%SZ");
  const std::string name = format("%s-%llu", time.c_str(), static_cast<unsigned long long>(next_block_++));
  const std::string folder = options_.folder + "/snapshots/" + name;
  Result<void> done = make_directories(folder + "/blocks");
  for (const auto& block : *blocks()) {
    const std::string to = folder + "/blocks/" + block->info().name();
    if (done.ok() && disk::link(block->path(), to) != 0) done = Error{to + ": " + std::strerror(errno)};
  }
  if (done.ok() && disk::exists(options_.folder + "/tombstones")) {
    Result<std::string> tombstones = read_file(options_.folder + "/tombstones", kTombstoneBytesMax);
    done = tombstones.ok() ? write_file_atomically(folder + "/tombstones", *tombstones) : tombstones.failure();
  }
  if (done.ok()) done = sync_directory(folder + "/blocks");
  if (done.ok()) done = sync_directory(folder);
  if (done.ok()) return name;
  for (const std::string& part : {folder + "/blocks", folder}) {
    if (Result<std::vector<std::string>> names = list_directory(part); names.ok()) {
      for (const std::string& left : *names) disk::unlink(part + "/" + left);
    }
    disk::remove_folder(part);
  }
  return done.failure();
}

// A seal makes blocks of all that is pushed, and a generation of the log that begins with the series; of the log that
// beginning is enough.
Result<std::vector<HeldFile>> MetricEngine::hold(const std::string& folder) {
  LOCKSTEP_TRY(seal());
  MutexLock work(work_mutex_);  // no block, deletion or generation comes or goes meanwhile
  for (const char* part : {"/blocks", "/log"}) LOCKSTEP_TRY(make_directories(folder + part));
  std::vector<HeldFile> held;
  auto take = [&](const std::string& path, const std::string& name) -> Result<void> {
    HeldFile file = LOCKSTEP_TRY(hold_file(path, folder, name));
    held.push_back(std::move(file));
    return {};
  };
  for (const auto& block : *blocks()) LOCKSTEP_TRY(take(block->path(), "blocks/" + block->info().name()));
  if (const std::string path = options_.folder + "/tombstones"; disk::exists(path))
    LOCKSTEP_TRY(take(path, "tombstones"));
  std::vector<std::string> names = LOCKSTEP_TRY(list_directory(log_folder()));
  for (const std::string& name : names) {
    WalFileName file;
    if (!WalFileName::parse(name, file) || file.segment == 0) {
      if (!name.ends_with(".tmp")) LOCKSTEP_TRY(take(log_folder() + "/" + name, "log/" + name));
    }
  }
  return held;
}

Result<void> MetricEngine::save_tombstones(const std::vector<Tombstone>& list) {
  std::string bytes(formats::kTombstones.magic);
  columns::put_fixed(bytes, formats::kTombstones.version);
  columns::put_varint(bytes, list.size());
  for (const Tombstone& one : list) {
    columns::put_varint(bytes, one.block_number_max);
    columns::put_signed(bytes, one.from_ms);
    columns::put_signed(bytes, one.to_ms);
    columns::put_varint(bytes, one.matchers.size());
    for (const LabelMatcher& matcher : one.matchers) {
      bytes.push_back(static_cast<char>(matcher.op));
      columns::put_bytes(bytes, matcher.name);
      columns::put_bytes(bytes, matcher.value);
    }
  }
  columns::put_fixed(bytes, crc32c(bytes));
  if (bytes.size() > kTombstoneBytesMax)
    return refuse_admin("deletion", "bytes",
                        format("metrics not deleted: the list of deletions would have %zu bytes (limit %llu); POST "
                               ".../admin/tsdb/clean_tombstones first",
                               bytes.size(), static_cast<unsigned long long>(kTombstoneBytesMax)));
  LOCKSTEP_TRY(write_file_atomically(options_.folder + "/tombstones", bytes));
  MutexLock lock(mutex_);
  tombstones_ = list;
  return {};
}

Result<void> MetricEngine::load_tombstones() {
  const std::string path = options_.folder + "/tombstones";
  if (!disk::exists(path)) return {};
  LOCKSTEP_TRY(formats::check_file(formats::kTombstones, path));
  std::string bytes = LOCKSTEP_TRY(read_file(path, kTombstoneBytesMax));
  auto corrupt = [&] {
    damage("block", path + ": cannot be read; samples that were deleted and not yet merged away are seen again");
    return Result<void>{};
  };
  if (bytes.size() < 4) return corrupt();
  // Version 1 had no head.
  const bool has_head = formats::read_head(formats::kTombstones, bytes).found == formats::Found::kKnown;
  const size_t head_bytes = has_head ? formats::kTombstones.magic.size() + sizeof(uint32_t) : 0;
  if (bytes.size() < head_bytes + 4) return corrupt();
  columns::ByteReader in(std::string_view(bytes).substr(head_bytes, bytes.size() - 4 - head_bytes));
  columns::ByteReader end(std::string_view(bytes).substr(bytes.size() - 4));
  if (crc32c(std::string_view(bytes).substr(0, bytes.size() - 4)) != end.fixed<uint32_t>()) return corrupt();
  std::vector<Tombstone> list(in.count());
  for (Tombstone& one : list) {
    one.block_number_max = in.varint();
    one.from_ms = in.signed_varint();
    one.to_ms = in.signed_varint();
    one.matchers.resize(in.count(3));
    for (LabelMatcher& matcher : one.matchers) {
      matcher.op = static_cast<LabelMatcher::Op>(in.fixed<uint8_t>() & 3);
      matcher.name = in.bytes();
      matcher.value = in.bytes();
    }
  }
  if (!in.ok()) return corrupt();
  MutexLock lock(mutex_);
  tombstones_ = std::move(list);
  return {};
}

}  // namespace lockstep
