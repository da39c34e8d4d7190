#include "server/captures/analyzer_run.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep {
namespace {

using State = AnalyzerOutcome::State;

constexpr size_t kPieceBytes = 1 << 20;
constexpr int kLookMs = 200;
constexpr int64_t kEndMs = 5'000;

class Run {
 public:
  Run(const AnalyzerSettings& settings, const std::stop_token& stop)
      : settings_(settings),
        stop_(stop),
        deadline_ns_(SystemClock().monotonic_ns() + settings.cpu_s * kWallFactor * 1'000'000'000) {}

  AnalyzerOutcome run(std::vector<AnalyzerInput>& inputs,
                      const std::function<Result<void>(AnalyzerFrame, std::string_view)>& take) {
    ChildProcess::Options options;
    options.arguments = settings_.command;
    options.arguments.push_back(std::to_string(settings_.memory_bytes));
    options.arguments.push_back(std::to_string(settings_.cpu_s));
    options.inherits_environment = false;  // keys of a bucket may be in it
    options.stderr_path = "/dev/null";
    options.connect_stdin = true;
    Result<ChildProcess> child = ChildProcess::start(std::move(options));
    if (!child.ok()) return {State::kNotNow, child.error()};
    input_ = child->take_input();
    output_ = child->take_output();
    AnalyzerOutcome outcome = feed(inputs);
    input_.reset();
    if (outcome.state == State::kDone) outcome = receive(take);
    if (outcome.state == State::kDone) return outcome;
    // How it ended says more than that it did.
    if (is_gone_) {
      if (const Result<int> code = child->wait(kEndMs); code.ok()) outcome.line = how_it_ended(*code);
    }
    return outcome;
  }

 private:
  // Until it can be read or written.
  std::optional<AnalyzerOutcome> wait_for(int fd, short what) {
    while (true) {
      if (stop_.stop_requested()) return AnalyzerOutcome{State::kStopped, "the server is stopping"};
      if (SystemClock().monotonic_ns() > deadline_ns_)
        return AnalyzerOutcome{State::kFailed, format("analysing its traces took longer than %lld s",
                                                      static_cast<long long>(settings_.cpu_s * kWallFactor))};
      pollfd wanted{fd, what, 0};
      if (::poll(&wanted, 1, kLookMs) > 0) return std::nullopt;
    }
  }

  AnalyzerOutcome feed(std::vector<AnalyzerInput>& inputs) {
    std::vector<AnalyzerTrace> traces;
    for (const AnalyzerInput& input : inputs) traces.push_back(input.trace);
    AnalyzerOutcome outcome = write(analyzer_manifest(traces));
    for (AnalyzerInput& input : inputs) {
      for (uint64_t from = 0; from < input.trace.bytes && outcome.state == State::kDone && !is_closed_;) {
        const Result<std::string> piece = input.reader->read(from, kPieceBytes);
        if (!piece.ok()) return {State::kNotNow, piece.error()};
        if (piece->empty()) return {State::kNotNow, input.trace.file + " has become shorter"};
        from += piece->size();
        outcome = write(*piece);
      }
      input.reader.reset();
    }
    return outcome;
  }

  // A child that reads no more has said why, or will be found to have ended.
  AnalyzerOutcome write(std::string_view bytes) {
    while (!bytes.empty()) {
      if (std::optional<AnalyzerOutcome> over = wait_for(input_.get(), POLLOUT)) return *over;
      const ssize_t sent = ::send(input_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (sent < 0) {
        is_closed_ = true;
        return {};
      }
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return {};
  }

  // So many bytes of its output; fewer: it has ended.
  std::optional<AnalyzerOutcome> read(size_t bytes, std::string& into) {
    into.resize(bytes);
    for (size_t got = 0; got < bytes;) {
      if (std::optional<AnalyzerOutcome> over = wait_for(output_.get(), POLLIN)) return over;
      const ssize_t more = ::read(output_.get(), into.data() + got, bytes - got);
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0) {
        is_gone_ = true;
        return AnalyzerOutcome{State::kFailed, "the process that analyses its traces has ended"};
      }
      got += static_cast<size_t>(more);
    }
    return std::nullopt;
  }

  AnalyzerOutcome receive(const std::function<Result<void>(AnalyzerFrame, std::string_view)>& take) {
    std::string bytes;
    while (true) {
      if (std::optional<AnalyzerOutcome> over = read(kFrameHeadBytes, bytes)) return *over;
      const Result<FrameHead> head = parse_frame_head(bytes);
      if (!head.ok()) return {State::kFailed, "the process that analyses its traces: " + head.error()};
      if (std::optional<AnalyzerOutcome> over = read(head->bytes, bytes)) return *over;
      if (head->frame == AnalyzerFrame::kDone) return {};
      if (head->frame == AnalyzerFrame::kError) return {State::kFailed, as_one_line(bytes)};
      if (const Result<void> taken = take(head->frame, bytes); !taken.ok()) return {State::kNotNow, taken.error()};
    }
  }

  std::string how_it_ended(int code) const {
    if (code == 128 + SIGXCPU || (code == 128 + SIGKILL && !stop_.stop_requested()))
      return code == 128 + SIGXCPU
                 ? format("analysing its traces took more than %lld s of CPU time (--analysis-cpu-s)",
                          static_cast<long long>(settings_.cpu_s))
                 : "the process that analyses its traces was killed: the machine may be short of memory";
    if (code > 128)
      return format("the process that analyses its traces was ended by signal %d (%s)", code - 128,
                    strsignal(code - 128));
    return format("the process that analyses its traces ended with exit code %d", code);
  }

  const AnalyzerSettings& settings_;
  const std::stop_token& stop_;
  const int64_t deadline_ns_;
  UniqueFd input_;
  UniqueFd output_;
  bool is_closed_ = false;  // the child reads no more
  bool is_gone_ = false;    // its output has ended
};

}  // namespace

AnalyzerOutcome run_analyzer(const AnalyzerSettings& settings, std::vector<AnalyzerInput> inputs,
                             const std::function<Result<void>(AnalyzerFrame, std::string_view)>& take,
                             const std::stop_token& stop) {
  return Run(settings, stop).run(inputs, take);
}

}  // namespace lockstep
