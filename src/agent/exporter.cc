#include "agent/exporter.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "model/events.h"
#include "net/http_client.h"
#include "wire/compression.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr const char* kPaths[] = {"/v1/metrics", "/v1/logs", "/v1/traces"};
constexpr std::string_view kFilePrefix = "file:";
// Requests kept in memory before they go to disk: a few seconds of a large node.
constexpr size_t kMemoryItemsMax = 256;

Encoding best_encoding() {
  if (available(Encoding::kZstd)) return Encoding::kZstd;
  if (available(Encoding::kGzip)) return Encoding::kGzip;
  return Encoding::kIdentity;
}

}  // namespace

Result<std::unique_ptr<Exporter>> Exporter::start(ExporterOptions options, Counters& counters) {
  Result<Spool> spool = Spool::open(options.spool_folder, options.spool_bytes_max);
  if (!spool.ok()) return Error{spool.error()};
  std::unique_ptr<HttpClient> client;
  uint64_t file_sequence = 0;
  if (options.server.starts_with(kFilePrefix)) {
    std::string folder = options.server.substr(kFilePrefix.size());
    if (Result<void> made = make_directories(folder); !made.ok()) return Error{"--export: " + made.error()};
    // Go on behind what an earlier agent wrote.
    Result<std::vector<std::string>> names = list_directory(folder);
    if (!names.ok()) return Error{"--export: " + names.error()};
    for (const std::string& name : *names) {
      if (auto number = parse_uint(std::string_view(name).substr(0, name.find('-'))))
        file_sequence = std::max(file_sequence, *number);
    }
  } else {
    Result<Url> url = parse_url(options.server, 4318);
    if (!url.ok()) return Error{url.error()};
    client = std::make_unique<HttpClient>(*url, options.timeout_ms);
  }
  auto exporter = std::unique_ptr<Exporter>(new Exporter(std::move(options), counters, std::move(spool).value()));
  exporter->client_ = std::move(client);
  exporter->file_sequence_ = file_sequence;
  exporter->note_queue();
  exporter->thread_ = std::thread([raw = exporter.get()] { raw->run(); });
  return exporter;
}

Exporter::Exporter(ExporterOptions options, Counters& counters, Spool spool)
    : options_(std::move(options)), counters_(counters), spool_(std::move(spool)) {
  // What an earlier agent spooled was counted by that agent; here it is made again, so that the sum holds.
  counters_.add("lockstep_agent_records_total", "", spool_.records());
}

Exporter::~Exporter() {
  stop(0);
}

uint64_t Exporter::submit(const Batch& batch) {
  Item item{0, batch.signal, static_cast<int64_t>(batch.record_count()), otlp::encode(batch)};
  counters_.add("lockstep_agent_records_total", "", item.records);
  std::lock_guard lock(mutex_);
  item.ticket = next_ticket_++;
  memory_records_ += item.records;
  uint64_t ticket = item.ticket;
  memory_.push_back(std::move(item));
  wake_.notify_one();
  return ticket;
}

bool Exporter::settled(uint64_t ticket) const {
  std::lock_guard lock(mutex_);
  return settled_through_ >= ticket;
}

void Exporter::note_queue() {
  counters_.set("lockstep_agent_records_queued", "", memory_records_ + spool_.records());
  counters_.set("lockstep_agent_spool_bytes", "", static_cast<int64_t>(spool_.bytes()));
}

Exporter::Outcome Exporter::deliver_to_folder(Signal signal, int64_t records, const std::string& payload,
                                              std::string* why) {
  std::string folder = options_.server.substr(kFilePrefix.size());
  std::string path =
      format("%s/%08llu-%s.otlp", folder.c_str(), static_cast<unsigned long long>(++file_sequence_), to_text(signal));
  if (Result<void> written = write_file_atomically(path, payload); !written.ok()) {
    *why = written.error();
    return Outcome::kRetry;
  }
  counters_.add("lockstep_agent_records_passed_total", "", records);
  return Outcome::kDelivered;
}

Exporter::Outcome Exporter::deliver(Signal signal, int64_t records, const std::string& payload, std::string* why) {
  if (client_ == nullptr) return deliver_to_folder(signal, records, payload, why);
  HttpRequest request;
  request.method = "POST";
  request.path = kPaths[static_cast<size_t>(signal)];
  request.headers = {{"Content-Type", "application/x-protobuf"}};
  Encoding encoding = best_encoding();
  Result<std::string> body = compress(encoding, payload);
  if (encoding != Encoding::kIdentity && body.ok()) {
    request.headers.emplace_back("Content-Encoding", to_text(encoding));
    request.body = std::move(body).value();
  } else {
    request.body = payload;
  }
  Result<HttpResponse> answer = client_->send(request);
  if (!answer.ok()) {
    counters_.add("lockstep_agent_export_requests_total", "code=\"0\"");
    *why = answer.error();
    return Outcome::kRetry;
  }
  counters_.add("lockstep_agent_export_requests_total", format("code=\"%d\"", answer->status));
  counters_.add("lockstep_agent_export_bytes_total", "", static_cast<int64_t>(request.body.size()));
  if (answer->status == 200) {
    int64_t rejected = 0;
    if (Result<otlp::PartialSuccess> partial = otlp::decode_response(answer->body); partial.ok()) {
      rejected = std::clamp<int64_t>(partial->rejected, 0, records);
      if (rejected > 0)
        LOCKSTEP_LOG_WARN("agent", "server refused %lld of %lld records: %s", static_cast<long long>(rejected),
                          static_cast<long long>(records), partial->message.c_str());
    }
    counters_.add("lockstep_agent_records_passed_total", "", records - rejected);
    if (rejected > 0) counters_.add("lockstep_agent_records_refused_total", "reason=\"partial_success\"", rejected);
    return Outcome::kDelivered;
  }
  if (answer->status == 429 || answer->status == 502 || answer->status == 503 || answer->status == 504 ||
      answer->status == 408) {
    *why = format("server answered %d", answer->status);
    return Outcome::kRetry;
  }
  counters_.add("lockstep_agent_records_refused_total", format("reason=\"http_%d\"", answer->status), records);
  LOCKSTEP_LOG_WARN("agent", "server answered %d to %s; %lld records are lost", answer->status, request.path.c_str(),
                    static_cast<long long>(records));
  return Outcome::kRefused;
}

void Exporter::spool_away(Item item) {
  Result<int64_t> dropped = spool_.push(item.signal, item.records, item.payload);
  if (!dropped.ok()) {
    counters_.add("lockstep_agent_records_dropped_total", "reason=\"spool_error\"", item.records);
    gap_records_ += item.records;
    LOCKSTEP_LOG_WARN("agent", "%s; %lld records are lost", dropped.error().c_str(),
                      static_cast<long long>(item.records));
  } else if (*dropped > 0) {
    counters_.add("lockstep_agent_records_dropped_total", "reason=\"spool_full\"", *dropped);
    gap_records_ += *dropped;
  }
}

void Exporter::run() {
  SystemClock clock;
  int64_t backoff_ms = 0;  // 0: the server answers
  int64_t retry_at_ns = 0;
  while (true) {
    Item item;
    bool from_memory = false;
    {
      std::unique_lock lock(mutex_);
      auto has_work = [&] { return stopping_ || !memory_.empty() || !spool_.empty(); };
      if (backoff_ms == 0) {
        wake_.wait_for(lock, std::chrono::milliseconds(500), has_work);
      } else {
        // While the server is away, wake only to move memory to disk or to try again.
        int64_t wait_ms = std::max<int64_t>(1, (retry_at_ns - clock.monotonic_ns()) / 1'000'000);
        wake_.wait_for(lock, std::chrono::milliseconds(std::min<int64_t>(wait_ms, stopping_ ? 20 : 200)));
      }
      if (stopping_ && ((memory_.empty() && spool_.empty()) || clock.monotonic_ns() >= stop_deadline_ns_)) break;
      if (backoff_ms != 0 || memory_.size() > kMemoryItemsMax) {
        while (!memory_.empty()) {
          Item away = std::move(memory_.front());
          memory_.pop_front();
          memory_records_ -= away.records;
          uint64_t ticket = away.ticket;
          spool_away(std::move(away));
          settled_through_ = ticket;
        }
        note_queue();
        if (backoff_ms != 0 && clock.monotonic_ns() < retry_at_ns) continue;
      }
      if (spool_.empty() && !memory_.empty()) {
        item = std::move(memory_.front());
        memory_.pop_front();
        from_memory = true;
      } else if (spool_.empty()) {
        continue;
      }
    }

    std::string why;
    Outcome outcome;
    if (from_memory) {
      outcome = deliver(item.signal, item.records, item.payload, &why);
    } else {
      Result<std::string> payload = spool_.read_front();
      if (!payload.ok()) {
        LOCKSTEP_LOG_WARN("agent", "spool: %s; %lld records are lost", payload.error().c_str(),
                          static_cast<long long>(spool_.front().records));
        counters_.add("lockstep_agent_records_dropped_total", "reason=\"spool_error\"", spool_.front().records);
        spool_.pop_front();
        continue;
      }
      outcome = deliver(spool_.front().signal, spool_.front().records, *payload, &why);
      if (outcome != Outcome::kRetry) spool_.pop_front();
    }

    if (outcome == Outcome::kRetry) {
      if (backoff_ms == 0)
        LOCKSTEP_LOG_WARN("agent", "%s: %s; keeping everything on disk until it answers", options_.server.c_str(),
                          why.c_str());
      backoff_ms = std::min(options_.backoff_most_ms, std::max(options_.backoff_first_ms, backoff_ms * 2));
      // Spread: a fleet of agents must not come back all at once.
      int64_t jitter_ms = static_cast<int64_t>(static_cast<uint64_t>(clock.monotonic_ns()) * 2654435761u %
                                               static_cast<uint64_t>(backoff_ms / 2 + 1));
      retry_at_ns = clock.monotonic_ns() + (backoff_ms / 2 + jitter_ms) * 1'000'000;
    } else {
      if (backoff_ms != 0)
        LOCKSTEP_LOG_INFO("agent", "%s answers again; %lld records waiting", options_.server.c_str(),
                          static_cast<long long>(spool_.records()));
      backoff_ms = 0;
    }
    std::lock_guard lock(mutex_);
    if (from_memory) {
      memory_records_ -= item.records;
      uint64_t ticket = item.ticket;
      if (outcome == Outcome::kRetry) spool_away(std::move(item));
      settled_through_ = ticket;
    }
    if (outcome == Outcome::kDelivered && gap_records_ > 0) {
      Batch gap;
      gap.signal = Signal::kLogs;
      gap.groups.push_back({.resource = {{"service.name", "lockstep-agent"}},
                            .logs = {to_record(Gap{"spool_full", gap_records_}, clock.unix_ns())}});
      gap_records_ = 0;
      memory_.push_back({next_ticket_++, Signal::kLogs, 1, otlp::encode(gap)});
      memory_records_ += 1;
      counters_.add("lockstep_agent_records_total", "", 1);
    }
    note_queue();
  }
  std::lock_guard lock(mutex_);
  while (!memory_.empty()) {
    Item away = std::move(memory_.front());
    memory_.pop_front();
    memory_records_ -= away.records;
    settled_through_ = away.ticket;
    spool_away(std::move(away));
  }
  note_queue();
}

void Exporter::stop(int64_t wait_ms) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ && !thread_.joinable()) return;
    stopping_ = true;
    stop_deadline_ns_ = SystemClock().monotonic_ns() + wait_ms * 1'000'000;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep
