#include "agent/node/gpu_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/process.h"
#include "base/text.h"
#include "sources/gpu/gpu_own_metrics.h"

namespace lockstep {
namespace {

constexpr int kNiceness = 5;
constexpr size_t kEventsMax = 64;  // between two reports
constexpr int64_t kStopKillAfterMs = 1'000;
constexpr int64_t kStopGiveUpAfterMs = 2'000;

std::string how_it_ended(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return format("ended by signal %d (%s)", number, strsignal(number));
  }
  return format("ended with exit code %d", WEXITSTATUS(wait_status));
}

std::string seconds(int64_t ms) {
  return human_duration(static_cast<double>(ms) * 1e6);
}

}  // namespace

const char* to_text(GpuReaderState state) {
  switch (state) {
    case GpuReaderState::kStopped:
      return "stopped";
    case GpuReaderState::kStarting:
      return "starting";
    case GpuReaderState::kRunning:
      return "running";
    case GpuReaderState::kAbsent:
      return "absent";
    case GpuReaderState::kHung:
      return "hung";
    case GpuReaderState::kFailed:
      return "failed";
    case GpuReaderState::kDraining:
      return "draining";
    case GpuReaderState::kDrained:
      return "drained";
  }
  return "?";
}

GpuReaderProcess::GpuReaderProcess(GpuReaderOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock), no_labels_(std::make_shared<const Labels>()) {}

GpuReaderProcess::~GpuReaderProcess() {
  stop();
}

void GpuReaderProcess::start() {
  if (status_.state == GpuReaderState::kStopped && status_.pid < 0) launch();
}

void GpuReaderProcess::launch() {
  next_start_ms_ = -1;
  buffered_.clear();
  bad_line_.clear();
  last_words_.clear();
  absent_ = killed_ = awaiting_ = false;
  owed_slow_ = owed_processes_ = true;  // a new child has told nothing yet
  lines_ = GpuLineReader();             // a new child describes its GPUs anew
  ChildProcess::Options child_options;
  child_options.arguments = options_.command;
  child_options.environment = options_.environment;
  child_options.connect_stdin = true;
  child_options.niceness = kNiceness;
  Result<ChildProcess> child = ChildProcess::start(std::move(child_options));
  ++status_.starts;
  if (!child.ok()) {
    fail(child.error(), child.error() != status_.why);
    return;
  }
  output_ = child->take_output();
  input_ = child->take_input();
  status_.pid = child->release();
  fcntl(output_.get(), F_SETFL, fcntl(output_.get(), F_GETFL) | O_NONBLOCK);
  asked_ns_ = clock_.monotonic_ns();
  launched_ms_ = now_ms();
  asked_unix_ns_ = clock_.unix_ns();
  // A hang is over with the first answer, not with a new child.
  enter(GpuReaderState::kStarting, status_.hung_since_unix_ns != 0 ? status_.why : "");
}

bool GpuReaderProcess::request(const GpuTick& tick) {
  owed_slow_ = owed_slow_ || tick.slow;
  owed_processes_ = owed_processes_ || tick.processes;
  if (status_.state != GpuReaderState::kRunning) return false;
  if (awaiting_) {
    ++status_.skipped_requests;
    return false;
  }
  const std::string line = to_line(GpuRequest{++request_number_, owed_slow_, owed_processes_});
  owed_slow_ = owed_processes_ = false;
  // One short line at a time: a socket's buffer that has no room for it belongs to a child that does not read.
  const ssize_t sent = send(input_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  awaiting_ = true;  // also where it failed: the child has ended, or will be found hung
  asked_ns_ = clock_.monotonic_ns();
  asked_unix_ns_ = clock_.unix_ns();
  return sent == static_cast<ssize_t>(line.size());
}

std::optional<GpuSnapshot> GpuReaderProcess::poll() {
  std::optional<GpuSnapshot> newest;
  if (output_.valid()) read_output(newest);
  reap();
  if (status_.pid >= 0) check_deadline();
  if (status_.state == GpuReaderState::kDrained && drain_until_ms_ > 0 && now_ms() >= drain_until_ms_) resume();
  if (status_.pid < 0 && next_start_ms_ >= 0 && now_ms() >= next_start_ms_) launch();
  return newest;
}

void GpuReaderProcess::read_output(std::optional<GpuSnapshot>& newest) {
  char chunk[65'536];
  while (output_.valid()) {
    const ssize_t got = read(output_.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;  // nothing more now
    if (got == 0) {       // it has ended, or will be found silent
      output_.reset();
      return;
    }
    buffered_.append(chunk, static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end; (end = buffered_.find('\n', begin)) != std::string::npos; begin = end + 1)
      take_line(std::string_view(buffered_).substr(begin, end - begin), newest);
    buffered_.erase(0, begin);
    if (buffered_.size() > kGpuLineBytesMax) {
      ++status_.refused_lines;
      buffered_.clear();
      kill_child();
      fail(format("its answer has more than %zu bytes", kGpuLineBytesMax), true);
      return;
    }
  }
}

void GpuReaderProcess::take_line(std::string_view text, std::optional<GpuSnapshot>& newest) {
  if (status_.state != GpuReaderState::kStarting && status_.state != GpuReaderState::kRunning) return;
  Result<GpuLine> line = lines_.read(text);
  if (!line.ok()) {
    ++status_.refused_lines;
    if (bad_line_.empty()) notes_.push_back("gpu reader: " + line.error());
    bad_line_ = line.error();
    return;
  }
  switch (line->kind) {
    case GpuLine::Kind::kReady:
      if (status_.state != GpuReaderState::kStarting) return;
      enter(GpuReaderState::kRunning, status_.hung_since_unix_ns != 0 ? status_.why : "");
      return;
    case GpuLine::Kind::kError:
      last_words_ = std::move(line->text);
      absent_ = line->absent;
      return;
    case GpuLine::Kind::kSnapshot:
      take_snapshot(std::move(*line), newest);
      return;
  }
}

void GpuReaderProcess::take_snapshot(GpuLine line, std::optional<GpuSnapshot>& newest) {
  if (!awaiting_ || line.request != request_number_ || status_.state != GpuReaderState::kRunning) {
    ++status_.refused_lines;
    return;
  }
  awaiting_ = false;
  bad_line_.clear();
  answer_seconds_ = static_cast<double>(clock_.monotonic_ns() - asked_ns_) / 1e9;
  if (now_ms() - launched_ms_ >= options_.well_after_ms) pause_ms_ = 0;
  if (status_.hung_since_unix_ns != 0) {
    emit("gpu.answers_again", EventSeverity::kInfo,
         format("the GPU driver answers again, after %s",
                seconds((clock_.unix_ns() - status_.hung_since_unix_ns) / 1'000'000).c_str()),
         "GPU telemetry is back", "");
    status_.hung_since_unix_ns = 0;
    status_.why.clear();
  }
  if (!absent_reported_.empty()) {
    notes_.push_back("gpu reader: GPUs are there now");
    absent_reported_.clear();
  }
  newest = std::move(line.snapshot);
}

void GpuReaderProcess::check_deadline() {
  const int64_t waited_ms = (clock_.monotonic_ns() - asked_ns_) / 1'000'000;
  if (status_.state == GpuReaderState::kDraining) {
    if (now_ms() >= drain_kill_ms_) kill_child();
    return;
  }
  const bool opening = status_.state == GpuReaderState::kStarting;
  const bool late = (opening && waited_ms >= options_.open_within_ms) ||
                    (status_.state == GpuReaderState::kRunning && awaiting_ && waited_ms >= options_.hang_after_ms);
  if (!late) return;
  const char letter = process_state(status_.pid).letter;
  kill_child();
  if (!bad_line_.empty()) {
    fail(bad_line_, true);
    return;
  }
  const std::string why = format("%s for %s (process %d, state %c)",
                                 opening ? "the GPU driver has not opened" : "the GPU driver has not answered",
                                 seconds(waited_ms).c_str(), static_cast<int>(status_.pid), letter);
  if (status_.hung_since_unix_ns == 0) {
    status_.hung_since_unix_ns = asked_unix_ns_;
    emit("gpu.hung", EventSeverity::kCritical, why,
         "the GPU driver does not answer: jobs on this node may hang with it",
         "look for NVRM or amdgpu lines in the kernel log; drain the node; reset the GPU or reboot");
  }
  enter(GpuReaderState::kHung, why);
  plan_restart();
}

void GpuReaderProcess::kill_child() {
  input_.reset();
  if (status_.pid < 0 || killed_) return;
  killed_ = true;
  kill(status_.pid, SIGKILL);
}

void GpuReaderProcess::reap() {
  if (status_.pid < 0) return;
  int wait_status = 0;
  const pid_t ended = waitpid(status_.pid, &wait_status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return;
  if (ended < 0) wait_status = 0;  // somebody else waited for it; how it ended is not known
  status_.pid = -1;
  on_end(wait_status);
}

void GpuReaderProcess::on_end(int wait_status) {
  // What it said last may still be in the pipe.
  std::optional<GpuSnapshot> too_late;
  if (output_.valid()) read_output(too_late);
  output_.reset();
  input_.reset();
  switch (status_.state) {
    case GpuReaderState::kDraining:
      enter(GpuReaderState::kDrained);
      status_.hung_since_unix_ns = 0;
      if (resume_after_drain_) resume();
      return;
    case GpuReaderState::kStopped:
    case GpuReaderState::kHung:
    case GpuReaderState::kFailed:
      return;  // known already; what comes next is planned
    default:
      break;
  }
  if (absent_) {
    enter(GpuReaderState::kAbsent, last_words_);
    if (absent_reported_ != last_words_) notes_.push_back("gpu reader: " + last_words_);
    absent_reported_ = last_words_;
    status_.hung_since_unix_ns = 0;
    next_start_ms_ = now_ms() + options_.absent_again_ms;
    return;
  }
  fail(last_words_.empty() ? how_it_ended(wait_status) : last_words_, true);
}

void GpuReaderProcess::fail(std::string why, bool is_new) {
  enter(GpuReaderState::kFailed, std::move(why));
  plan_restart();
  if (!is_new) return;
  emit("gpu.reader_failed", EventSeverity::kWarn,
       format("the GPU reader failed: %s; next one in %s", status_.why.c_str(), seconds(pause_ms_).c_str()),
       "no GPU telemetry until it runs again", "");
}

void GpuReaderProcess::plan_restart() {
  pause_ms_ = pause_ms_ == 0 ? options_.pause_first_ms : std::min(pause_ms_ * 2, options_.pause_most_ms);
  next_start_ms_ = now_ms() + pause_ms_;
}

void GpuReaderProcess::enter(GpuReaderState state, std::string why) {
  if (status_.state != state) status_.since_unix_ns = clock_.unix_ns();
  status_.state = state;
  status_.why = std::move(why);
  awaiting_ = false;
}

void GpuReaderProcess::emit(const char* name, EventSeverity severity, std::string text, std::string meaning,
                            std::string action) {
  if (events_.size() == kEventsMax) return;
  NodeEvent event;
  event.name = name;
  event.time_unix_ns = clock_.unix_ns();
  event.severity = severity;
  event.text = std::move(text);
  event.meaning = std::move(meaning);
  event.action = std::move(action);
  event.source = "agent";
  events_.push_back(std::move(event));
}

void GpuReaderProcess::report(NodeReadings& out) {
  for (NodeEvent& event : events_) {
    if (event.severity != EventSeverity::kInfo) ++out.failures;
    out.notes.push_back(event.text);
    out.events.push_back(std::move(event));
  }
  for (std::string& note : notes_) out.notes.push_back(std::move(note));
  events_.clear();
  notes_.clear();
  if (status_.state == GpuReaderState::kStopped) return;

  auto add = [&](GpuOwnMetric metric, double value) { out.add(own_metric(metric), no_labels_, value); };
  // A node without GPUs says only that nothing hangs.
  const int64_t hung_ns = status_.hung_since_unix_ns == 0 ? 0 : clock_.unix_ns() - status_.hung_since_unix_ns;
  add(GpuOwnMetric::kReaderHungSeconds, static_cast<double>(std::max<int64_t>(0, hung_ns)) / 1e9);
  if (status_.state == GpuReaderState::kAbsent) return;
  const bool well = status_.state == GpuReaderState::kRunning && status_.hung_since_unix_ns == 0;
  add(GpuOwnMetric::kReaderUp, well ? 1 : 0);
  if (answer_seconds_ >= 0) add(GpuOwnMetric::kReaderAnswerSeconds, answer_seconds_);
  add(GpuOwnMetric::kReaderStarts, static_cast<double>(status_.starts));
  add(GpuOwnMetric::kReaderRefusedLines, static_cast<double>(status_.refused_lines));
  add(GpuOwnMetric::kReaderSkippedRequests, static_cast<double>(status_.skipped_requests));
}

void GpuReaderProcess::drain(int64_t for_ms) {
  if (status_.state == GpuReaderState::kStopped) return;
  drain_until_ms_ = for_ms > 0 ? now_ms() + for_ms : 0;
  resume_after_drain_ = false;
  next_start_ms_ = -1;
  if (status_.state == GpuReaderState::kDraining || status_.state == GpuReaderState::kDrained) return;
  input_.reset();  // asks it to end
  drain_kill_ms_ = now_ms() + options_.drain_kill_after_ms;
  enter(status_.pid < 0 ? GpuReaderState::kDrained : GpuReaderState::kDraining);
  // Whoever is stuck still hangs.
  if (status_.pid < 0) status_.hung_since_unix_ns = 0;
}

void GpuReaderProcess::resume() {
  if (status_.state == GpuReaderState::kDraining) {
    resume_after_drain_ = true;
    return;
  }
  if (status_.state != GpuReaderState::kDrained) return;
  resume_after_drain_ = false;
  drain_until_ms_ = 0;
  pause_ms_ = 0;
  launch();
}

void GpuReaderProcess::stop() {
  const SystemClock real;  // a clock that stands must not keep us here
  const int64_t begin_ms = real.monotonic_ns() / 1'000'000;
  enter(GpuReaderState::kStopped);
  next_start_ms_ = -1;
  input_.reset();
  output_.reset();
  while (status_.pid >= 0) {
    reap();
    const int64_t waited_ms = real.monotonic_ns() / 1'000'000 - begin_ms;
    if (waited_ms >= kStopKillAfterMs) kill_child();
    // One that does not die even then waits in the driver; init takes it over.
    if (waited_ms >= kStopGiveUpAfterMs) return;
    if (status_.pid >= 0) usleep(2'000);
  }
}

}  // namespace lockstep
