// The tenants of a process: the default one, whose folder is the data folder itself, and others in tenants/NAME below
// it. Where their folder is there they are opened at start, else made by the first request of a caller of theirs
// (net/caller.h: nobody gets that far without a token for that tenant), or by a job of the scrape file that is theirs.
//
// Each of the others has a thread, which opens it, looks at its jobs and ends it: one that is slow, fails or is being
// read back holds up no other. While it is not open, its callers get 503 with Retry-After; one that cannot be opened is
// tried again every kRetry, and named in the operator's readiness and counters, nowhere else.
//
// Limits: tenants_max besides the default one (503 beyond); kOpeningMax are opened at a time; each holds at most its
// share of the memory, the default one too from the first other on.
// Thread rule: Thread-safe; start_default(), open_others(), tick() and stop() are for one thread, in this order.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "access/tenant_name.h"
#include "base/mutex.h"
#include "server/tenant.h"
#include "server/tenant_counters.h"

namespace lockstep {

struct TenantsOptions {
  size_t tenants_max = 64;    // besides the default one
  double memory_share = 0.5;  // of one tenant
  std::string scrape_file = {};
  ScrapeConfig scrape = {};                                   // of all of them, as the file had it at the start
  std::map<std::string, Url, std::less<>> remote_write = {};  // by tenant, "" the default one
  AlertSettings alerts = {};                                  // of the default one; of the others their receivers
};

class Tenants final : public OtlpRouter, public BusTakers {
 public:
  static constexpr std::chrono::seconds kRetry{30};
  static constexpr ptrdiff_t kOpeningMax = 4;

  // counters: the process's, which are those of the default tenant.
  Tenants(TenantsOptions options, TenantCommon& common, Counters& counters);
  ~Tenants() override;

  // Opens the default tenant and lets it answer "starting", reads it back, starts it. False: told to stop meanwhile.
  Result<bool> start_default(TenantSettings settings, const std::function<bool()>& is_told_to_stop);
  // Those whose folders are there.
  Result<void> open_others();
  // A few times a second: the default tenant's look, and what the operator is told of the others.
  void tick();
  void reload_scrape_file();
  void reload_rules();    // of the default tenant
  void reload_actions();  // likewise
  void stop();

  void serve(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder);
  IngestTarget find(const Caller& caller) override;
  BusTakers::Found find_for_bus(const std::string& name) override;
  void let_go_of_jobs() override;
  void take_over_jobs() override;
  void look_as_of(int64_t unix_ns) override;
  const Counters& of_tenants() const { return of_tenants_; }  // what the operator is told of them
  Tenant* find_default() { return default_open_; }            // nullptr: not open yet
  void close() override;

 private:
  struct Other;
  // Where a caller is served; nothing: one line says why not now.
  struct Found {
    Tenant* tenant = nullptr;
    std::string line;
    bool is_none = false;  // nobody has begun it
    bool is_over = false;  // there is no room for it (tenants_max)
  };
  Found find_tenant(const Caller& caller, bool needs_start);
  std::vector<Tenant*> all_started();
  Other& add(const std::string& name) LOCKSTEP_REQUIRES(mutex_);
  void live(Other& other, const std::stop_token& stop);
  Result<bool> open(Other& other, const std::stop_token& stop);
  void report_to_operator();
  std::optional<std::string> problem_of_others();
  TenantSettings settings_of(const std::string& name, std::string folder);
  void add_scraped() LOCKSTEP_REQUIRES(mutex_);
  Result<std::vector<StoreSet>> store_sets();

  const TenantsOptions options_;
  TenantCommon& common_;
  Counters& counters_;
  Counters of_tenants_{kTenantCounters};
  BackupHolder backup_;  // the operator's: of all tenants
  std::unique_ptr<Tenant> default_;
  std::atomic<Tenant*> default_open_{nullptr};
  std::atomic<bool> default_started_{false};
  std::counting_semaphore<> opening_{kOpeningMax};

  Mutex mutex_;
  StoppableConditionVariable ends_;
  // What is in the map stays until the end.
  std::map<std::string, std::unique_ptr<Other>, std::less<>> others_ LOCKSTEP_GUARDED_BY(mutex_);
  ScrapeConfig scrape_ LOCKSTEP_GUARDED_BY(mutex_);  // of all of them
  bool closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
