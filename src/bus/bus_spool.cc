#include "bus/bus_spool.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/contained.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kAgain{200};  // until a bus that refused is tried once more
constexpr uint64_t kRecordHeaderBytes = 40;       // of the log, before each
constexpr size_t kNameBytesMax = UINT16_MAX;
constexpr uint8_t kKindsBetween =
    static_cast<uint8_t>(RecordKind::kSpooledMetrics) - static_cast<uint8_t>(RecordKind::kOtlpMetrics);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

// Before the payload: tenant_bytes u16, key_bytes u16, tenant, key.
std::string spooled(const BusRecord& record) {
  const uint16_t lengths[] = {static_cast<uint16_t>(record.tenant.size()), static_cast<uint16_t>(record.key.size())};
  std::string bytes(reinterpret_cast<const char*>(lengths), sizeof lengths);
  bytes.reserve(sizeof lengths + record.tenant.size() + record.key.size() + record.payload.size());
  bytes += record.tenant;
  bytes += record.key;
  bytes += record.payload;
  return bytes;
}

uint64_t spooled_bytes(const BusRecord& record) {
  return kRecordHeaderBytes + 2 * sizeof(uint16_t) + record.tenant.size() + record.key.size() + record.payload.size();
}

// Takes them off the front. False: it is none.
bool take_names(std::string_view& bytes, std::string& tenant, std::string& key) {
  uint16_t lengths[2];
  if (bytes.size() < sizeof lengths) return false;
  std::memcpy(lengths, bytes.data(), sizeof lengths);
  bytes.remove_prefix(sizeof lengths);
  if (bytes.size() < size_t{lengths[0]} + lengths[1]) return false;
  tenant = bytes.substr(0, lengths[0]);
  key = bytes.substr(lengths[0], lengths[1]);
  bytes.remove_prefix(size_t{lengths[0]} + lengths[1]);
  return true;
}

RecordKind spooled_kind(RecordKind kind) {
  return static_cast<RecordKind>(static_cast<uint8_t>(kind) + kKindsBetween);
}

bool is_spooled(RecordKind kind) {
  return kind >= RecordKind::kSpooledMetrics && kind <= RecordKind::kSpooledSpans;
}

}  // namespace

BusSpool::BusSpool(BusSpoolOptions options, BusWriter& bus, const Clock& clock, Counters& counters)
    : options_(std::move(options)), bus_(bus), counters_(counters), lines_(clock, "bus") {}

BusSpool::~BusSpool() {
  thread_ = {};
}

Result<std::unique_ptr<BusSpool>> BusSpool::open(BusSpoolOptions options, BusWriter& bus, const Clock& clock,
                                                 Counters& counters) {
  std::unique_ptr<BusSpool> spool(new BusSpool(std::move(options), bus, clock, counters));
  // What it may hold is decided here; the log itself drops nothing.
  spool->log_ =
      LOCKSTEP_TRY(DurableLog::open({.folder = spool->options_.folder,
                                     .segment_bytes_max = std::max<uint64_t>(spool->options_.bytes_max / 16, 1),
                                     .total_bytes_max = UINT64_MAX,
                                     .sync = spool->options_.sync},
                                    counters));
  spool->read_position();
  {
    MutexLock lock(spool->mutex_);
    spool->pending_ = static_cast<int64_t>(spool->log_->next_sequence() - std::max<uint64_t>(spool->at_.sequence, 1));
    spool->bytes_ = spool->log_->bytes_from(spool->at_);
    spool->kept_since_ = spool->pending_;
    if (spool->pending_ > 0)
      LOCKSTEP_LOG_INFO("bus", "%lld records that an earlier process kept in %s go to the bus now",
                        static_cast<long long>(spool->pending_), spool->options_.folder.c_str());
  }
  counters.set("lockstep_bus_spool_bytes_max", "", static_cast<int64_t>(spool->options_.bytes_max));
  spool->note();
  spool->thread_ = std::jthread([one = spool.get()](const std::stop_token& stop) { one->run(stop); });
  return spool;
}

// A position that is not there, or of another log, costs nothing but forwarding again.
void BusSpool::read_position() {
  const Result<std::string> text = read_file(options_.folder + "/forwarded", 256);
  if (!text.ok()) return;
  const std::vector<std::string_view> words = split(trim(*text), ' ');
  if (words.size() != 4 || words[0] != "1") return;
  const auto sequence = parse_uint(words[1]), segment = parse_uint(words[2]), offset = parse_uint(words[3]);
  if (!sequence || !segment || !offset || *sequence > log_->next_sequence()) return;
  at_ = {*sequence, *segment, *offset};
}

void BusSpool::save_position() {
  const Result<void> written = write_file_atomically(
      options_.folder + "/forwarded",
      format("1 %llu %llu %llu\n", static_cast<unsigned long long>(at_.sequence),
             static_cast<unsigned long long>(at_.segment), static_cast<unsigned long long>(at_.offset)));
  if (!written.ok()) lines_.warn("position", written.error());  // after a crash more is forwarded again
}

void BusSpool::note() {
  MutexLock lock(mutex_);
  counters_.set("lockstep_bus_spool_records", "", pending_);
  counters_.set("lockstep_bus_spool_bytes", "", static_cast<int64_t>(bytes_));
}

BusWriter::Outcome BusSpool::write(std::span<const BusRecord> records) {
  std::string why = "what came before is kept";
  if (pending_ == 0) {
    const std::optional<std::string> trouble = bus_.trouble();
    Outcome outcome = trouble ? Outcome{Refused::kDown, *trouble} : bus_.write(records);
    if (outcome.refused != Refused::kDown && outcome.refused != Refused::kFull) return outcome;
    why = std::move(outcome.line);
  }
  return keep(records, why);
}

bool BusSpool::has_room(std::span<const BusRecord> records, uint64_t bytes, Outcome& refused) {
  const DataValue value = std::max_element(records.begin(), records.end(), [](const BusRecord& a, const BusRecord& b) {
                            return a.value < b.value;
                          })->value;
  MutexLock lock(mutex_);
  if (bytes_ + bytes > taken_below_bytes(value, options_.bytes_max)) {
    counters_.add("lockstep_bus_records_shed_total", format("value=\"%s\"", to_text(value)),
                  static_cast<int64_t>(records.size()));
    refused = {Refused::kDown,
               format("the bus cannot be reached, and of %llu bytes that may be kept meanwhile %llu are: %s are not "
                      "taken now; try again later",
                      static_cast<unsigned long long>(options_.bytes_max), static_cast<unsigned long long>(bytes_),
                      to_text(value))};
    return false;
  }
  bytes_ += bytes;
  pending_ += static_cast<int64_t>(records.size());
  return true;
}

void BusSpool::give_back(int64_t records, uint64_t bytes) {
  MutexLock lock(mutex_);
  pending_ -= records;
  bytes_ = pending_ == 0 ? 0 : bytes_ - std::min(bytes_, bytes);
}

// In groups of what the log takes at once.
Result<void> BusSpool::append(std::span<const BusRecord> records, Appended& appended) {
  std::vector<std::string> held;
  std::vector<AppendedRecord> entries;
  uint64_t bytes = 0;
  const auto flush = [&]() -> Result<void> {
    if (entries.empty()) return {};
    LOCKSTEP_TRY(log_->append_all(entries));
    appended.records += static_cast<int64_t>(entries.size());
    appended.bytes += bytes;
    held.clear();
    entries.clear();
    bytes = 0;
    return {};
  };
  held.reserve(records.size());
  for (const BusRecord& record : records) {
    if (bytes + spooled_bytes(record) > DurableLog::kRecordBytesMax) LOCKSTEP_TRY(flush());
    bytes += spooled_bytes(record);
    held.push_back(spooled(record));
    entries.push_back({spooled_kind(record.kind), record.received_unix_ns, held.back()});
  }
  return flush();
}

BusWriter::Outcome BusSpool::keep(std::span<const BusRecord> records, const std::string& why) {
  if (records.empty()) return {};
  uint64_t bytes = 0;
  for (const BusRecord& record : records) {
    if (record.payload.size() > kRecordBytesMax || record.tenant.size() > kNameBytesMax ||
        record.key.size() > kNameBytesMax)
      return {Refused::kTooLarge, "the bus takes no record of this size"};
    bytes += spooled_bytes(record);
  }
  const auto count = static_cast<int64_t>(records.size());
  Outcome refused;
  if (!has_room(records, bytes, refused)) {
    lines_.warn("shed", refused.line);
    return refused;
  }
  Result<void> done = Error{"the request could not be kept on disk; try again"};
  Appended appended;  // all of them, or those of earlier groups
  contained("bus", "keeping a request", [&] { done = append(records, appended); });
  if (!done.ok()) {
    give_back(count - appended.records, bytes - appended.bytes);
    return {Refused::kDown, done.error()};
  }
  counters_.add("lockstep_bus_records_spooled_total", "", count);
  {
    MutexLock lock(mutex_);
    if (std::exchange(kept_since_, kept_since_ + count) == 0)
      LOCKSTEP_LOG_WARN("bus", "%s; requests are kept in %s until the bus takes them", as_one_line(why).c_str(),
                        options_.folder.c_str());
    changed_.notify_all();
  }
  note();
  return {};
}

std::optional<std::string> BusSpool::trouble() const {
  if (pending_ == 0 && !bus_.trouble()) return std::nullopt;
  if (std::optional<std::string> line = log_->trouble()) return line;
  MutexLock lock(mutex_);
  // Steps are refused too: little is left for events.
  if (bytes_ < taken_below_bytes(DataValue::kSteps, options_.bytes_max)) return std::nullopt;
  return format("the bus does not take what is sent, and %llu of %llu bytes that may be kept meanwhile are full",
                static_cast<unsigned long long>(bytes_), static_cast<unsigned long long>(options_.bytes_max));
}

std::optional<std::string> BusSpool::kept() const {
  MutexLock lock(mutex_);
  if (pending_ == 0) return std::nullopt;
  return format("%lld records (%llu bytes) are kept on disk until the bus takes them", static_cast<long long>(pending_),
                static_cast<unsigned long long>(bytes_));
}

bool BusSpool::forward(std::span<const Kept> all, const std::stop_token& stop) {
  std::vector<BusRecord> records;
  for (const Kept& one : all)
    records.push_back({.kind = one.kind,
                       .tenant = one.tenant,
                       .key = one.key,
                       .received_unix_ns = one.received_unix_ns,
                       .payload = one.payload});
  size_t at_once = records.size();
  for (std::span<const BusRecord> rest(records); !rest.empty();) {
    if (stop.stop_requested()) return false;
    const std::span<const BusRecord> some = rest.first(std::min(at_once, rest.size()));
    const Outcome outcome = bus_.trouble() ? Outcome{Refused::kDown, ""} : bus_.write(some);
    if (outcome.refused == Refused::kTooLarge && some.size() > 1) {
      at_once = 1;  // one of them is
      continue;
    }
    if (outcome.refused == Refused::kDown || outcome.refused == Refused::kFull) {
      MutexLock lock(mutex_);
      changed_.wait_for(mutex_, stop, kAgain, [] { return false; });
      continue;
    }
    if (outcome.refused == Refused::kTooLarge)
      lines_.warn("too_large", format("a record that was kept is passed over: %s", outcome.line.c_str()));
    else
      counters_.add("lockstep_bus_records_forwarded_total", "", static_cast<int64_t>(some.size()));
    rest = rest.subspan(some.size());
  }
  return true;
}

void BusSpool::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      MutexLock lock(mutex_);
      changed_.wait(mutex_, stop, [this] { return pending_ > 0; });
    }
    std::vector<Kept> some;
    uint64_t bytes = 0;
    LogPosition next = at_;
    Result<void> read = Error{"not read"};
    contained("bus", "reading what was kept", [&] {
      read =
          log_->read_on(next, options_.batch_bytes, [&](RecordKind kind, int64_t received, std::string_view payload) {
            bytes += kRecordHeaderBytes + payload.size();
            Kept one{.kind = static_cast<RecordKind>(static_cast<uint8_t>(kind) - kKindsBetween),
                     .received_unix_ns = received};
            if (!is_spooled(kind) || !take_names(payload, one.tenant, one.key)) return;
            one.payload = payload;
            some.push_back(std::move(one));
          });
    });
    if (!read.ok()) lines_.warn("read", read.error());
    if (!read.ok() || next.sequence <= std::max<uint64_t>(at_.sequence, 1)) {  // it is being written
      MutexLock lock(mutex_);
      changed_.wait_for(mutex_, stop, kAgain, [] { return false; });
      continue;
    }
    if (!forward(some, stop)) return;
    const uint64_t done = next.sequence - std::max<uint64_t>(at_.sequence, 1);
    at_ = next;
    save_position();
    log_->drop_before(at_);
    give_back(static_cast<int64_t>(done), bytes);
    {
      MutexLock lock(mutex_);
      if (pending_ == 0)
        LOCKSTEP_LOG_INFO("bus", "the bus has all that was kept meanwhile: %lld records",
                          static_cast<long long>(std::exchange(kept_since_, 0)));
    }
    note();
  }
}

}  // namespace lockstep
