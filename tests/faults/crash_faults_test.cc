// Acknowledged means there, and right: the durable log, metrics, steps, spans, blobs and state on a disk that fails, fills up
// and loses power where a seed says so. After every crash everything that was acknowledged is there with its own
// values, and nothing is there that nobody wrote.
//
//     crash_faults_test --seeds 5000 --first-seed 1     a soak; a failure names its seed
//     crash_faults_test --seeds 1 --first-seed 4711     that one again
//
// Every record has a key of its own and a value that follows from the key, so that a value under another's name is seen
// whatever happened before.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "bus/log.h"
#include "bus/log_counters.h"
#include "store/blobs/blob_counters.h"
#include "store/blobs/directory_blob_store.h"
#include "store/metrics/metric_engine.h"
#include "store/spans/columnar_span_store.h"
#include "store/sqlite_state_store.h"
#include "store/steps/columnar_step_store.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"
#include "tests/faults/simulated_disk.h"
#include "tests/faults/sqlite_on_disk.h"

namespace lockstep {
namespace {

uint64_t seeds = 200;
uint64_t first_seed = 1;

constexpr int64_t kStart = 1'800'000'000'000'000'000;
constexpr int32_t kRanks = 4;

uint64_t mix(uint64_t value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15ull;
  value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9ull;
  return value ^ value >> 32;
}
double metric_value(uint64_t series, int64_t tick) {
  const uint64_t draw = mix(series * 1'000'003 + static_cast<uint64_t>(tick));
  return draw % 3 == 0 ? static_cast<double>(draw % 1000) / 8 : static_cast<double>(draw >> 11) * 0x1p-40;
}
int64_t row_value(uint64_t number) {
  return static_cast<int64_t>(mix(number) >> 20);
}

std::span<const CounterDescriptor> counter_table() {
  static const std::vector<CounterDescriptor> table = [] {
    std::vector<CounterDescriptor> all(std::begin(kLogCounters), std::end(kLogCounters));
    all.insert(all.end(), std::begin(kStoreCounters), std::end(kStoreCounters));
    all.insert(all.end(), std::begin(kBlobCounters), std::end(kBlobCounters));
    return all;
  }();
  return table;
}

// How much of the odd things a run of seeds has met: a test that meets none tests nothing.
struct Met {
  uint64_t lives = 0, power_losses = 0, faults = 0, acknowledged = 0, refused = 0, failed_starts = 0, gaps = 0;
};

class World {
 public:
  World(const std::string& root, uint64_t seed) : random_(mix(seed)), root_(root), disk_(root, mix(seed + 1)) {
    put_sqlite_on(&disk_);
    synced_ack_ = below(2) == 0;
  }
  ~World() {
    disk_.stop();
    close();
    put_sqlite_on(nullptr);
  }

  // Empty: all is well; else what is wrong.
  std::string run(Met& met) {
    const uint64_t lives = 2 + below(3);
    for (uint64_t life = 0; life < lives && wrong_.empty(); ++life) {
      ++met.lives;
      start(met);
      if (!wrong_.empty()) break;
      choose_odds();
      disk_.stop_after(life + 1 == lives ? UINT64_MAX : 20 + below(600));
      const uint64_t acts = 20 + below(150);
      for (uint64_t i = 0; i < acts && !disk_.is_stopped(); ++i) act();
      crash(met);
    }
    if (wrong_.empty()) start(met);
    met.faults += disk_.faults();
    met.acknowledged += acknowledged_.size() + samples_.size() + verdicts_.size();
    met.refused += refused_.size();
    return wrong_;
  }

 private:
  uint64_t below(uint64_t most) { return random_() % most; }
  void wrong(std::string line) {
    if (wrong_.empty()) wrong_ = std::move(line);
  }

  void choose_odds() {
    SimulatedDisk::Odds odds;
    switch (below(5)) {
      case 0:
        break;  // crashes alone
      case 1:
        odds = {.sync = 0.02, .write = 0.01, .other = 0.01};
        break;
      case 2:
        odds = {.sync = 0.2};
        break;
      case 3:
        odds = {.write = 0.05, .full = 0.02};
        break;
      default:
        odds = {.sync = 0.1, .write = 0.1, .other = 0.1};
        break;
    }
    disk_.set_odds(odds);
  }

  // A crash: nothing that the dying do reaches the disk.
  void crash(Met& met) {
    disk_.stop();
    close();
    disk_.set_odds({});
    if (below(3) == 0) {
      disk_.restart_process();
      return;
    }
    ++met.power_losses;
    disk_.lose_power();
    for (auto& [key, sample] : samples_) {
      if (!sample.is_durable) sample.is_needed = false;
    }
  }

  void close() {
    log_.reset();
    metrics_.reset();
    steps_.reset();
    spans_.reset();
    state_.reset();
    blobs_.reset();
  }

  // Everything opened, the log replayed, and what is there compared with what must be.
  void start(Met& met) {
    for (int attempt = 0;; ++attempt) {
      clock_.advance(1'000'000'000);
      ++life_;
      faults_before_ = disk_.faults();
      counters_ = std::make_unique<Counters>(counter_table());
      if (attempt < 3 && below(3) == 0) {
        choose_odds();
        disk_.stop_after(1 + below(60));
      } else if (attempt < 3 && below(6) == 0) {
        disk_.set_odds({.read = 0.03});
      }
      const bool opened = open();
      if (disk_.is_stopped() || !opened) {
        if (!disk_.is_stopped() && disk_.faults() == faults_before_) {
          wrong("the server did not start on a disk that did not fail: " + start_error_);
          return;
        }
        ++met.failed_starts;
        crash(met);
        continue;
      }
      break;
    }
    disk_.set_odds({});
    disk_.stop_after(UINT64_MAX);
    note_gaps(met);
    check();
  }

  // What could not be read is said, and missing from now on.
  void note_gaps(Met& met) {
    gaps_.log = false;
    if (disk_.faults() == faults_before_) return;
    gaps_.log = counters_->sum("lockstep_log_corrupt_segments_total") > 0;
    gaps_.steps |= gaps_.log || counters_->sum("lockstep_step_files_refused_total") > 0;
    gaps_.spans |= gaps_.log || counters_->sum("lockstep_span_files_refused_total") > 0;
    gaps_.metrics |= counters_->sum("lockstep_metric_damage_total") > 0;
    met.gaps += gaps_.steps || gaps_.spans || gaps_.metrics ? 1 : 0;
  }

  // Keeps what was opened; false, with the reason, where it was not.
  template <typename Store>
  bool took(Result<std::unique_ptr<Store>> opened, std::unique_ptr<Store>& store) {
    if (opened.ok()) store = std::move(*opened);
    return went(opened);
  }
  template <typename Outcome>
  bool went(const Outcome& outcome) {
    if (!outcome.ok()) start_error_ = outcome.error();
    return outcome.ok();
  }

  bool open_stores() {
    if (!took(open_sqlite_state_store(root_ + "/state.sqlite"), state_)) return false;
    MetricEngineOptions metric_options;
    metric_options.folder = root_ + "/metrics";
    metric_options.ack = synced_ack_ ? metrics::Ack::kFsynced : metrics::Ack::kWritten;
    metric_options.shards = 1 + static_cast<uint32_t>(below(3));
    metric_options.segment_bytes_max = 200 + below(4000);
    metric_options.merge_ms = 0;
    metric_options.merge_blocks_max = 3;
    metric_options.background = false;
    metric_options.hash_seed = 1;
    if (!took(MetricEngine::open(metric_options, clock_, *counters_), metrics_)) return false;

    ColumnarStepStoreOptions step_options;
    step_options.folder = root_ + "/steps";
    step_options.hot_rows_max = below(2) == 0 ? 4 : 1000;
    step_options.background = false;
    if (!took(ColumnarStepStore::open(step_options, clock_, *counters_), steps_)) return false;

    ColumnarSpanStoreOptions span_options;
    span_options.folder = root_ + "/spans";
    span_options.background = false;
    return took(ColumnarSpanStore::open(span_options, clock_, *counters_), spans_) &&
           took(open_directory_blob_store({root_ + "/blobs"}, clock_, *counters_), blobs_);
  }

  bool open_log() {
    LogOptions log_options;
    log_options.folder = root_ + "/log";
    log_options.segment_bytes_max = 300 + below(3000);
    log_options.total_bytes_max = 1000 + below(20'000);
    log_options.sealed_through = [&] {
      return std::min({last_applied_, steps_->first_unsealed() - 1, spans_->first_unsealed() - 1});
    };
    log_options.seal = [&] {
      (void)steps_->seal();
      (void)spans_->seal();
    };
    log_options.dropped_unsealed = [&](uint64_t, uint64_t) { gaps_.steps = gaps_.spans = true; };
    return took(DurableLog::open(log_options, *counters_), log_);
  }

  bool open() {
    if (!open_stores() || !open_log()) return false;
    replayed_.clear();
    const Result<void> done =
        log_->replay([&](uint64_t sequence, RecordKind kind, int64_t received_unix_ns, std::string_view payload) {
          replayed_[sequence] = std::string(payload);
          apply(sequence, kind, received_unix_ns, payload);
        });
    if (!went(done)) return false;
    last_applied_ = log_->next_sequence() - 1;
    steps_->end_replay();
    return true;
  }

  void apply(uint64_t sequence, RecordKind kind, int64_t received_unix_ns, std::string_view payload) {
    const uint64_t number = parse_uint(payload).value_or(0);
    if (kind == RecordKind::kOtlpSpans) {
      if (spans_->holds(sequence, received_unix_ns)) return;
      spans::SpanColumnsBuilder builder;
      builder.begin_source({{"service.name", "shop"}}, "", "");
      Span span;
      span.trace_id = trace_of(number);
      std::memcpy(span.span_id.data(), &number, sizeof number);
      span.name = "get";
      span.start_unix_ns = kStart;
      span.end_unix_ns = kStart + 5;
      span.attributes = {{"value", row_value(number)}};
      builder.add(span);
      spans_->append(builder.take(), received_unix_ns, sequence);
      return;
    }
    steps_->begin_record(sequence, received_unix_ns);
    StepSummary summary;
    summary.step = StepNumber{static_cast<int64_t>(number) / kRanks};
    summary.start_unix_ns = kStart + static_cast<int64_t>(number);
    summary.duration_ns = row_value(number);
    const Rank rank{static_cast<int32_t>(number % kRanks)};
    steps_->append_step({.job_id = "job", .rank = rank, .world_size = kRanks, .host = "node"}, summary,
                        received_unix_ns);
    steps_->end_record();
  }

  static TraceId trace_of(uint64_t number) {
    TraceId id{7};
    std::memcpy(id.data() + 8, &number, sizeof number);
    return id;
  }

  // What the server does, in any order.
  void act() {
    clock_.advance(1'000'000);
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
        append(RecordKind::kOtlpLogs);
        break;
      case 3:
      case 4:
        append(RecordKind::kOtlpSpans);
        break;
      case 5:
        (void)steps_->seal().ok();
        break;
      case 6:
        (void)spans_->seal().ok();
        break;
      case 7:
        steps_->maintain();
        spans_->maintain();
        break;
      case 8:
        save_state();
        break;
      case 9:
        maintain_metrics();
        break;
      case 10:
      case 11:
      case 12:
        send_part();
        break;
      case 13:
        finish_blob();
        break;
      default:
        push();
        break;
    }
  }

  void append(RecordKind kind) {
    const uint64_t number = ++last_number_;
    const std::string payload = std::to_string(number);
    Result<uint64_t> sequence = log_->append(kind, clock_.unix_ns(), payload);
    if (!sequence.ok()) {
      refused_.insert(payload);
      return;
    }
    acknowledged_[*sequence] = payload;
    (kind == RecordKind::kOtlpSpans ? span_numbers_ : step_numbers_).insert(number);
    apply(*sequence, kind, clock_.unix_ns(), payload);
    last_applied_ = *sequence;
    uint64_t oldest = UINT64_MAX;
    for (const auto& segment : std::filesystem::directory_iterator(root_ + "/log"))
      oldest = std::min(oldest, parse_uint(segment.path().stem().string()).value_or(UINT64_MAX));
    oldest_ = std::max(oldest_, oldest);
  }

  void push() {
    const int64_t tick = ++last_tick_;
    std::vector<uint64_t> numbers;
    for (uint64_t left = 1 + below(6); left > 0; --left) {
      const uint64_t number = below(8) == 0 ? series_count_++ : below(series_count_);
      if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
    }
    std::vector<std::string> texts;
    std::vector<double> values;
    for (uint64_t number : numbers) {
      texts.push_back(format("series %llu", static_cast<unsigned long long>(number)));
      values.push_back(metric_value(number, tick));
    }
    const int64_t time_ms = time_of(tick);
    std::vector<PushedSeries> series;
    for (size_t i = 0; i < numbers.size(); ++i) series.push_back({texts[i], {&time_ms, 1}, {&values[i], 1}, {}, {}});
    Result<PushOutcome> outcome =
        metrics_->push(format("stream %d", static_cast<int>(below(3))), series, [&](size_t k) -> Result<Labels> {
          return Labels{{"__name__", "m"}, {"k", std::to_string(numbers[k])}, {"odd", numbers[k] % 2 ? "yes" : "no"}};
        });
    bool is_taken = outcome.ok();
    for (const RefusedSamples& refused : is_taken ? outcome->refused : std::vector<RefusedSamples>{}) {
      is_taken = false;  // which of them it is not is not said
      if (refused.reason != "series_gone") wrong("samples refused: " + refused.example);
    }
    for (uint64_t number : numbers) {
      Sample& sample = samples_[{number, tick}];
      sample.is_needed |= is_taken;
      sample.is_durable |= is_taken && synced_ack_;
      sample.life = life_;
    }
  }
  int64_t time_of(int64_t tick) const { return kStart / 1'000'000 + tick; }

  void maintain_metrics() {
    Result<void> done;
    bool all_lives = true;  // or only what was pushed since the start
    switch (below(6)) {
      case 0:
        done = metrics_->seal();
        break;
      case 1:
        (void)metrics_->merge().ok();
        return;
      case 2:
        (void)metrics_->snapshot().ok();
        return;
      case 3:
        metrics_->set_metadata("m", "gauge", std::to_string(last_tick_), "");
        [[fallthrough]];
      case 4:
        done = metrics_->sync();
        all_lives = false;
        break;
      default:
        metrics_->step();
        if (disk_.is_stopped() || metrics_->trouble()) return;
        break;
    }
    if (!done.ok()) return;
    for (auto& [key, sample] : samples_) sample.is_durable |= sample.is_needed && (all_lives || sample.life == life_);
  }

  // A blob has three parts; which blob and which part decide what is in it.
  static constexpr uint32_t kParts = 3;
  struct Blob {
    std::set<uint32_t> sent;  // acknowledged
    bool is_tried = false;    // to finish
    bool is_stored = false;   // acknowledged
    bool is_removed = false;  // acknowledged
    bool may_be_gone = false;
  };
  static BlobKey key_of(uint64_t blob) {
    return {"job", format("p-%012llx", static_cast<unsigned long long>(blob / 3)),
            format("rank-%llu.json.gz", static_cast<unsigned long long>(blob % 3))};
  }
  static std::string part_of(uint64_t blob, uint32_t part) {
    return std::string(1 + mix(blob) % 300, static_cast<char>('a' + (blob + part) % 26)) + std::to_string(blob);
  }
  static std::string content_of(uint64_t blob) {
    std::string content;
    for (uint32_t part = 1; part <= kParts; ++part) content += part_of(blob, part);
    return content;
  }
  void send_part() {
    const uint64_t number =
        sent_blobs_.empty() || below(4) == 0 ? ++last_blob_ : last_blob_ - below(std::min<uint64_t>(last_blob_, 3));
    const uint32_t part = 1 + static_cast<uint32_t>(below(kParts));
    Blob& blob = sent_blobs_[number];
    if (blob.is_removed || blob.may_be_gone) return;
    const std::string bytes = part_of(number, part);
    const Result<BlobUpload> begun = blobs_->begin(key_of(number), 1);
    if (!begun.ok() || begun->stored) return;
    if (blobs_->put_part(key_of(number), part, bytes, to_text(sha256(bytes))).ok()) blob.sent.insert(part);
  }
  void finish_blob() {
    if (last_blob_ == 0) return;
    const uint64_t number = last_blob_ - below(std::min<uint64_t>(last_blob_, 4));
    Blob& blob = sent_blobs_[number];
    if (blob.is_stored && below(2) == 0) {
      blob.may_be_gone = true;
      blob.is_removed = blobs_->remove(key_of(number)).ok();
      return;
    }
    blob.is_tried = true;
    const Result<BlobFinish> finished =
        blobs_->finish(key_of(number), to_text(sha256(content_of(number))), std::vector<BlobPart>{{1}, {2}, {3}});
    if (!finished.ok()) return;
    if (finished->state == BlobFinish::State::kDiffers) wrong("the parts of a blob are not what was sent");
    if (finished->state == BlobFinish::State::kStored) blob.is_stored = true;
  }

  void save_state() {
    const std::string id = std::to_string(below(20));
    if (below(3) == 0) {
      VerdictFeedback feedback{id, true, Cause::kNone, Cause::kNone, "", ++last_version_};
      feedback.note = std::to_string(row_value(static_cast<uint64_t>(last_version_)));
      Versions& versions = feedback_[id];
      versions.tried = last_version_;
      if (state_->save_feedback(feedback).ok()) versions.kept = last_version_;
      return;
    }
    Verdict verdict;
    verdict.id = id;
    verdict.job_id = "job";
    verdict.state = VerdictState::kConfirmed;
    verdict.found_unix_ns = ++last_version_;
    verdict.sentence =
        format("value %lld end", static_cast<long long>(row_value(static_cast<uint64_t>(last_version_))));
    Versions& versions = verdicts_[id];
    versions.tried = last_version_;
    if (state_->save_verdict(verdict).ok()) versions.kept = last_version_;
  }

  // What must be there is, and nothing else.
  void check() {
    check_log();
    check_steps();
    check_spans();
    check_metrics();
    check_state();
    check_blobs();
  }

  void check_blobs() {
    for (const auto& [number, blob] : sent_blobs_) {
      const std::string name = blob_path(key_of(number));
      Result<std::unique_ptr<BlobReader>> reader = blobs_->open(key_of(number));
      if (reader.ok()) {
        const Result<std::string> content = (*reader)->read(0, 10'000);
        if (!blob.is_tried) wrong(name + " is there, and was never finished");
        if (blob.is_removed) wrong(name + " was removed and is back");
        if (!content.ok() || *content != content_of(number)) wrong(name + " is not what was sent");
        continue;
      }
      if (blob.is_stored && !blob.may_be_gone) wrong(name + " was acknowledged and is not there");
      if (blob.is_tried) continue;
      const Result<BlobUpload> begun = blobs_->begin(key_of(number), 1);
      for (const uint32_t part : blob.sent) {
        const bool is_there =
            begun.ok() &&
            std::any_of(begun->done.begin(), begun->done.end(), [&, blob_number = number](const BlobPart& one) {
              return one.number == part && one.sha256 == to_text(sha256(part_of(blob_number, part)));
            });
        if (!is_there)
          wrong(format("part %u of %s was acknowledged and is not there (%s)", part, name.c_str(),
                       begun.ok() ? format("%zu others are", begun->done.size()).c_str() : begun.error().c_str()));
      }
    }
  }

  void check_log() {
    last_applied_ = 0;
    for (const auto& [sequence, payload] : acknowledged_) {
      if (sequence < oldest_) continue;  // of a segment that was dropped, and may be back if the machine went too
      auto found = replayed_.find(sequence);
      if (found == replayed_.end() && gaps_.log) continue;
      if (found == replayed_.end() || found->second != payload)
        wrong(format("record %llu of the log was acknowledged as %s and is %s",
                     static_cast<unsigned long long>(sequence), payload.c_str(),
                     found == replayed_.end() ? "not there" : found->second.c_str()));
    }
    for (const auto& [sequence, payload] : replayed_) {
      // One that was refused may come back where the disk did not let it be taken back, and go again.
      if (!acknowledged_.contains(sequence) && !refused_.contains(payload))
        wrong(format("record %llu of the log says %s, which nobody wrote", static_cast<unsigned long long>(sequence),
                     payload.c_str()));
      last_applied_ = std::max(last_applied_, sequence);
    }
    if (log_->next_sequence() <= last_applied_) wrong("the log would give a number twice");
  }

  void check_steps() {
    std::set<uint64_t> seen;
    steps_->visit_steps("job", 0_step, kLastStep, [&](const Identity& identity, const StepSummary& summary) {
      const uint64_t number = static_cast<uint64_t>(summary.step.value() * kRanks + identity.rank.value());
      if (!seen.insert(number).second)
        wrong(format("row %llu of steps is there twice", static_cast<unsigned long long>(number)));
      if (summary.duration_ns != row_value(number) || summary.start_unix_ns != kStart + static_cast<int64_t>(number))
        wrong(format("row %llu of steps has another's values", static_cast<unsigned long long>(number)));
    });
    for (uint64_t number : step_numbers_) {
      if (!seen.contains(number) && !gaps_.steps)
        wrong(format("row %llu of steps was acknowledged and is not there", static_cast<unsigned long long>(number)));
    }
  }

  void check_spans() {
    for (uint64_t number : span_numbers_) {
      const Page<StoredSpan> trace = spans_->trace(trace_of(number), 10);
      if (trace.items.empty() && gaps_.spans) continue;
      if (trace.items.size() != 1) {
        wrong(format("span %llu was acknowledged and is there %zu times", static_cast<unsigned long long>(number),
                     trace.items.size()));
      } else if (find_int(trace.items[0].span.attributes, "value") != row_value(number)) {
        wrong(format("span %llu has another's values", static_cast<unsigned long long>(number)));
      }
    }
  }

  void check_metrics() {
    const std::vector<LabelMatcher> all{label_is("__name__", "m")};
    Result<std::unique_ptr<MetricSelection>> selection =
        metrics_->select(all, {.from_ms = INT64_MIN / 2, .to_ms = INT64_MAX / 2});
    if (!selection.ok()) return wrong("metrics cannot be asked: " + selection.error());
    std::set<std::pair<uint64_t, int64_t>> seen;
    for (size_t i = 0; i < (*selection)->size(); ++i) {
      uint64_t number = UINT64_MAX;
      for (const LabelSymbols& label : (*selection)->labels(i)) {
        if ((*selection)->text(label.name) == "k")
          number = parse_uint((*selection)->text(label.value)).value_or(UINT64_MAX);
      }
      SampleColumns columns;
      if (Result<void> read = (*selection)->samples(i, INT64_MIN / 2, INT64_MAX / 2, columns); !read.ok())
        wrong("samples cannot be read: " + read.error());
      for (size_t k = 0; k < columns.times_ms.size(); ++k) {
        const int64_t tick = columns.times_ms[k] - time_of(0);
        if (gaps_.metrics && tick > last_tick_) continue;  // a rollup answers for the raw block that cannot be read
        const std::pair<uint64_t, int64_t> key{number, tick};
        auto known = samples_.find(key);
        if (known == samples_.end() || !seen.insert(key).second ||
            std::bit_cast<uint64_t>(columns.values[k]) != std::bit_cast<uint64_t>(metric_value(number, tick)))
          wrong(format("series %llu has %.17g at %lld, which %s", static_cast<unsigned long long>(number),
                       columns.values[k], static_cast<long long>(tick),
                       known == samples_.end() ? "nobody pushed" : "is another's or there twice"));
      }
    }
    for (const auto& [key, sample] : samples_) {
      if (sample.is_needed && !seen.contains(key) && !gaps_.metrics)
        wrong(format("the sample of series %llu at %lld was acknowledged (%s) and is not there",
                     static_cast<unsigned long long>(key.first), static_cast<long long>(key.second),
                     sample.is_durable ? "synced" : "written"));
    }
  }

  void check_state() {
    auto compare = [&](const char* what, const std::string& id, std::map<std::string, Versions>& known,
                       int64_t version) {
      Versions& versions = known[id];
      if (version < versions.kept || version > versions.tried)
        wrong(format("%s %s is of version %lld; acknowledged was %lld, tried %lld", what, id.c_str(),
                     static_cast<long long>(version), static_cast<long long>(versions.kept),
                     static_cast<long long>(versions.tried)));
      versions.kept = versions.tried = version;
    };
    std::set<std::string> ids;
    for (const StoredVerdict& verdict : state_->verdicts("job")) {
      ids.insert(verdict.id);
      compare("verdict", verdict.id, verdicts_, verdict.found_unix_ns);
      const std::string value =
          format("value %lld end", static_cast<long long>(row_value(static_cast<uint64_t>(verdict.found_unix_ns))));
      if (verdict.json.find(value) == std::string::npos) wrong("verdict " + verdict.id + " has another's sentence");
    }
    for (const auto& [id, versions] : verdicts_) {
      if (versions.kept > 0 && !ids.contains(id)) wrong("verdict " + id + " was saved and is not there");
    }
    ids.clear();
    for (const VerdictFeedback& feedback : state_->feedback()) {
      ids.insert(feedback.verdict_id);
      compare("feedback", feedback.verdict_id, feedback_, feedback.at_unix_ns);
      if (feedback.note != std::to_string(row_value(static_cast<uint64_t>(feedback.at_unix_ns))))
        wrong("feedback " + feedback.verdict_id + " has another's note");
    }
    for (const auto& [id, versions] : feedback_) {
      if (versions.kept > 0 && !ids.contains(id)) wrong("feedback " + id + " was saved and is not there");
    }
  }

  struct Sample {
    bool is_needed = false;   // acknowledged
    bool is_durable = false;  // so that it survives the machine too
    uint64_t life = 0;
  };
  struct Versions {
    int64_t kept = 0, tried = 0;
  };
  struct Gaps {  // of what cannot be read, and the stores say so
    bool log = false, steps = false, spans = false, metrics = false;
  };

  std::mt19937_64 random_;
  const std::string root_;
  SimulatedDisk disk_;
  testing::FakeClock clock_{kStart};
  bool synced_ack_ = false;
  std::unique_ptr<Counters> counters_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<MetricEngine> metrics_;
  std::unique_ptr<ColumnarStepStore> steps_;
  std::unique_ptr<ColumnarSpanStore> spans_;
  std::unique_ptr<BlobStore> blobs_;
  std::map<uint64_t, Blob> sent_blobs_;
  uint64_t last_blob_ = 0;
  std::unique_ptr<DurableLog> log_;
  std::string wrong_, start_error_;
  Gaps gaps_;
  uint64_t faults_before_ = 0, life_ = 0;

  // What was done.
  uint64_t last_number_ = 0, last_applied_ = 0, oldest_ = 0, series_count_ = 5;
  int64_t last_tick_ = 0, last_version_ = 0;
  std::map<uint64_t, std::string> acknowledged_, replayed_;  // by sequence
  std::set<std::string> refused_;
  std::set<uint64_t> step_numbers_, span_numbers_;
  std::map<std::pair<uint64_t, int64_t>, Sample> samples_;
  std::map<std::string, Versions> verdicts_, feedback_;
};

std::filesystem::path fast_disk() {
  return std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
}

TEST(CrashFaults, WhatWasAcknowledgedIsThereWithItsOwnValuesAfterEveryCrash) {
  Met met;
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    testing::TemporaryFolder folder(fast_disk());
    std::string wrong;
    {
      World world(folder.path(), seed);
      wrong = world.run(met);
    }
    if (!wrong.empty()) folder.keep();
    ASSERT_EQ(wrong, "") << "seed " << seed << ", left in " << folder.path()
                         << "; again: crash_faults_test --seeds 1 --first-seed " << seed;
  }
  std::printf(
      "%llu seeds: %llu lives, %llu power losses, %llu faults, %llu starts that failed, %llu with a gap; %llu "
      "acknowledged, %llu "
      "refused\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(met.lives),
      static_cast<unsigned long long>(met.power_losses), static_cast<unsigned long long>(met.faults),
      static_cast<unsigned long long>(met.failed_starts), static_cast<unsigned long long>(met.gaps),
      static_cast<unsigned long long>(met.acknowledged), static_cast<unsigned long long>(met.refused));
  if (seeds < 100) return;
  EXPECT_GT(met.power_losses, seeds / 2);
  EXPECT_GT(met.faults, seeds);
  EXPECT_GT(met.acknowledged, seeds * 50);
  EXPECT_GT(met.refused, seeds / 10);
  EXPECT_GT(met.failed_starts, seeds / 10);
  EXPECT_GT(met.gaps, 0u);
  EXPECT_LT(met.gaps, met.lives / 5);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (std::getenv("LOCKSTEP_LOG") == nullptr) lockstep::set_log_level(static_cast<lockstep::LogLevel>(99));
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (flag == "--seeds") lockstep::seeds = value;
    if (flag == "--first-seed") lockstep::first_seed = value;
  }
  return RUN_ALL_TESTS();
}
