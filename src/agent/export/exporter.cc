#include "agent/export/exporter.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/protobuf_wire.h"
#include "base/text.h"
#include "model/events.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

using Outcome = SendResult::Outcome;
// Requests kept in memory before they go to disk: a few seconds of a large node.
constexpr size_t kMemoryItemsMax = 256;
constexpr Signal kSignals[] = {Signal::kMetrics, Signal::kLogs, Signal::kSpans};

int64_t now_ns() {
  return SystemClock().monotonic_ns();
}

// A block that a power cut left as zeros, or half of a request, does not read as fields one after the other.
bool looks_whole(std::string_view payload) {
  protobuf::WireError error;
  protobuf::WireReader reader(payload, error);
  while (reader.next()) reader.skip();
  return error.what == nullptr;
}

// What the environment says of every resource, where the resource does not say it itself.
void add_to_resources(Batch& batch, const Attributes& attributes) {
  for (ResourceGroup& group : batch.groups) {
    for (const Attribute& attribute : attributes) {
      if (find(group.resource, attribute.key) == nullptr) group.resource.push_back(attribute);
    }
  }
}

}  // namespace

Result<std::unique_ptr<Exporter>> Exporter::start(ExporterOptions options, Counters& counters) {
  Spool spool = LOCKSTEP_TRY(Spool::open(options.spool_folder, options.spool_bytes_max));
  std::unique_ptr<OtlpSender> sender;
  uint64_t file_sequence = 0;
  if (!options.folder.empty()) {
    if (Result<void> made = make_directories(options.folder); !made.ok()) return prefixed(made.failure(), "--export: ");
    // Go on behind what an earlier agent wrote.
    Result<std::vector<std::string>> names = list_directory(options.folder);
    if (!names.ok()) return prefixed(names.failure(), "--export: ");
    for (const std::string& name : *names) {
      if (auto number = parse_uint(std::string_view(name).substr(0, name.find('-'))))
        file_sequence = std::max(file_sequence, *number);
    }
  } else {
    sender = LOCKSTEP_TRY(OtlpSender::open(options.targets));
  }
  auto exporter = std::unique_ptr<Exporter>(new Exporter(std::move(options), counters, std::move(spool)));
  exporter->sender_ = std::move(sender);
  exporter->file_sequence_ = file_sequence;
  {
    MutexLock lock(exporter->mutex_);
    exporter->note_queue();
  }
  exporter->thread_ = std::thread([raw = exporter.get()] { raw->run(); });
  return exporter;
}

Exporter::Exporter(ExporterOptions options, Counters& counters, Spool spool)
    : options_(std::move(options)), counters_(counters), spool_(std::move(spool)) {
  // What an earlier agent spooled was counted by that agent; here it is made again, so that the sum holds.
  counters_.add("lockstep_agent_records_total", "", spool_.records() + spool_.torn().total());
  drop_all("spool_torn", spool_.torn());
}

Exporter::~Exporter() {
  stop(0);
}

uint64_t Exporter::submit(const Batch& batch, DataValue value) {
  Item item{0, batch.signal, value, static_cast<int64_t>(batch.record_count()), {}};
  if (!options_.targets.resource.empty()) {
    Batch completed = batch;
    add_to_resources(completed, options_.targets.resource);
    item.payload = otlp::encode(completed);
  } else {
    item.payload = otlp::encode(batch);
  }
  counters_.add("lockstep_agent_records_total", "", item.records);
  MutexLock lock(mutex_);
  const uint64_t ticket = item.ticket = next_ticket_++;
  memory_records_ += item.records;
  memory_bytes_ += item.payload.size();
  memory_.push_back(std::move(item));
  if (memory_bytes_ > kMemoryBytesMax) make_room_in_memory(memory_bytes_ - kMemoryBytesMax);
  wake_.notify_one();
  return ticket;
}

// Comes to this only where the disk does not answer, or the network takes its time over what is larger than all of
// memory may be.
void Exporter::make_room_in_memory(size_t bytes) {
  size_t freed = 0;
  while (freed < bytes) {
    Item* victim = nullptr;
    for (Item& item : memory_) {
      if (!item.payload.empty() && (victim == nullptr || item.value < victim->value)) victim = &item;
    }
    if (victim == nullptr) return;
    drop("memory_full", victim->value, victim->records);
    freed += victim->payload.size();
    memory_bytes_ -= victim->payload.size();
    memory_records_ -= victim->records;
    victim->records = 0;
    victim->payload = std::string();
  }
}

bool Exporter::settled(uint64_t ticket) const {
  MutexLock lock(mutex_);
  return settled_through_ >= ticket;
}

std::string Exporter::trouble() const {
  MutexLock lock(mutex_);
  for (const std::string& trouble : trouble_)
    if (!trouble.empty()) return trouble;
  return {};
}

// Called with the lock held, or before there is a second thread.
void Exporter::drop(const char* reason, DataValue value, int64_t records) {
  if (records == 0) return;
  counters_.add("lockstep_agent_records_dropped_total", format("reason=\"%s\",value=\"%s\"", reason, to_text(value)),
                records);
  gaps_[reason] += records;
}

void Exporter::drop_all(const char* reason, const SpoolDrops& drops) {
  for (size_t value = 0; value < kDataValues; ++value)
    drop(reason, static_cast<DataValue>(value), drops.records[value]);
}

void Exporter::note_queue() {
  counters_.set("lockstep_agent_records_queued", "", memory_records_ + spool_.records());
  counters_.set("lockstep_agent_spool_bytes", "", static_cast<int64_t>(spool_.bytes()));
}

bool Exporter::one_lane() const {
  return sender_ == nullptr || (sender_->lane(Signal::kLogs) == sender_->lane(Signal::kMetrics) &&
                                sender_->lane(Signal::kSpans) == sender_->lane(Signal::kMetrics));
}

std::string Exporter::place(Signal signal) const {
  return sender_ == nullptr ? options_.folder : sender_->place(signal);
}

std::string Exporter::destination() const {
  MutexLock lock(mutex_);
  if (!logs_place_.empty()) return logs_place_;
  return options_.folder.empty() ? options_.targets.of(Signal::kLogs).text() : options_.folder;
}

std::array<size_t, 3> Exporter::wanted(int64_t at_ns) {
  std::array<size_t, 3> from{};
  for (Signal signal : kSignals) {
    const Lane& lane = lane_of(signal);
    const bool is_ready = lane.backoff_ms == 0 || at_ns >= lane.retry_at_ns;
    from[static_cast<size_t>(signal)] = is_ready       ? 0
                                        : lane.refused ? static_cast<size_t>(*lane.refused) + 1
                                                       : kDataValues;
  }
  return from;
}

SendResult Exporter::deliver_to_folder(Signal signal, const std::string& payload) {
  std::string path = format("%s/%08llu-%s.otlp", options_.folder.c_str(),
                            static_cast<unsigned long long>(++file_sequence_), to_text(signal));
  SendResult result;
  if (Result<void> written = write_file_atomically(path, payload); !written.ok()) {
    result.why = written.error();
  } else {
    result.outcome = Outcome::kDelivered;
  }
  return result;
}

SendResult Exporter::deliver(Signal signal, int64_t records, const std::string& payload) {
  SendResult result = sender_ == nullptr ? deliver_to_folder(signal, payload) : sender_->send(signal, payload);
  if (sender_ != nullptr) {
    counters_.add("lockstep_agent_export_requests_total", format("code=\"%s\"", result.code.c_str()));
    counters_.add("lockstep_agent_export_bytes_total", "", static_cast<int64_t>(result.bytes));
  }
  if (result.outcome == Outcome::kDelivered) {
    const int64_t rejected = std::clamp<int64_t>(result.rejected, 0, records);
    counters_.add("lockstep_agent_records_passed_total", "", records - rejected);
    if (rejected > 0) {
      counters_.add("lockstep_agent_records_refused_total", "reason=\"partial_success\"", rejected);
      LOCKSTEP_LOG_WARN("agent", "server refused %lld of %lld records: %s", static_cast<long long>(rejected),
                        static_cast<long long>(records), result.why.c_str());
    }
  } else if (result.outcome == Outcome::kRefused) {
    counters_.add("lockstep_agent_records_refused_total", format("reason=\"%s\"", result.reason.c_str()), records);
    LOCKSTEP_LOG_WARN("agent", "%s: %s; %lld records are lost", place(signal).c_str(), result.why.c_str(),
                      static_cast<long long>(records));
  }
  return result;
}

// What a result means for the place it came from.
void Exporter::after(Signal signal, DataValue value, const SendResult& result) {
  Lane& lane = lane_of(signal);
  // Where no answer came, the line names the place already.
  const std::string line = (result.code == "0" ? "" : place(signal) + ": ") + result.why;
  {
    MutexLock lock(mutex_);
    logs_place_ = place(Signal::kLogs);
    trouble_[static_cast<size_t>(signal)] = result.outcome == Outcome::kDelivered ? ""
                                            : result.outcome == Outcome::kRefused ? line + "; records are lost"
                                                                                  : line + "; records are kept on disk";
  }
  if (result.outcome != Outcome::kRetry) {
    if (lane.refused && value > *lane.refused && now_ns() < lane.retry_at_ns) return;  // there is room for this alone
    if (lane.backoff_ms != 0)
      LOCKSTEP_LOG_INFO("agent", "%s answers again; %lld records waiting", place(signal).c_str(),
                        static_cast<long long>(spool_.records()));
    lane = {};
    return;
  }
  if (lane.backoff_ms == 0) LOCKSTEP_LOG_WARN("agent", "%s; keeping everything on disk until it answers", line.c_str());
  lane.refused = result.code == "0" ? std::nullopt : std::optional(value);
  lane.backoff_ms = std::min(options_.backoff_most_ms, std::max(options_.backoff_first_ms, lane.backoff_ms * 2));
  // Spread: a fleet of agents must not come back all at once.
  const int64_t at_ns = now_ns();
  const int64_t jitter_ms =
      static_cast<int64_t>(static_cast<uint64_t>(at_ns) * 2654435761u % static_cast<uint64_t>(lane.backoff_ms / 2 + 1));
  const int64_t wait_ms = std::max(lane.backoff_ms / 2, result.retry_after_ms) + jitter_ms;
  lane.retry_at_ns = at_ns + wait_ms * 1'000'000;
}

// Returns false where the request could not be kept; it is counted then.
bool Exporter::spool_one(const Item& item) {
  const SpoolPush pushed = spool_.push(item.signal, item.value, item.records, item.payload);
  MutexLock lock(mutex_);
  drop_all(pushed.disk_full ? "disk_full" : "spool_full", pushed.dropped);
  if (pushed.stored) {
    if (spool_fails_) LOCKSTEP_LOG_INFO("agent", "the spool can be written again");
    spool_fails_ = false;
    return true;
  }
  if (pushed.why.empty()) return false;  // of the lowest value; among the dropped already
  drop(pushed.disk_full ? "disk_full" : "spool_error", item.value, item.records);
  // A full disk refuses everything; one line is enough until it has room again.
  if (!spool_fails_)
    LOCKSTEP_LOG_WARN("agent", "%s; %lld records are lost, and what follows until this ends", pushed.why.c_str(),
                      static_cast<long long>(item.records));
  spool_fails_ = true;
  return false;
}

void Exporter::spool_away(std::vector<Item> items) {
  if (items.empty() && unsynced_ticket_ == 0) return;
  bool stored = unsynced_ticket_ != 0;
  for (Item& item : items) {
    if (!item.payload.empty() || item.records > 0) stored |= spool_one(item);
    {
      MutexLock lock(mutex_);
      memory_records_ -= item.records;
    }
    item.payload = std::string();
  }
  const uint64_t ticket = std::max(unsynced_ticket_, items.empty() ? 0 : items.back().ticket);
  // One sync of the folder for all of them; until it has succeeded none of them counts as safe.
  Result<void> synced = stored ? spool_.sync() : Result<void>();
  if (synced.ok()) {
    unsynced_ticket_ = 0;
    settle(ticket);
  } else {
    if (unsynced_ticket_ == 0) LOCKSTEP_LOG_WARN("agent", "spool: %s", synced.error().c_str());
    unsynced_ticket_ = ticket;
  }
  MutexLock lock(mutex_);
  note_queue();
}

void Exporter::settle(uint64_t ticket) {
  MutexLock lock(mutex_);
  // Behind a request that is in the spool but not safe there, nothing is settled yet.
  uint64_t& through = unsynced_ticket_ == 0 ? settled_through_ : unsynced_ticket_;
  through = std::max(through, ticket);
}

// What was lost while the server was away is told to it as an event of its own.
void Exporter::report_gaps() {
  MutexLock lock(mutex_);
  if (gaps_.empty()) return;
  Batch batch{.signal = Signal::kLogs, .groups = {{.resource = {{"service.name", "lockstep-agent"}}}}};
  for (const auto& [reason, records] : gaps_)
    batch.groups[0].logs.push_back(to_record(Gap{reason, records}, SystemClock().unix_ns()));
  Item item{next_ticket_++, Signal::kLogs, DataValue::kEvents, static_cast<int64_t>(gaps_.size()), otlp::encode(batch)};
  gaps_.clear();
  counters_.add("lockstep_agent_records_total", "", item.records);
  memory_records_ += item.records;
  memory_bytes_ += item.payload.size();
  memory_.push_back(std::move(item));
}

void Exporter::wait_for_work() {
  const int64_t at_ns = now_ns();
  int64_t wait_ms = 500;
  bool away = false;  // some place is: what comes meanwhile gathers for a moment, so that one sync serves many
  for (const Lane& lane : lanes_) {
    if (lane.backoff_ms == 0) continue;
    away = true;
    wait_ms = std::min(wait_ms, std::max<int64_t>(1, (lane.retry_at_ns - at_ns + 999'999) / 1'000'000));
  }
  if (away && stopping_) {
    wake_.wait_for(mutex_, std::chrono::milliseconds(std::min<int64_t>(wait_ms, 20)));
    return;
  }
  if (away) {
    wake_.wait_for(mutex_, std::chrono::milliseconds(std::min<int64_t>(wait_ms, 200)), [&]() LOCKSTEP_REQUIRES(mutex_) {
      // What can be sent to another place is not held up.
      return stopping_ || memory_.size() > kMemoryItemsMax || spool_.oldest(wanted(now_ns())).has_value() ||
             std::any_of(memory_.begin(), memory_.end(),
                         [&](const Item& item) { return lane_of(item.signal).backoff_ms == 0; });
    });
    return;
  }
  wake_.wait_for(mutex_, std::chrono::milliseconds(wait_ms),
                 [&]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || !memory_.empty() || !spool_.empty(); });
}

// Takes from memory, in order, what has to go to disk, and one request that can be sent as it is.
void Exporter::sort_memory(std::vector<Item>& to_disk, std::optional<Item>& to_send) {
  auto take = [&]() LOCKSTEP_REQUIRES(mutex_) {
    Item item = std::move(memory_.front());
    memory_.pop_front();
    memory_bytes_ -= item.payload.size();
    return item;
  };
  bool crowded = memory_.size() > kMemoryItemsMax;
  while (!memory_.empty()) {
    const Item& front = memory_.front();
    const Lane& lane = lane_of(front.signal);
    bool behind = false;  // older requests to the same place are on disk: they go first
    for (Signal signal : kSignals) behind |= &lane_of(signal) == &lane && spool_.has(signal);
    behind |=
        std::any_of(to_disk.begin(), to_disk.end(), [&](const Item& item) { return &lane_of(item.signal) == &lane; });
    if (front.payload.empty() && front.records == 0) {
      to_disk.push_back(take());  // was dropped; only its ticket is left
    } else if (lane.backoff_ms != 0 || crowded) {
      to_disk.push_back(take());
    } else if (!behind) {
      to_send = take();
      return;
    } else if (one_lane()) {
      return;  // waits in memory while the spool is being delivered
    } else {
      to_disk.push_back(take());  // or it would hold up what goes elsewhere
    }
  }
}

void Exporter::deliver_item(Item item) {
  const SendResult result = deliver(item.signal, item.records, item.payload);
  after(item.signal, item.value, result);
  if (result.outcome == Outcome::kRetry) {
    std::vector<Item> one;
    one.push_back(std::move(item));
    spool_away(std::move(one));
    return;
  }
  {
    MutexLock lock(mutex_);
    memory_records_ -= item.records;
  }
  settle(item.ticket);
  if (result.outcome == Outcome::kDelivered) report_gaps();
}

// The oldest request on disk whose place may be tried. False: there is none.
bool Exporter::deliver_spooled() {
  const std::optional<SpooledRequest> request = spool_.oldest(wanted(now_ns()));
  if (!request) return false;
  Result<std::string> payload = spool_.read(*request);
  if (payload.ok() && !looks_whole(*payload)) payload = Error{"a request is torn"};
  if (!payload.ok()) {
    LOCKSTEP_LOG_WARN("agent", "spool: %s; %lld records are lost", payload.error().c_str(),
                      static_cast<long long>(request->records));
    MutexLock lock(mutex_);
    drop("spool_error", request->value, request->records);
    spool_.remove(*request);
    return true;
  }
  const SendResult result = deliver(request->signal, request->records, *payload);
  if (result.outcome != Outcome::kRetry) spool_.remove(*request);
  after(request->signal, request->value, result);
  if (result.outcome == Outcome::kDelivered) report_gaps();
  return true;
}

void Exporter::run() {
  while (true) {
    std::vector<Item> to_disk;
    std::optional<Item> to_send;
    {
      MutexLock lock(mutex_);
      wait_for_work();
      if (options_.heartbeat != nullptr) options_.heartbeat->beat();
      if (stopping_ && ((memory_.empty() && spool_.empty()) || now_ns() >= stop_deadline_ns_)) break;
      sort_memory(to_disk, to_send);
    }
    spool_away(std::move(to_disk));
    if (to_send) {
      deliver_item(std::move(*to_send));
    } else {
      deliver_spooled();
    }
    MutexLock lock(mutex_);
    note_queue();
  }
  std::vector<Item> rest;
  {
    MutexLock lock(mutex_);
    while (!memory_.empty()) {
      rest.push_back(std::move(memory_.front()));
      memory_.pop_front();
    }
    memory_bytes_ = 0;
  }
  spool_away(std::move(rest));
}

void Exporter::stop(int64_t wait_ms) {
  {
    MutexLock lock(mutex_);
    if (stopping_ && !thread_.joinable()) return;
    stopping_ = true;
    stop_deadline_ns_ = now_ns() + wait_ms * 1'000'000;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep
