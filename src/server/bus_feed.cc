#include "server/bus_feed.h"

#include <algorithm>
#include <utility>

#include "base/contained.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "server/recovery.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr uint64_t kPositionsBytesMax = 4 << 20;
constexpr int64_t kSaveEveryNs = 1'000'000'000;
constexpr size_t kGivenUpMax = 1'000;
constexpr uint32_t kSpread = 0x9E3779B9;  // an odd number: topics that were made anew are other buses

}  // namespace

BusPositions BusPositions::read(const std::string& path, uint32_t cluster) {
  BusPositions positions;
  positions.cluster = cluster;
  const Result<std::string> text = read_file(path, kPositionsBytesMax);
  if (!text.ok()) return positions;
  std::vector<std::string_view> lines = split(*text, '\n');
  if (lines.front() != format("1 %u", cluster)) {
    LOCKSTEP_LOG_WARN("bus", "%s is of another bus, or cannot be read: begun anew", path.c_str());
    return positions;
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string_view> words = split(lines[i], ' ');
    if (words.size() != 4) continue;
    const auto kind = parse_int(words[0]), partition = parse_int(words[1]), offset = parse_int(words[2]),
               anew = parse_int(words[3]);
    if (!kind || *kind < 1 || *kind > 3 || !partition || !offset || *offset < 0 || !anew) continue;
    positions.places[{static_cast<int32_t>(*partition), static_cast<RecordKind>(*kind)}] = {
        *offset, static_cast<uint32_t>(*anew)};
  }
  return positions;
}

Result<void> BusPositions::write(const std::string& path) const {
  std::string text = format("1 %u\n", cluster);
  for (const auto& [place, at] : places) {
    text += format("%d %d %lld %u\n", static_cast<int>(place.kind), place.partition,
                   static_cast<long long>(at.next_offset), at.anew);
  }
  return write_file_atomically(path, text);
}

BusFeed::BusFeed(std::string data_folder, TenantCommon& common, Counters& counters)
    : BusFeed(std::move(data_folder), common, counters, Patience()) {}

BusFeed::BusFeed(std::string data_folder, TenantCommon& common, Counters& counters, Patience patience)
    : path_(std::move(data_folder) + "/bus_positions"),
      common_(common),
      counters_(counters),
      patience_(patience),
      memory_(&common.memory, MemoryUse::kQueue),
      log_(common.clock, "bus") {}

Result<void> BusFeed::start(const OpenReader& open, BusReaderOptions reader, BusTakers& takers) {
  takers_ = &takers;
  // Of a small budget a small part; the rest of what it promises is for what is applied.
  reader.buffer_bytes_max = std::min(kBufferBytes, common_.memory.bytes_max() / 16);
  if (!memory_.hold(reader.buffer_bytes_max)) return Error{"--memory-max leaves no room to read from the bus"};
  reader.start_at = [this](const BusPlace& place) -> std::optional<int64_t> {
    auto found = positions_.places.find(place);
    if (found == positions_.places.end()) return std::nullopt;
    return found->second.next_offset;
  };
  reader.anew = [this](const BusPlace& place) { ++positions_.places[place].anew; };
  reader.missing = [this](const BusPlace& place, int64_t records) {
    LOCKSTEP_LOG_ERROR("bus", "partition %d: %lld records were deleted before they were read; a gap is kept",
                       place.partition, static_cast<long long>(records));
    counters_.add("lockstep_bus_records_missing_total", "", records);
    missing_ += records;
  };
  reader_ = LOCKSTEP_TRY(open(std::move(reader)));
  positions_ = BusPositions::read(path_, reader_->cluster());
  open_reader_ = reader_.get();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  return {};
}

void BusFeed::stop() {
  if (!thread_.joinable()) return;
  thread_ = {};
  save(true);
}

bool BusFeed::owns(std::string_view job_id) const {
  MutexLock lock(mutex_);
  if (assignment_.partition_count == 0) return false;
  const int32_t partition = partition_of(job_id, assignment_.partition_count);
  return std::binary_search(assignment_.partitions.begin(), assignment_.partitions.end(), partition);
}

std::optional<std::string> BusFeed::problem() const {
  if (const BusReader* reader = open_reader_) {
    if (std::optional<std::string> line = reader->trouble()) return line;
  }
  MutexLock lock(mutex_);
  if (!stalled_.empty()) return stalled_;
  return std::nullopt;
}

// What was taken is not given again: whatever else fails, it is handed over.
void BusFeed::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<TakenRecord> records;
    const bool read = contained("bus", "reading", [&] { records = reader_->take(std::chrono::milliseconds(100)); });
    if (!read) std::this_thread::sleep_for(patience_.again);
    contained("bus", "a look at partitions", [&] { note_assignment(); });
    if (!hand_over(records, stop)) return;
    // Nothing more came, perhaps because no broker answers: what did come is looked at.
    if (records.empty() && common_.bus_is_behind && std::exchange(unlooked_, false))
      contained("bus", "a look at history", [&] { look_as_of(applied_unix_ns_); });
    contained("bus", "a look after reading", [&] { look_after(); });
  }
}

void BusFeed::look_after() {
  if (reader_->is_at_end() && common_.bus_is_behind) {
    common_.bus_is_behind = false;
    counters_.set("lockstep_bus_behind_ms", "", 0);
  }
  if (missing_ > 0) report_missing();
  save(false);
}

void BusFeed::note_assignment() {
  BusAssignment now = reader_->assignment();
  bool lost = false, gained = false;
  {
    MutexLock lock(mutex_);
    const std::vector<int32_t>& before = assignment_.partitions;
    lost = !std::includes(now.partitions.begin(), now.partitions.end(), before.begin(), before.end());
    gained = !std::includes(before.begin(), before.end(), now.partitions.begin(), now.partitions.end());
    if (now.partitions != before) looked_unix_ns_ = 0;  // history of what came begins before that of what was here
    assignment_ = std::move(now);
  }
  if (lost) takers_->let_go_of_jobs();
  if (!gained) return;
  common_.bus_is_behind = true;  // until the end of it is reached: what is not read of these yet is not over
  takers_->take_over_jobs();
}

// As recovery does: a quarter of a second of history at a time, and no more time on looking than on reading.
void BusFeed::look_before(int64_t received_unix_ns) {
  const int64_t age_ns = common_.clock.unix_ns() - received_unix_ns;
  applied_unix_ns_ = received_unix_ns;
  // At the end of the bus nothing is behind, whatever the gateways' clocks say.
  if (!common_.bus_is_behind && (age_ns < kBehindNs || reader_->is_at_end())) return;
  common_.bus_is_behind = true;
  counters_.set("lockstep_bus_behind_ms", "", std::max<int64_t>(age_ns, 0) / 1'000'000);
  unlooked_ = true;
  if (received_unix_ns - looked_unix_ns_ < kLookEveryNs || common_.clock.monotonic_ns() - looked_ns_ < look_cost_ns_)
    return;
  look_as_of(received_unix_ns);
}

void BusFeed::look_as_of(int64_t unix_ns) {
  const int64_t began_ns = common_.clock.monotonic_ns();
  takers_->look_as_of(unix_ns);
  looked_unix_ns_ = unix_ns;
  looked_ns_ = common_.clock.monotonic_ns();
  look_cost_ns_ = looked_ns_ - began_ns;
}

bool BusFeed::hand_over(std::span<TakenRecord> records, const std::stop_token& stop) {
  for (TakenRecord& record : records) {
    if (auto found = positions_.places.find(record.place); found != positions_.places.end())
      record.cluster += found->second.anew * kSpread;
  }
  for (size_t first = 0; first < records.size();) {
    size_t end = first + 1;
    while (end < records.size() && records[end].tenant == records[first].tenant) ++end;
    if (!hand_run(records.subspan(first, end - first), stop)) return false;
    first = end;
  }
  return true;
}

// One that does not open is waited for once in a while: the others' records stand behind it.
BusTaker* BusFeed::taker_of(const std::string& name, const std::stop_token& stop) {
  using std::chrono::steady_clock;
  auto given_up = given_up_.find(name);
  const auto until = steady_clock::now() + patience_.tenant;
  for (;;) {
    BusTakers::Found found{.line = "it failed while it was looked for"};
    contained("bus", "finding a tenant", [&] { found = takers_->find_for_bus(name); });
    if (found.taker != nullptr && given_up != given_up_.end()) given_up_.erase(given_up);
    if (found.is_none)
      log_.warn("tenant", format("tenant \"%s\": %s; its records are refused", as_one_line(name.substr(0, 100)).c_str(),
                                 found.line.c_str()));
    if (found.taker != nullptr || found.is_none || stop.stop_requested()) return found.taker;
    if (given_up != given_up_.end() && steady_clock::now() < given_up->second) return nullptr;
    if (steady_clock::now() > until) {
      LOCKSTEP_LOG_ERROR("bus", "tenant %s: %s; its records are refused", name.c_str(), found.line.c_str());
      if (given_up_.size() >= kGivenUpMax) given_up_.clear();
      given_up_[name] = steady_clock::now() + 10 * patience_.tenant;
      return nullptr;
    }
    std::this_thread::sleep_for(patience_.again);
  }
}

// A position that is behind costs nothing but reading again.
void BusFeed::done_with(std::span<const TakenRecord> records) {
  contained("bus", "noting what was read", [&] {
    for (const TakenRecord& record : records) positions_.places[record.place].next_offset = record.offset + 1;
  });
  positions_changed_ |= !records.empty();
}

void BusFeed::pass_over(std::span<const TakenRecord> records, const char* reason) {
  contained("bus", "counting what is refused", [&] {
    counters_.add("lockstep_bus_records_refused_total", format("reason=\"%s\"", reason),
                  static_cast<int64_t>(records.size()));
  });
  done_with(records);
}

// Records of one tenant.
bool BusFeed::hand_run(std::span<const TakenRecord> records, const std::stop_token& stop) {
  BusTaker* const taker = taker_of(records.front().tenant, stop);
  if (taker == nullptr && stop.stop_requested()) return false;
  if (taker == nullptr) {
    pass_over(records, "tenant");
    return true;
  }
  size_t at_once = records.size();
  Trouble trouble;
  while (!records.empty()) {
    DurableSink::FromBus taken;
    const bool failed = !contained("bus", "taking records", [&] {
      taken = taker->take(records.first(std::min(at_once, records.size())), counters_,
                          [this](int64_t time_ns) { look_before(time_ns); });
    });
    done_with(records.first(taken.done));
    records = records.subspan(taken.done);
    if (taken.done > 0) trouble = {};
    // Which of them it is that fails shows when each is handed over by itself.
    const bool by_itself = !failed || std::exchange(at_once, 1) == 1;
    const char* why = gives_up(trouble, failed && by_itself, taken.no_memory);
    if (why != nullptr) {
      LOCKSTEP_LOG_ERROR("bus", "partition %d, offset %lld: %s; it is passed over", records.front().place.partition,
                         static_cast<long long>(records.front().offset),
                         failed ? "it fails again and again" : taken.line.c_str());
      pass_over(records.first(1), why);
      records = records.subspan(1);
      trouble = {};
    }
    {
      MutexLock lock(mutex_);
      stalled_ = why != nullptr ? std::string() : std::move(taken.line);
    }
    if (taken.done > 0 || why != nullptr) continue;
    if (stop.stop_requested()) return false;
    std::this_thread::sleep_for(patience_.again);
  }
  return true;
}

const char* BusFeed::gives_up(Trouble& trouble, bool failed, bool no_memory) const {
  if (failed && ++trouble.failures == kFailuresMax) return "failed";
  if (!no_memory) return nullptr;
  const auto now = std::chrono::steady_clock::now();
  if (!trouble.no_memory_since) trouble.no_memory_since = now;
  return now - *trouble.no_memory_since > patience_.record ? "memory" : nullptr;
}

void BusFeed::save(bool now) {
  const int64_t now_ns = common_.clock.monotonic_ns();
  if (!positions_changed_ || (!now && now_ns - saved_ns_ < kSaveEveryNs)) return;
  saved_ns_ = now_ns;
  if (Result<void> written = positions_.write(path_); !written.ok()) {
    LOCKSTEP_LOG_WARN("bus", "%s", written.error().c_str());  // after a crash more is read again
    return;
  }
  positions_changed_ = false;
  std::map<BusPlace, int64_t> next;
  for (const auto& [place, at] : positions_.places) next[place] = at.next_offset;
  reader_->applied(next);
}

// Whose they were nobody knows any more: the operator is told.
void BusFeed::report_missing() {
  BusTaker* taker = takers_->find_for_bus("").taker;
  if (taker == nullptr) return;
  Batch batch;
  batch.signal = Signal::kLogs;
  ResourceGroup& group = batch.groups.emplace_back();
  group.resource = {{"service.name", "lockstepd"}};
  group.logs.push_back(to_record(Gap{"bus_retention", missing_}, common_.clock.unix_ns()));
  if (taker->keep(std::move(batch))) missing_ = 0;
}

}  // namespace lockstep
