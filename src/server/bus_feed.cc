#include "server/bus_feed.h"

#include <algorithm>

#include "access/role.h"
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
constexpr auto kTryAgain = std::chrono::milliseconds(100);
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
    : path_(std::move(data_folder) + "/bus_positions"),
      common_(common),
      counters_(counters),
      memory_(&common.memory, MemoryUse::kQueue) {}

Result<void> BusFeed::start(const BusOptions& bus, BusReaderOptions reader, Tenants& tenants) {
  tenants_ = &tenants;
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
  reader_ = LOCKSTEP_TRY(open_kafka_reader(bus, std::move(reader), common_.clock, counters_));
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

void BusFeed::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    contained("bus", "reading", [&] {
      std::vector<TakenRecord> records = reader_->take(std::chrono::milliseconds(100));
      note_assignment();
      if (!records.empty()) hand_over(std::move(records), stop);
      if (reader_->is_at_end() && common_.bus_is_behind) {
        common_.bus_is_behind = false;
        counters_.set("lockstep_bus_behind_ms", "", 0);
      }
      if (missing_ > 0) tell_missing();
      save(false);
    });
  }
}

void BusFeed::note_assignment() {
  BusAssignment now = reader_->assignment();
  bool lost = false;
  {
    MutexLock lock(mutex_);
    const std::vector<int32_t>& before = assignment_.partitions;
    lost = !std::includes(now.partitions.begin(), now.partitions.end(), before.begin(), before.end());
    assignment_ = std::move(now);
  }
  if (lost) tenants_->let_go_of_jobs();
}

// As recovery does: a quarter of a second of history at a time, and no more time on looking than on reading.
void BusFeed::look_before(int64_t received_unix_ns) {
  const int64_t age_ns = common_.clock.unix_ns() - received_unix_ns;
  // At the end of the bus nothing is behind, whatever the gateways' clocks say.
  if (!common_.bus_is_behind && (age_ns < kBehindNs || reader_->is_at_end())) return;
  common_.bus_is_behind = true;
  counters_.set("lockstep_bus_behind_ms", "", std::max<int64_t>(age_ns, 0) / 1'000'000);
  const int64_t now_ns = common_.clock.monotonic_ns();
  if (received_unix_ns - looked_unix_ns_ < kLookEveryNs || now_ns - looked_ns_ < look_cost_ns_) return;
  tenants_->look_as_of(received_unix_ns);
  looked_unix_ns_ = received_unix_ns;
  looked_ns_ = common_.clock.monotonic_ns();
  look_cost_ns_ = looked_ns_ - now_ns;
}

bool BusFeed::hand_over(std::vector<TakenRecord> records, const std::stop_token& stop) {
  for (TakenRecord& record : records) {
    if (auto found = positions_.places.find(record.place); found != positions_.places.end())
      record.cluster += found->second.anew * kSpread;
  }
  for (size_t first = 0; first < records.size();) {
    size_t end = first + 1;
    while (end < records.size() && records[end].tenant == records[first].tenant) ++end;
    if (!hand_run(std::span(records).subspan(first, end - first), stop)) return false;
    first = end;
  }
  return true;
}

// One that does not open is waited for once in a while: the others' records stand behind it.
Tenant* BusFeed::tenant_of(const std::string& name, const std::stop_token& stop) {
  using std::chrono::steady_clock;
  auto given_up = given_up_.find(name);
  const auto until = steady_clock::now() + kTenantPatience;
  for (;;) {
    const Tenants::Found found = tenants_->find_for_bus(name);
    if (found.tenant != nullptr && given_up != given_up_.end()) given_up_.erase(given_up);
    if (found.tenant != nullptr || found.is_none || stop.stop_requested()) return found.tenant;
    if (given_up != given_up_.end() && steady_clock::now() < given_up->second) return nullptr;
    if (steady_clock::now() > until) {
      LOCKSTEP_LOG_ERROR("bus", "tenant %s: %s; its records are refused", name.c_str(), found.line.c_str());
      if (given_up_.size() >= kGivenUpMax) given_up_.clear();
      given_up_[name] = steady_clock::now() + 10 * kTenantPatience;
      return nullptr;
    }
    std::this_thread::sleep_for(kTryAgain);
  }
}

// Records of one tenant.
bool BusFeed::hand_run(std::span<const TakenRecord> records, const std::stop_token& stop) {
  Tenant* tenant = tenant_of(records.front().tenant, stop);
  if (tenant == nullptr && stop.stop_requested()) return false;
  if (tenant == nullptr)
    counters_.add("lockstep_bus_records_refused_total", "reason=\"tenant\"", static_cast<int64_t>(records.size()));
  while (!records.empty()) {
    DurableSink::FromBus taken{records.size(), {}};
    if (tenant != nullptr) taken = tenant->take(records, counters_, [this](int64_t time_ns) { look_before(time_ns); });
    for (const TakenRecord& record : records.first(taken.done))
      positions_.places[record.place].next_offset = record.offset + 1;
    positions_changed_ |= taken.done > 0;
    records = records.subspan(taken.done);
    {
      MutexLock lock(mutex_);
      stalled_ = records.empty() ? std::string() : taken.line;
    }
    if (records.empty()) break;
    if (stop.stop_requested()) return false;
    std::this_thread::sleep_for(kTryAgain);
  }
  return true;
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
void BusFeed::tell_missing() {
  Tenant* tenant = tenants_->find_for_bus("").tenant;
  if (tenant == nullptr) return;
  Batch batch;
  batch.signal = Signal::kLogs;
  ResourceGroup& group = batch.groups.emplace_back();
  group.resource = {{"service.name", "lockstepd"}};
  group.logs.push_back(to_record(Gap{"bus_retention", missing_}, common_.clock.unix_ns()));
  if (tenant->keep(std::move(batch))) missing_ = 0;
}

}  // namespace lockstep
