// What the endpoints read from. Everything is borrowed and must outlive the server that calls answer().
//
// Thread rule: Immutable; what it refers to is Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/cost/gpu_pricing.h"
#include "analysis/cost/kernel_classes.h"
#include "analysis/cost/mfu.h"
#include "analysis/step/step_trace.h"
#include "apply/agent_registry.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/memory_budget.h"
#include "control/detail_requester.h"
#include "diagnosis/verdict_source.h"
#include "ingest/scrape/scrape_target.h"
#include "model/command_kind.h"
#include "sle/ledger.h"
#include "store/feedback_store.h"
#include "store/metric_reader.h"
#include "store/metrics/metric_engine.h"
#include "store/span_store.h"
#include "store/state_store.h"
#include "store/step_store.h"

namespace lockstep {

class AlertCenter;
class BackupSource;
class ColumnarLogStore;
class BlobStore;
class Captures;
class AuditLog;
class FlowTable;
class NameOwners;
class OidcSignIn;
class Readiness;
class TokenGatekeeper;
class TokenStore;
namespace fabric {
struct Fabric;
}
namespace incident {
class IncidentRegistry;
}

struct ApiContext {
  const StepStore& steps;
  const SpanStore& spans;
  StepTraceCache& traces;
  const MetricReader& metrics;
  const StateStore& state;
  const AgentRegistry& agents;
  const VerdictSource& diagnosis;
  const Counters& counters;
  const Clock& clock;
  const std::atomic<bool>& ready;  // every receiver is open and recovery is done
  std::string web_folder;          // empty: no web UI
  std::function<bool(std::string_view job_id)> owns =
      {};  // whether a job is this process's; empty: all are. Thread-safe
  // Asks the agents for a step after the fact; empty: nobody can be asked. Thread-safe.
  std::function<DetailAsked(const JobInfo&, const DetailRequest&)> ask_detail = {};
  std::function<DetailAsked(const JobInfo&, const StackRequest&)> ask_stacks = {};  // likewise, for stacks
  Captures* captures = nullptr;    // kernel profiles; nullptr: none are taken here
  bool analyses_captures = false;  // once they have ended
  // Likewise, for samples of stacks; nullopt: too many were asked for.
  std::function<std::optional<DetailAsked>(const JobInfo&, const SampleRequest&)> ask_samples = {};
  WhoAnswers who_answers = {};  // whether agents would do such things; empty: not known. Thread-safe
  // What a job's newest kernel profile says of its kernels, for the MFU bar of kernels; empty, or no kernels: there is
  // none. Thread-safe.
  std::function<KernelClasses(const std::string& job_id)> kernel_classes = {};
  ReadGpu read_gpu = {};                // clocks for MFU; empty: not known. Thread-safe
  const GpuPricing* pricing = nullptr;  // what GPU time costs; nullptr: no money is shown. Thread-safe
  const GpuPrices& gpu_prices() const {
    static const GpuPrices kNone;
    return pricing == nullptr ? kNone : pricing->prices();
  }
  const sle::Ledger* sle = nullptr;  // nullptr: none is kept
  sle::Thresholds sle_thresholds = sle::default_thresholds();
  double peak_flops = 0;                                          // of one GPU, where a job tells none; 0: by its name
  std::function<CardinalityReport(size_t top)> cardinality = {};  // empty: not known. Thread-safe
  MetricEngine* metric_admin = nullptr;  // may be told to delete and to copy; nullptr: nobody may
  std::function<std::vector<ScrapeTarget>()> scrape_targets = {};  // empty: nothing is scraped. Thread-safe
  MemoryBudget* memory = nullptr;     // where queries take theirs from; nullptr: no limit for all together. Thread-safe
  AlertCenter* alerts = nullptr;      // who is called; nullptr: nobody is
  FeedbackStore* feedback = nullptr;  // what people say of verdicts; nullptr: not taken here
  TokenStore* tokens = nullptr;       // nullptr: there are none
  TokenGatekeeper* gatekeeper = nullptr;   // lets people sign in; nullptr: nobody can
  OidcSignIn* oidc = nullptr;              // signing in through an issuer; nullptr: not here
  AuditLog* audit = nullptr;               // nullptr: nothing is written down
  NameOwners* owners = nullptr;            // nullptr: names have none
  bool is_tls = false;                     // cookies are for TLS alone
  std::string otlp_http = {};              // "0.0.0.0:4318", where agents send to; empty: not known
  const Counters* of_tenants = nullptr;    // what the operator alone is told; nullptr: nothing more
  BackupSource* backup = nullptr;          // everything the server keeps, for a copy; nullptr: not from here
  BlobStore* blobs = nullptr;              // files of captures; nullptr: none are kept
  const ColumnarLogStore* logs = nullptr;  // log records on disk; nullptr: those in memory are all there are
  const FlowTable* flows = nullptr;        // that switches reported; nullptr: none are received here
  Readiness* readiness = nullptr;          // asked once `ready` is set; nullptr: nothing else is checked

  // Topology, paths, graph; nullptr: none is kept. Thread-safe.
  const fabric::Fabric* fabric = nullptr;

  // What belongs together of verdicts and hardware events; nullptr: none is kept. Thread-safe.
  incident::IncidentRegistry* incidents = nullptr;
};

}  // namespace lockstep
