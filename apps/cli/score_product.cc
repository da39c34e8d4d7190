#include "apps/cli/score_product.h"

#include "apply/agent_registry.h"
#include "apply/applier.h"
#include "apps/cli/score_ports.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/log.h"
#include "diagnosis/engine.h"
#include "fabric/fabric.h"
#include "model/verdict.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"
#include "wire/otlp.h"
#include "wire/step_walk.h"

namespace lockstep::cli {
namespace {

class Product final : public sim::Subject {
 public:
  Product() {
    applier_.subscribe(engine_);
    applier_.subscribe(fabric_.topology);
    applier_.subscribe(fabric_.places);
    applier_.subscribe(fabric_.versions);
    applier_.subscribe(ports_);
    engine_.look_at_network({&fabric_, &ports_});
    engine_.keep_waits(fabric_.waits);
  }

  void declare(std::string_view topology) override {
    fabric::Declared declared;
    if (Result<void> read = fabric::parse_topology(topology, "topology.yaml", declared); read.ok())
      fabric_.topology.declare(std::move(declared));
    else
      log_line(LogLevel::kWarn, "score", "%s", read.error().c_str());
  }
  void receive(Signal signal, std::string_view otlp, int64_t now_unix_ns) override {
    if (signal == Signal::kLogs) {
      Result<LogsRequest> request = otlp::decode_logs(otlp);
      if (request.ok()) applier_.apply_logs(std::move(*request), now_unix_ns);
      return;
    }
    Result<Batch> batch = otlp::decode(signal, otlp);
    if (batch.ok()) applier_.apply(signal, std::move(*batch), now_unix_ns);
  }
  void tick(int64_t now_unix_ns) override {
    engine_.tick(now_unix_ns);
    engine_.take_changed();  // what a server would write down
  }
  std::string verdicts(std::string_view job_id) override {
    std::string text = "[";
    for (const Verdict& verdict : engine_.verdicts(job_id)) text += (text.size() > 1 ? "," : "") + to_json(verdict);
    return text + "]";
  }
  std::string warnings() override {
    JsonWriter json;
    json.begin_array();
    for (const EarlyWarning& warning : engine_.warnings()) {
      json.begin_object();
      write_fields(json, warning);
      json.end_object();
    }
    json.end_array();
    return json.take();
  }

 private:
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  AgentRegistry agents_;
  SystemClock clock_;
  fabric::Fabric fabric_{{}, clock_};
  PortSeries ports_;
  DiagnosisEngine engine_;
  Applier applier_{steps_, spans_, agents_, counters_};
};

}  // namespace

std::unique_ptr<sim::Subject> make_product() {
  return std::make_unique<Product>();
}

}  // namespace lockstep::cli
