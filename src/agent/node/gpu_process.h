// The process that reads the GPUs, from outside: starts it, asks it, and never waits for it.
//
// A wedged driver parks whoever calls it in the kernel, for ever and beyond the reach of signals, and a vendor's
// library may crash. So the libraries are called in a child (sources/gpu/gpu_child.h), which is asked for one reading
// at a time. A child that does not answer is hung: that is told at once, and it is killed. One that cannot be killed is
// left alone until the driver lets go of it, and no other is started before: at most one process of ours is ever stuck.
// A child that crashes or that ends by itself is started again, after longer and longer pauses.
//
// drain() lets go of every GPU, for a reset or a new driver: no process of ours has a handle then.
//
// Thread rule: Confined, to a thread that lives as long as the program: the child dies with the thread that started it.
// Nothing here blocks but stop(), for less than 3 s.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "sources/gpu/gpu_reader.h"
#include "sources/gpu/snapshot_json.h"
#include "sources/node_source.h"

namespace lockstep {

struct GpuReaderOptions {
  // [0] is the program, "/proc/self/exe" in the agent; with the arguments that lead it to run_gpu_child().
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  int64_t hang_after_ms = 5'000;
  int64_t open_within_ms = 60'000;  // a driver that keeps nothing in memory takes seconds for each GPU
  int64_t pause_first_ms = 10'000;  // before a new child, after a crash or a hang; doubles each time
  int64_t pause_most_ms = 300'000;
  int64_t well_after_ms = 60'000;    // a child that has answered for so long is a good one: the pause starts over
  int64_t absent_again_ms = 60'000;  // no library or no GPU: look again
  int64_t drain_kill_after_ms = 2'000;
};

enum class GpuReaderState : uint8_t {
  kStopped,
  kStarting,  // its library is being opened
  kRunning,
  kAbsent,  // no library or no GPU
  kHung,
  kFailed,  // crashed, ended or spoke nonsense; a new one comes after a pause
  kDraining,
  kDrained,  // no GPU is held
};
const char* to_text(GpuReaderState state);  // "running"

struct GpuReaderStatus {
  GpuReaderState state = GpuReaderState::kStopped;
  int64_t since_unix_ns = 0;       // of the state
  int64_t hung_since_unix_ns = 0;  // 0: it answers. Stays until the first answer after a hang
  pid_t pid = -1;                  // of the child; -1: none
  std::string why;                 // absent, hung, failed: one line
  int64_t starts = 0;
  int64_t refused_lines = 0;
  int64_t skipped_requests = 0;
};

class GpuReaderProcess {
 public:
  GpuReaderProcess(GpuReaderOptions options, const Clock& clock);
  ~GpuReaderProcess();  // stop()
  GpuReaderProcess(const GpuReaderProcess&) = delete;
  GpuReaderProcess& operator=(const GpuReaderProcess&) = delete;

  void start();
  // Asks for a reading; its answer comes from a later poll(). False where it cannot be asked now: no child is running,
  // or the request before is not answered yet (which is counted); what it wanted beyond a plain reading (slow,
  // processes) is asked for with the next one. The first of a child asks for everything.
  bool request(const GpuTick& tick);
  // The newest answer since the last call, if any; moves everything else on. Call it often: ten times a second.
  std::optional<GpuSnapshot> poll();
  // What happened since the last call: events ("gpu.hung", "gpu.answers_again", "gpu.reader_failed"), notes, and the
  // reader's own metrics (kGpuOwnMetrics).
  void report(NodeReadings& out);
  const GpuReaderStatus& status() const { return status_; }

  // Ends the child and starts none: until resume(), or for so long where for_ms is above 0. poll() has to go on until
  // status() says kDrained; with a child that cannot be killed it stays kDraining.
  void drain(int64_t for_ms = 0);
  void resume();
  void stop();
  // Readable when there may be something for poll(); -1: nothing to wait for.
  int wait_fd() const { return output_.get(); }

 private:
  void launch();
  void read_output(std::optional<GpuSnapshot>& newest);
  void take_line(std::string_view line, std::optional<GpuSnapshot>& newest);
  void take_snapshot(GpuLine line, std::optional<GpuSnapshot>& newest);
  void check_deadline();
  void reap();
  void on_end(int wait_status);
  void kill_child();
  void fail(std::string why, bool is_new);
  void enter(GpuReaderState state, std::string why = "");
  void plan_restart();
  void emit(const char* name, EventSeverity severity, std::string text, std::string meaning, std::string action);
  int64_t now_ms() const { return clock_.monotonic_ns() / 1'000'000; }

  const GpuReaderOptions options_;
  const Clock& clock_;
  GpuReaderStatus status_;

  UniqueFd output_;
  UniqueFd input_;
  std::string buffered_;
  GpuLineReader lines_;
  bool killed_ = false;     // SIGKILL was sent to this child
  std::string last_words_;  // the error it gave before it ended
  bool absent_ = false;     // as it said in them
  std::string bad_line_;    // why the last bad line of this child was refused

  uint64_t request_number_ = 0;
  bool awaiting_ = false;
  bool owed_slow_ = false;
  bool owed_processes_ = false;
  int64_t asked_ns_ = 0;  // monotonic
  int64_t asked_unix_ns_ = 0;
  int64_t launched_ms_ = 0;
  double answer_seconds_ = -1;

  int64_t pause_ms_ = 0;
  int64_t next_start_ms_ = -1;  // -1: none planned
  int64_t drain_kill_ms_ = 0;
  int64_t drain_until_ms_ = 0;  // 0: until resume()
  bool resume_after_drain_ = false;

  std::string absent_reported_;  // the reason that was noted last
  std::vector<NodeEvent> events_;
  std::vector<std::string> notes_;
  LabelSet no_labels_;
};

}  // namespace lockstep
