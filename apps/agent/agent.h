// The parts of a running agent and its main loop.
//
// Order of start: open what needs root and give root up (OpenedParts), start the exporter, make the watches and their
// threads (Agent), open the page, say "ready". Order of stop follows the data: what reads the node, the last look at
// the recorders, the exporter, the page.
// Thread rule: Confined; one in a process.
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/control_socket.h"
#include "agent/counters_table.h"
#include "agent/detail/step_traces.h"
#include "agent/evidence/evidence_uploads.h"
#include "agent/evidence/evidence_watch.h"
#include "agent/evidence/ras_watch.h"
#include "agent/export/command_poll.h"
#include "agent/export/exporter.h"
#include "agent/heartbeat.h"
#include "agent/node/node_idle.h"
#include "agent/node/node_watch.h"
#include "agent/profile/profile_watch.h"
#include "agent/ranks/callback_cost.h"
#include "agent/ranks/recorder_watch.h"
#include "agent/upload/uploader.h"
#include "apps/agent/options.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/files.h"
#include "base/result.h"
#include "model/telemetry.h"
#include "net/text_server.h"
#include "sources/node_source.h"

namespace lockstep {

// What the options say, checked before anything is opened.
struct AgentSettings {
  RasWatchOptions ras;
  ListenAddress metrics;
  OtlpTargets targets;
  std::optional<OtlpTarget> commands_from;  // nullopt: nobody
};

// What is opened before everything else, while we may: the data folder's lock, and what only root can open.
struct OpenedParts {
  OpenedParts() = default;
  OpenedParts(const OpenedParts&) = delete;  // a source refers to `node`
  OpenedParts& operator=(const OpenedParts&) = delete;

  // Opens them and gives up root. options.recorders becomes the folder that is read, empty where there is none.
  // On error: one line.
  Result<void> open(AgentOptions& options);

  UniqueFd lock;
  UniqueFd users;             // of --while-locked
  NodeWatch* node = nullptr;  // for the host source, which is read once there is one
  std::vector<std::unique_ptr<NodeSource>> sources;
  std::string privileges;  // what we run as, for people
};

// What every part uses.
struct AgentCommon {
  SystemClock clock;
  Counters counters{kAgentCounters};
  Heartbeats hearts{clock};
  Heartbeat& loop_heart = hearts.add("main loop");
};

Result<std::unique_ptr<Exporter>> start_exporter(const AgentOptions& options, const AgentSettings& settings,
                                                 AgentCommon& common);

// The parts in the order of their making: what comes later uses what comes before it, and goes first. start(), loop()
// and stop() follow in this order, each once; without start() it just goes.
class Agent {
 public:
  // Everything is borrowed and must outlive the agent; the sources are taken.
  Agent(const AgentOptions& options, const AgentSettings& settings, OpenedParts& opened, AgentCommon& common,
        Exporter& exporter);

  // Opens the page and says "ready".
  Result<void> start();
  // Until `stop` is set, or nobody holds a lock on the file of --while-locked any more.
  void loop(const volatile sig_atomic_t& stop);
  // Ends the process where a thread does not come back.
  void stop();

 private:
  std::unique_ptr<CommandPoll> make_commands();
  std::unique_ptr<Uploader> make_uploader();
  std::unique_ptr<EvidenceUploads> make_uploads();
  std::unique_ptr<ProfileWatch> make_profiles();
  std::unique_ptr<NodeWatch> start_node(OpenedParts& opened);
  std::string destination() const;  // of what is sent: an address, or a folder
  TextResponse answer_page(const TextRequest& request) const;
  TextResponse metrics_page(const TextRequest& request) const;

  void poll();
  void take_commands(int64_t now_ns);
  // Each of these: whether what was found is urgent.
  bool gather(CollectedBatch batch);
  bool gather_evidence();
  bool gather_profiles();
  void look_closer();
  bool gather_node(int64_t now_ns);
  void submit();
  void look_for_users(int64_t now_ns);
  void notify_watchdog(int64_t now_ns);

  const AgentOptions& options_;
  const AgentSettings& settings_;
  const OpenedParts& opened_;
  SystemClock& clock_;
  Counters& counters_;
  Heartbeats& hearts_;
  Heartbeat& loop_heart_;
  Exporter& exporter_;

  std::unique_ptr<Uploader> uploader_;        // nullptr: there is nowhere to
  std::unique_ptr<EvidenceUploads> uploads_;  // nullptr: likewise, or --evidence-files off
  CallbackCost cost_;
  RasWatch ras_watch_;
  StepTraces traces_;
  RecorderWatch watch_;
  std::unique_ptr<CommandPoll> commands_;  // nullptr: nobody is asked
  EvidenceWatch evidence_;
  std::unique_ptr<ProfileWatch> profiles_;  // nullptr: --profiles off
  std::vector<ProfileTaker::Profiled> profiled_;
  std::unique_ptr<NodeWatch> node_;  // nullptr: --node off
  Result<ControlSocket> control_;
  std::unique_ptr<TextServer> page_;

  // What is gathered into the next requests.
  Batch logs_{.signal = Signal::kLogs, .groups = {}};
  Batch numbers_{.signal = Signal::kMetrics, .groups = {}};
  Batch spans_{.signal = Signal::kSpans, .groups = {}};
  int64_t batch_since_ = 0;  // 0: nothing is

  // The main loop's own: when each of the things it does now and then is due.
  int64_t next_owners_ns_ = 0, next_watchdog_ns_ = 0, next_users_ns_ = 0, next_hosts_ns_ = 0, next_ranks_ns_ = 0;
  int64_t watchdog_ns_ = 0;  // how often systemd wants to hear; 0: never
  NodeIdle node_idle_;
  bool unused_ = false;  // nobody holds a lock on the file of --while-locked any more
};

}  // namespace lockstep
