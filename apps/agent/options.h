// The agent's options: flags, LOCKSTEP_AGENT_* variables and a file, one habit (base/flags.h).
//
// Thread rule: Immutable once read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/export/otlp_target.h"
#include "base/flags.h"
#include "net/tls_server.h"

namespace lockstep {

struct AgentOptions {
  std::string data;
  std::string host;
  OtlpSettings otlp;
  std::string exported;  // "file:DIR"
  int64_t spool_mb = 512;
  double detail_mb = 8;
  int64_t detail_seconds = 300;
  double trace_budget = 40;
  std::string commands;  // URL, "off"; empty: where telemetry goes
  std::string metrics = "127.0.0.1:9410";
  TlsListenerOptions metrics_tls;
  std::string metrics_token_file;
  bool metrics_insecure = false;   // others may reach /metrics although nobody has to say who they are
  std::vector<std::string> names;  // "dcgm"
  std::string recorders;
  bool every_user = false;  // recorders of all users are read: we may, and no folder was named
  std::string ras;
  int64_t interval_ms = 1000;
  std::string gpus = "auto";  // auto, nvidia, amd, off
  std::string nvml_library;
  std::string amdsmi_library;
  std::string node = "on";  // off: flight recorders alone
  double cpu_budget_percent = 3;
  std::string priority = "low";  // low, idle, normal
  std::string kubelet_socket = "/var/lib/kubelet/pod-resources/kubelet.sock";
  std::string slurm_gpu_folder;
  std::string environments = "on";
  std::string stacks = "on";
  std::string profiles = "on";
  std::string evidence_files = "on";
  std::string profiles_folder;  // empty: where commands come from
  std::string user;
  std::string root;
  std::string kernel_log;
  std::string while_locked;  // file; ends when nobody holds a lock on it any more
};

// Gives every option its flag. What is wrong is told by parse() or by check_options().
void add_flags(AgentOptions& options, Flags& flags);
// What no single flag can know: one line, or nothing.
Result<void> check_options(AgentOptions& options);

}  // namespace lockstep
