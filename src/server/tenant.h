// One tenant: all that works on one data folder (decision 0014). Stores, durable log, diagnosis, commands to agents,
// caches, limits, counters and readiness are its own; no part of it knows that there are others. What tenants share is
// the process: clock, clock witness, memory and the number of queries that run, of the last two each has its part.
//
// Order: open(), read_back(), start(), tick() again and again, stop(); then it may go. serve() may be called from
// open() on until the last request that was let in has its answer, otlp() from start() on.
// On error: one line; whoever opened it decides what that means for the others.
// Thread rule: serve() and what otlp() returns are Thread-safe; the rest is Confined to one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "alert/alert_center.h"
#include "api/prometheus/query_scheduler.h"
#include "api/readiness.h"
#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/memory_budget.h"
#include "base/result.h"
#include "bus/command_topic.h"
#include "bus/shared_rows.h"
#include "fabric/flows/switch_directory.h"
#include "fabric/topology_file.h"
#include "ingest/otlp/otlp_receivers.h"
#include "ingest/scrape/scraper.h"
#include "ingest/uploads/upload_receiver.h"
#include "model/flow.h"
#include "net/http_server.h"
#include "server/backup_holder.h"
#include "server/bus_taker.h"
#include "server/captures/capture_analyzer.h"
#include "server/durable_sink.h"
#include "server/options.h"
#include "store/state_store.h"

namespace lockstep {

class AccessParts;

// What every tenant of a process uses. Outlives them.
// Which jobs are this process's. Thread-safe.
class JobOwnership {
 public:
  virtual ~JobOwnership() = default;
  virtual bool owns(std::string_view job_id) const = 0;
};

struct TenantCommon {
  const ServerOptions& options;
  const Clock& clock;
  ClockWitness& witness;
  MemoryBudget& memory;  // of the process
  QuerySlots& queries;
  std::string web_folder;
  UploadSlots uploads{3};              // of 8 threads of the receiver
  AnalysisTurn analysis = {};          // of captures
  AccessParts* access = nullptr;       // there before a tenant's parts are made; nullptr: everybody may do everything
  const JobOwnership* jobs = nullptr;  // nullptr: all are this process's
  // History is read from the bus, up to some time that is not now. Whoever judges by the clock would take all that is not
  // read yet for silence: agents for gone, jobs for over, minutes for empty. So diagnosis, SLEs and detail are looked at as
  // of what was read (Tenant::look_as_of, by who reads), and agents that are not heard of are not missed. What is known all
  // the same, verdicts above all, is kept and told as ever, however long the rest takes: the brokers may be away.
  std::atomic<bool> bus_is_behind{false};
  SharedRows* rows = nullptr;         // by which alerts and incidents follow their jobs; nullptr: nowhere. Outlives it
  std::string token_secret = {};      // by which tokens are signed that others are to know; empty: none are
  CommandPoster* commands = nullptr;  // by which agents are asked; nullptr: they ask here. Outlives it
  std::function<std::optional<std::string>()> bus_problem = {};  // asked by the default tenant; empty: no bus is read
};

struct TenantSettings {
  std::string folder;
  std::string name = {};            // empty: the default one
  bool is_default = false;          // the operator's: told of the process besides (its clock, disk and memory)
  ScrapeConfig scrape = {};         // its own jobs
  std::optional<Url> remote_write;  // where its samples are sent on to; empty: nowhere
  AlertSettings alerts = {};        // who is called; empty: alerts are kept and shown
  // Of the default tenant alone.
  fabric::Declared topology = {};        // how the operator's files say that the fabric is cabled
  SwitchNames switches = {};             // what the operator calls switches that report flows
  BackupSource* backup = nullptr;        // what all tenants keep
  const Counters* of_tenants = nullptr;  // what the operator is told of all tenants
  // Called once its state is open, before anything uses TenantCommon::access.
  std::function<Result<void>(StateStore&)> state_opened = {};
};

class Tenant : public BusTaker {
 public:
  // memory_bytes_max: its part of the memory. counters: its own, with the rows of kServerCounters; they outlive it.
  static Result<std::unique_ptr<Tenant>> open(TenantSettings settings, uint64_t memory_bytes_max, TenantCommon& common,
                                              Counters& counters);
  ~Tenant() override = default;

  // Opens the durable log and reads it back. False: told to stop meanwhile.
  virtual Result<bool> read_back(const std::function<bool()>& is_told_to_stop) = 0;
  // From now on data is taken and the API answers.
  virtual void start() = 0;
  // A few times a second: diagnosis looks, what has waited long enough ends. Whatever fails in it is contained.
  virtual void tick() = 0;
  // From now on by these jobs.
  virtual void scrape(ScrapeConfig config) = 0;
  // The files of --topology were read again.
  virtual void declare_topology(fabric::Declared declared) = 0;
  // From now on by these rules.
  virtual void rules(std::vector<RuleGroup> groups) = 0;
  // From now on these actions.
  virtual void actions(std::vector<ActionConfig> actions) = 0;
  // Takes no more data, and looks once more.
  virtual void stop() = 0;

  virtual void serve(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) = 0;
  virtual IngestTarget otlp() = 0;
  // take() and keep(): from start() on.
  // Some jobs are another process's from now on (TenantCommon::jobs): their agents are not missed here, their alerts are that
  // one's. From start() on.
  virtual void let_go_of_jobs() = 0;
  // Some are this one's from now on: their alerts and incidents come with them, as they stood. From start() on.
  virtual void take_over_jobs() = 0;
  // Diagnosis looks at what was applied as it did when it happened. From start() on; by any one thread besides tick()'s.
  virtual void look_as_of(int64_t unix_ns) = 0;
  // Who takes network telemetry; nullptr: it is the default tenant's alone, and received where it was asked for.
  virtual FlowSubscriber* flows() = 0;
  virtual Readiness& readiness() = 0;
  virtual MemoryBudget& memory() = 0;
  // What it keeps, for a backup; from read_back() on. name: of its folder below the data folder.
  virtual StoreSet store_set(std::string name) = 0;
};

}  // namespace lockstep
