#include "server/captures/capture_analyzer.h"

#include <simdjson.h>

#include <chrono>
#include <optional>

#include "base/contained.h"
#include "base/log.h"
#include "base/text.h"
#include "model/capture_results.h"
#include "server/captures/blob_writer.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLookEvery{500};
constexpr std::chrono::seconds kAfterFailure{30};

struct Part {
  AnalyzerFrame frame;
  std::string_view file;
  uint64_t bytes_max;
};
constexpr Part kParts[] = {
    {AnalyzerFrame::kSummary, kSummaryFile, kSummaryBytesMax},
    {AnalyzerFrame::kTimeline, kTimelineFile, 2ull << 30},
    {AnalyzerFrame::kPerfetto, kPerfettoFile, 1ull << 30},
};

const Part& part_of(AnalyzerFrame frame) {
  for (const Part& part : kParts) {
    if (part.frame == frame) return part;
  }
  return kParts[0];
}

// What comes from the child, into blobs: one after the other.
class Results {
 public:
  Results(BlobStore& blobs, const Capture& capture) : blobs_(blobs), capture_(capture) {}

  Result<void> take(AnalyzerFrame frame, std::string_view bytes) {
    if (!writer_ || frame != frame_) {
      LOCKSTEP_TRY(finish());
      frame_ = frame;
      bytes_ = 0;
      if (frame == AnalyzerFrame::kSummary) summary_.clear();
      writer_.emplace(LOCKSTEP_TRY(BlobWriter::begin(
          blobs_, {capture_.order.job_id, capture_.order.capture, std::string(part_of(frame).file)})));
    }
    bytes_ += bytes.size();
    if (bytes_ > part_of(frame).bytes_max)
      return Error{format("what was found takes more than %s",
                          human_bytes(static_cast<double>(part_of(frame).bytes_max)).c_str()),
                   ErrorCode::kTooLarge};
    if (frame == AnalyzerFrame::kSummary) summary_ += bytes;
    return writer_->add(bytes);
  }
  Result<void> finish() {
    if (!writer_) return {};
    // It is put into answers as it stands.
    if (frame_ == AnalyzerFrame::kSummary) {
      simdjson::dom::parser parser;
      simdjson::dom::object whole;
      if (parser.parse(summary_).get(whole)) return Error{"what was found is no JSON", ErrorCode::kTooLarge};
    }
    Result<void> finished = writer_->finish();
    writer_.reset();
    return finished;
  }
  const std::string& summary() const { return summary_; }

 private:
  BlobStore& blobs_;
  const Capture& capture_;
  AnalyzerFrame frame_ = AnalyzerFrame::kDone;
  uint64_t bytes_ = 0;
  std::string summary_;
  std::optional<BlobWriter> writer_;
};

}  // namespace

CaptureAnalyzer::CaptureAnalyzer(AnalyzerSettings settings, Captures& captures, BlobStore& blobs, AnalysisTurn& turn,
                                 Analysed analysed, Counters& counters)
    : settings_(std::move(settings)),
      captures_(captures),
      blobs_(blobs),
      turn_(turn),
      analysed_(std::move(analysed)),
      counters_(counters),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void CaptureAnalyzer::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool goes_on = false;
    contained("server", "the analysis of a capture", [&] { goes_on = poll(stop); });
    MutexLock lock(mutex_);
    if (goes_on) {
      ends_.wait_for(mutex_, stop, kLookEvery, [] { return false; });
    } else {
      ends_.wait_for(mutex_, stop, kAfterFailure, [] { return false; });
    }
  }
}

bool CaptureAnalyzer::poll(const std::stop_token& stop) {
  while (captures_.has_for_analysis()) {
    if (!turn_.take(stop)) return true;
    struct Turn {
      AnalysisTurn& turn;
      ~Turn() { turn.give_back(); }
    } const ours{turn_};
    const std::optional<Capture> capture = captures_.take_for_analysis();
    if (!capture) return true;
    const std::string& id = capture->order.capture;
    AnalyzerOutcome outcome{AnalyzerOutcome::State::kNotNow, "the server could not analyse it"};
    std::string summary;
    contained("server", "the analysis of a capture", [&] { outcome = analyze(*capture, summary, stop); });
    if (outcome.state == AnalyzerOutcome::State::kStopped) return true;  // the next start finds it as it was
    if (outcome.state != AnalyzerOutcome::State::kDone) remove_results(*capture);
    if (outcome.state == AnalyzerOutcome::State::kNotNow && ++tries_[id] < kTriesMax) {
      counters_.add("lockstep_captures_analysed_total", "result=\"again\"");
      captures_.set_summary(id, {});
      return false;
    }
    tries_.erase(id);
    const bool is_ready = outcome.state == AnalyzerOutcome::State::kDone;
    counters_.add("lockstep_captures_analysed_total", is_ready ? "result=\"ready\"" : "result=\"failed\"");
    if (!is_ready) LOCKSTEP_LOG_WARN("captures", "%s cannot be analysed: %s", id.c_str(), outcome.line.c_str());
    captures_.set_summary(id, {is_ready ? SummaryState::kReady : SummaryState::kFailed, outcome.line,
                               static_cast<int64_t>(capture->traces())});
    if (is_ready) {
      if (const std::optional<Capture> whole = captures_.find(capture->order.job_id, id)) analysed_(*whole, summary);
    }
  }
  return true;
}

AnalyzerOutcome CaptureAnalyzer::analyze(const Capture& capture, std::string& summary, const std::stop_token& stop) {
  using State = AnalyzerOutcome::State;
  std::vector<AnalyzerInput> inputs;
  for (const CaptureRank& rank : capture.ranks) {
    if (rank.key.empty()) continue;
    const std::string file = profile_file_name(rank.rank);
    Result<std::unique_ptr<BlobReader>> reader = blobs_.open({capture.order.job_id, capture.order.capture, file});
    if (!reader.ok() && reader.code() == ErrorCode::kNotFound) continue;  // removed meanwhile
    if (!reader.ok()) return {State::kNotNow, reader.error()};
    const int64_t first_step = rank.first_step == kNoStep ? -1 : rank.first_step.value();
    inputs.push_back({{rank.rank, first_step, (*reader)->bytes(), file}, std::move(*reader)});
  }
  if (inputs.empty()) return {State::kFailed, "none of its traces is stored any more"};
  Results results(blobs_, capture);
  Result<void> kept;
  AnalyzerOutcome outcome = run_analyzer(
      settings_, std::move(inputs),
      [&](AnalyzerFrame frame, std::string_view bytes) { return kept = results.take(frame, bytes); }, stop);
  if (outcome.state == State::kDone) {
    kept = results.finish();
    if (!kept.ok()) outcome = {State::kNotNow, kept.error()};
  }
  if (!kept.ok() && kept.code() == ErrorCode::kTooLarge) outcome.state = State::kFailed;  // now and at each other try
  summary = results.summary();
  return outcome;
}

void CaptureAnalyzer::remove_results(const Capture& capture) {
  for (const Part& part : kParts)
    (void)blobs_.remove({capture.order.job_id, capture.order.capture, std::string(part.file)});
}

}  // namespace lockstep
