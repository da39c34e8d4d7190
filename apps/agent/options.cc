#include "apps/agent/options.h"

#include <unistd.h>

#include <cstdlib>

#include "agent/give_way.h"
#include "base/text.h"
#include "recorder/reader.h"

namespace lockstep {

void add_flags(AgentOptions& options, Flags& flags) {
  flags.text(&options.data, "--data", "DIR", "folder for the spool and for the recorders of ranks that died (required)")
      .text(&options.otlp.server, "--server", "URL",
            "where to send: http://, https:// or unix:// (default $OTEL_EXPORTER_OTLP_ENDPOINT, else "
            "http://127.0.0.1:4318)")
      .text(&options.otlp.protocol, "--protocol", "http/protobuf|grpc", "OTLP over HTTP (default) or gRPC")
      .text(&options.otlp.token_file, "--token-file", "FILE", "sent as bearer token; read again when it changes")
      .text(&options.otlp.ca, "--ca", "FILE", "trust this CA instead of the machine's")
      .text(&options.otlp.cert, "--cert", "FILE", "our certificate, for servers that ask for one (mTLS)")
      .text(&options.otlp.key, "--key", "FILE", "its key")
      .toggle(&options.otlp.insecure, "--insecure", "believe any certificate")
      .list(&options.otlp.headers, "--header", "NAME=VALUE", "sent with every request")
      .secret()
      .text(&options.otlp.compression, "--compression", "zstd|gzip|none", "(default: the best that the server takes)")
      .text(&options.exported, "--export", "file:DIR", "write the requests to files instead of sending them")
      .number(&options.spool_mb, "--spool-mb", "N", "disk the spool may use (default 512)", 1, 1'000'000)
      .decimal(&options.detail_mb, "--detail-mb", "MB",
               "memory in which every step of every rank is kept in detail (default 8; 0: no spans at all)", 0, 4096)
      .number(&options.detail_seconds, "--detail-seconds", "N", "for how long (default 300)", 1, 86'400)
      .decimal(&options.trace_budget, "--trace-budget", "BYTES",
               "a second and GPU, for spans that nobody asked for (default 40; 0: only what the server asks for)", 0,
               1'000'000)
      .text(&options.commands, "--commands", "URL|off",
            "the OTLP/HTTP receiver to ask for commands (default: that of --server; needed with --protocol grpc)")
      .text(&options.metrics, "--metrics", "ADDR",
            "address for /metrics (default 127.0.0.1:9410; port 0 takes a free one)")
      .text(&options.metrics_tls.certificate_file, "--metrics-tls-certificate", "FILE",
            "it speaks TLS, with this certificate and its chain; read again when it changes")
      .text(&options.metrics_tls.key_file, "--metrics-tls-key", "FILE", "its key")
      .text(&options.metrics_tls.client_ca_file, "--metrics-tls-client-ca", "FILE",
            "and answers whoever shows a certificate of this CA, nobody else")
      .text(&options.metrics_token_file, "--metrics-token-file", "FILE",
            "and answers whoever sends this bearer token, but for /healthz; read again when it changes")
      .toggle(&options.metrics_insecure, "--metrics-insecure", "let others reach it although anybody may read it")
      .list(&options.names, "--names", "dcgm", "on /metrics, GPU series also under dcgm-exporter's names")
      .text(&options.recorders, "--recorders", "DIR",
            "folder of the flight recorders (default $LOCKSTEP_RECORDER_DIR, else /dev/shm/lockstep-UID; as root those "
            "of every user)")
      .text(&options.ras, "--ras", "ADDR|off|always",
            "ask NCCL's in-job service there, never, or every 30 s (default: at localhost:28028 while a rank seems to "
            "hang, unless its NCCL may not stand it)")
      .number(&options.interval_ms, "--interval-ms", "N", "how often the node is read (default 1000)", 100, 60'000)
      .text(&options.gpus, "--gpus", "auto|nvidia|amd|off", "which GPUs to read (default auto)")
      .text(&options.nvml_library, "--nvml-library", "FILE", "NVIDIA's library (default libnvidia-ml.so.1)")
      .text(&options.amdsmi_library, "--amdsmi-library", "FILE", "AMD's library (default libamd_smi.so)")
      .text(&options.node, "--node", "on|off", "off: flight recorders alone are read, nothing of the node (default on)")
      .decimal(&options.cpu_budget_percent, "--cpu-budget", "PERCENT",
               "of one core; over it the node is read less often (default 3)", 0.1, 100)
      .text(&options.priority, "--priority", "low|idle|normal",
            "low: takes free cores, else at most a tenth of one; idle: free ones alone (default low)")
      .text(&options.kubelet_socket, "--kubelet-socket", "FILE", "the kubelet's pod-resources socket")
      .text(&options.slurm_gpu_folder, "--slurm-gpu-folder", "DIR",
            "files that say which Slurm job has which GPU, as dcgm-exporter reads them")
      .text(&options.environments, "--environments", "on|off",
            "look for a job's name, and the version of its code, in the environment of its processes (default on)")
      .text(&options.stacks, "--stacks", "on|off",
            "take stacks of ranks that the server asks for; off also for a job with LOCKSTEP_STACKS=0 (default on)")
      .text(&options.profiles, "--profiles", "on|off",
            "take kernel profiles that the server asks for, through PyTorch's own profiler (default on)")
      .text(&options.evidence_files, "--evidence-files", "on|off",
            "send the dumps and recorders that a hang or a crash leaves to where profiles go (default on)")
      .text(&options.profiles_folder, "--profiles-folder", "DIR",
            "keep the files of kernel profiles in this folder of the node (default: they go to the server)")
      .text(&options.host, "--host", "NAME", "what this node is called (default $LOCKSTEP_HOST, else its host name)")
      .text(&options.user, "--user", "NAME", "started as root: go on as this user")
      .text(&options.root, "--root", "DIR", "read /proc, /sys and /dev below this folder (tests, containers)")
      .text(&options.kernel_log, "--kernel-log", "FILE", "the kernel's log (default /dev/kmsg, below --root)")
      .text(&options.while_locked, "--while-locked", "FILE",
            "end when nobody holds a lock on this file any more (lockstep run starts it so)")
      .also_from("LOCKSTEP_AGENT_", "/etc/lockstep/agent.conf");
}

Result<void> check_options(AgentOptions& options) {
  if (options.data.empty()) return Error{"--data DIR is required: the folder for the spool"};
  if (!options.exported.empty() && !options.exported.starts_with("file:"))
    return Error{format("--export takes file:DIR, not \"%s\"", options.exported.c_str())};
  for (const std::string& name : options.names) {
    if (name != "dcgm") return Error{format("--names knows dcgm, not \"%s\"", name.c_str())};
  }
  if (options.gpus != "auto" && options.gpus != "nvidia" && options.gpus != "amd" && options.gpus != "off")
    return Error{format("--gpus is auto, nvidia, amd or off, not \"%s\"", options.gpus.c_str())};
  for (const auto& [name, value] : {std::pair{"--node", &options.node},
                                    {"--environments", &options.environments},
                                    {"--stacks", &options.stacks},
                                    {"--evidence-files", &options.evidence_files},
                                    {"--profiles", &options.profiles}}) {
    if (*value != "on" && *value != "off") return Error{format("%s is on or off, not \"%s\"", name, value->c_str())};
  }
  LOCKSTEP_TRY(check_priority(options.priority));
  if (options.recorders.empty()) {
    options.recorders = recorder_directory();
    options.every_user = geteuid() == 0 && std::getenv("LOCKSTEP_RECORDER_DIR") == nullptr;
  }
  if (options.host.empty()) {
    const char* reported = std::getenv("LOCKSTEP_HOST");
    char name[256]{};
    if (reported != nullptr && *reported != '\0')
      options.host = reported;
    else if (gethostname(name, sizeof name - 1) == 0)
      options.host = name;
  }
  if (options.host.empty()) return Error{"this node has no name: --host NAME"};
  return {};
}

}  // namespace lockstep
