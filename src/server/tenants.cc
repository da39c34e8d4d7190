#include "server/tenants.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "access/role.h"
#include "api/answer.h"
#include "api/routes.h"
#include "base/contained.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/counters_table.h"
#include "server/recovery.h"
#include "server/scrape_file.h"

namespace lockstep {
namespace {

constexpr auto kLookEvery = std::chrono::nanoseconds(kLookEveryNs);
// What a caller is told, whichever of its reasons there is: the rest is the operator's.
constexpr const char* kOpening = "starting: what is stored is being opened; try again in a moment";
constexpr const char* kFailed = "what is stored of this tenant cannot be opened; whoever runs the server is told why";
constexpr const char* kTooMany = "no further tenant can be opened here (--tenants-max)";
constexpr const char* kNone = "there is no such tenant: nothing was sent for it yet";
constexpr const char* kEnding = "the server is about to end; try again later";

// Whoever only looks through a token for all tenants makes none of a name it mistook.
bool may_begin_tenant(const Caller& caller) {
  return may(caller.roles, Role::kIngest) || may(caller.roles, Role::kAdmin) ||
         std::find(caller.tenants.begin(), caller.tenants.end(), caller.tenant) != caller.tenants.end();
}

}  // namespace

// Its thread makes the tenant; others see it once it is started.
struct Tenants::Other {
  std::string name;
  std::string folder;
  Counters counters{kServerCounters};
  std::unique_ptr<Tenant> tenant;  // its thread's; gone with this
  std::atomic<Tenant*> started{nullptr};
  std::optional<std::string> problem;  // under mutex_: why it could not be opened
  bool scrape_changed = false;         // under mutex_: its jobs are others than it was told
  std::jthread thread;
};

Tenants::Tenants(TenantsOptions options, TenantCommon& common, Counters& counters)
    : options_(std::move(options)),
      common_(common),
      counters_(counters),
      backup_(
          common.options.data, [this] { return store_sets(); }, common.clock, counters),
      scrape_(options_.scrape) {}

Tenants::~Tenants() {
  stop();
}

Result<bool> Tenants::start_default(TenantSettings settings, const std::function<bool()>& is_told_to_stop) {
  TenantSettings its = settings_of("", settings.folder);
  settings.scrape = std::move(its.scrape);
  settings.remote_write = std::move(its.remote_write);
  settings.alerts = std::move(its.alerts);
  settings.backup = &backup_;
  settings.of_tenants = &of_tenants_;
  // All of it, as long as it is the only one.
  default_ = LOCKSTEP_TRY(Tenant::open(std::move(settings), common_.memory.bytes_max(), common_, counters_));
  default_open_ = default_.get();
  const bool read_back = LOCKSTEP_TRY(default_->read_back(is_told_to_stop));
  if (!read_back) return false;
  default_->start();
  default_started_ = true;
  return true;
}

Result<void> Tenants::open_others() {
  default_->readiness().add(
      {.name = "tenants", .problem = [this] { return problem_of_others(); }, .is_warning = true, .is_private = true});
  const std::string folder = common_.options.data + "/tenants";
  std::vector<std::string> names;
  if (std::filesystem::is_directory(folder)) names = LOCKSTEP_TRY(list_directory(folder));
  for (const std::string& name : names) {
    if (!is_tenant_name(name) || name == kDefaultTenant) {
      LOCKSTEP_LOG_WARN("server", "%s/%s is left alone: that is no tenant's name", folder.c_str(), name.c_str());
      continue;
    }
    MutexLock lock(mutex_);
    add(name);  // over the limit as well: what is there was let in once
  }
  MutexLock lock(mutex_);
  add_scraped();
  return {};
}

TenantSettings Tenants::settings_of(const std::string& name, std::string folder) {
  TenantSettings settings{.folder = std::move(folder), .name = name};
  if (auto url = options_.remote_write.find(name); url != options_.remote_write.end())
    settings.remote_write = url->second;
  settings.alerts.notify = options_.alerts.notify.of_tenant(name);
  settings.alerts.external_url = options_.alerts.external_url;
  if (name.empty()) {
    settings.alerts.alertmanagers = options_.alerts.alertmanagers;
    settings.alerts.actions = options_.alerts.actions;
    settings.alerts.rules = options_.alerts.rules;
  }
  MutexLock lock(mutex_);
  settings.scrape = scrape_.of_tenant(name);
  return settings;
}

void Tenants::add_scraped() {
  for (const ScrapeJob& job : scrape_.jobs) {
    if (job.tenant.empty() || others_.contains(job.tenant)) continue;
    if (others_.size() >= options_.tenants_max) {
      LOCKSTEP_LOG_WARN("server", "--scrape: job \"%s\" is not scraped: %s", job.name.c_str(), kTooMany);
      continue;
    }
    add(job.tenant);
  }
}

Tenants::Other& Tenants::add(const std::string& name) {
  if (others_.empty())
    default_->memory().set_bytes_max(
        static_cast<uint64_t>(options_.memory_share * static_cast<double>(common_.memory.bytes_max())));
  Other& other = *others_.emplace(name, std::make_unique<Other>()).first->second;
  other.name = name;
  other.folder = common_.options.data + "/tenants/" + name;
  other.thread = std::jthread([this, &other](const std::stop_token& stop) { live(other, stop); });
  return other;
}

Tenants::Found Tenants::find_tenant(const Caller& caller, bool needs_start) {
  if (caller.tenant.empty() || caller.tenant == kDefaultTenant) {
    if (needs_start && !default_started_) return {nullptr, kOpening};
    return {default_open_, kOpening};
  }
  MutexLock lock(mutex_);
  auto found = others_.find(caller.tenant);
  if (found == others_.end()) {
    if (closed_) return {nullptr, kEnding};
    if (!default_started_) return {nullptr, kOpening};
    // A token for it was made, so its name was checked; a folder is made from what was checked here alone.
    if (!is_tenant_name(caller.tenant)) return {nullptr, "that is no tenant's name"};
    if (!may_begin_tenant(caller)) return {nullptr, kNone, true};
    if (others_.size() >= options_.tenants_max) return {nullptr, kTooMany, false, true};
    add(caller.tenant);
    return {nullptr, kOpening};
  }
  Other& other = *found->second;
  if (Tenant* tenant = other.started) return {tenant, {}};
  return {nullptr, other.problem ? kFailed : kOpening};
}

void Tenants::serve(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
  const Found found = find_tenant(request.caller, false);
  if (found.tenant != nullptr) return found.tenant->serve(request, responder);
  if (found.is_none) return responder->answer(error_answer(404, found.line));
  responder->answer(answer_while_opening(request, found.line));
}

IngestTarget Tenants::find(const Caller& caller) {
  Found found = find_tenant(caller, true);
  if (found.tenant != nullptr) return found.tenant->otlp();
  return {.line = std::move(found.line)};
}

BusTakers::Found Tenants::find_for_bus(const std::string& name) {
  Caller caller;
  caller.tenant = name;
  caller.roles = bit_of(Role::kIngest);
  Found found = find_tenant(caller, true);
  const bool is_no_name = !name.empty() && !is_tenant_name(name);
  return {found.tenant, std::move(found.line), found.tenant == nullptr && (is_no_name || found.is_over)};
}

std::vector<Tenant*> Tenants::all_started() {
  std::vector<Tenant*> all;
  if (default_started_) all.push_back(default_.get());
  MutexLock lock(mutex_);
  for (const auto& [name, other] : others_) {
    if (Tenant* tenant = other->started) all.push_back(tenant);
  }
  return all;
}

void Tenants::let_go_of_jobs() {
  for (Tenant* tenant : all_started()) tenant->let_go_of_jobs();
}

void Tenants::take_over_jobs() {
  for (Tenant* tenant : all_started()) tenant->take_over_jobs();
}

void Tenants::look_as_of(int64_t unix_ns) {
  for (Tenant* tenant : all_started()) tenant->look_as_of(unix_ns);
}

void Tenants::close() {
  if (default_started_) default_->otlp().commands->close();
  MutexLock lock(mutex_);
  closed_ = true;
  for (const auto& [name, other] : others_) {
    if (Tenant* tenant = other->started) tenant->otlp().commands->close();
  }
}

void Tenants::live(Other& other, const std::stop_token& stop) {
  auto wait = [&](std::chrono::nanoseconds longest) {
    MutexLock lock(mutex_);
    ends_.wait_for(mutex_, stop, longest, [] { return false; });
    return !stop.stop_requested();
  };
  for (;;) {
    while (!opening_.try_acquire_for(std::chrono::milliseconds(50))) {
      if (stop.stop_requested()) return;
    }
    Result<bool> opened = Error{"it failed while it was opened; the log of the server says how"};
    contained("server", "opening a tenant", [&] { opened = open(other, stop); });
    opening_.release();
    if (opened.ok() && !*opened) return;
    if (opened.ok()) break;
    other.tenant.reset();
    LOCKSTEP_LOG_ERROR("server", "tenant %s: %s", other.name.c_str(), opened.error().c_str());
    {
      MutexLock lock(mutex_);
      other.problem = opened.error();
    }
    if (!wait(kRetry)) return;
  }
  while (wait(kLookEvery)) {
    other.tenant->tick();
    std::optional<ScrapeConfig> changed;
    {
      MutexLock lock(mutex_);
      if (std::exchange(other.scrape_changed, false)) changed = scrape_.of_tenant(other.name);
    }
    if (changed) contained("server", "--scrape", [&] { other.tenant->scrape(std::move(*changed)); });
  }
  other.tenant->stop();
}

Result<bool> Tenants::open(Other& other, const std::stop_token& stop) {
  LOCKSTEP_TRY(make_directories(other.folder));
  const auto memory_bytes_max =
      static_cast<uint64_t>(options_.memory_share * static_cast<double>(common_.memory.bytes_max()));
  other.tenant =
      LOCKSTEP_TRY(Tenant::open(settings_of(other.name, other.folder), memory_bytes_max, common_, other.counters));
  const bool read_back = LOCKSTEP_TRY(other.tenant->read_back([&stop] { return stop.stop_requested(); }));
  if (!read_back) return false;
  other.tenant->start();
  MutexLock lock(mutex_);
  other.problem.reset();
  other.started = other.tenant.get();
  if (closed_) other.tenant->otlp().commands->close();
  return true;
}

void Tenants::tick() {
  default_->tick();
  contained("server", "a look at tenants", [this] { report_to_operator(); });
  contained("server", "a look at backups", [this] { backup_.tick(); });
}

void Tenants::reload_rules() {
  const std::vector<std::string>& files = common_.options.rules;
  if (files.empty()) return;
  contained("server", "--rules", [&] {
    Result<std::vector<RuleGroup>> read = read_rule_files(files);
    counters_.add("lockstep_rule_loads_total", read.ok() ? "result=\"read\"" : "result=\"refused\"");
    if (!read.ok()) {
      LOCKSTEP_LOG_WARN("server", "%s; the rules from before still hold", read.error().c_str());
      return;
    }
    LOCKSTEP_LOG_INFO("server", "--rules read again: %zu groups", read->size());
    default_->rules(std::move(*read));
  });
}

void Tenants::reload_actions() {
  const std::string& file = common_.options.actions;
  if (file.empty()) return;
  contained("server", "--actions", [&] {
    Result<std::vector<ActionConfig>> read = read_actions_file(file);
    if (!read.ok()) {
      LOCKSTEP_LOG_WARN("server", "%s; the actions from before still hold", read.error().c_str());
      return;
    }
    LOCKSTEP_LOG_INFO("server", "--actions read again: %zu actions", read->size());
    default_->actions(std::move(*read));
  });
}

void Tenants::reload_scrape_file() {
  if (options_.scrape_file.empty()) return;
  contained("server", "--scrape", [this] {
    std::optional<ScrapeConfig> read = reread_scrape_file(options_.scrape_file, counters_);
    if (!read) return;
    default_->scrape(read->of_tenant(""));
    MutexLock lock(mutex_);
    scrape_ = std::move(*read);
    for (const auto& [name, other] : others_) other->scrape_changed = true;
    add_scraped();
  });
}

void Tenants::report_to_operator() {
  MutexLock lock(mutex_);
  int64_t started = 0, failed = 0;
  for (const auto& [name, other] : others_) {
    started += other->started != nullptr ? 1 : 0;
    failed += other->problem ? 1 : 0;
    const std::string label = format("tenant=\"%s\"", name.c_str());
    const Counters& theirs = other->counters;
    of_tenants_.set("lockstep_tenant_series", label, theirs.value("lockstep_metric_series"));
    of_tenants_.set("lockstep_tenant_log_bytes", label, theirs.value("lockstep_log_bytes"));
    of_tenants_.set("lockstep_tenant_file_bytes", label,
                    theirs.sum("lockstep_metric_block_bytes") + theirs.value("lockstep_step_file_bytes") +
                        theirs.value("lockstep_span_file_bytes") + theirs.value("lockstep_log_record_file_bytes"));
  }
  of_tenants_.set("lockstep_tenants", "state=\"open\"", started);
  of_tenants_.set("lockstep_tenants", "state=\"failed\"", failed);
  of_tenants_.set("lockstep_tenants", "state=\"opening\"", static_cast<int64_t>(others_.size()) - started - failed);
}

std::optional<std::string> Tenants::problem_of_others() {
  constexpr size_t kNamedMax = 3;
  MutexLock lock(mutex_);
  std::string line;
  size_t failed = 0;
  for (const auto& [name, other] : others_) {
    if (!other->problem || ++failed > kNamedMax) continue;
    line += format("%s%s: %s", line.empty() ? "" : "; ", name.c_str(), other->problem->c_str());
  }
  if (failed == 0) return std::nullopt;
  if (failed > kNamedMax) line += format("; and %zu more", failed - kNamedMax);
  return line;
}

Result<std::vector<StoreSet>> Tenants::store_sets() {
  if (!default_started_) return Error{"what is stored is being opened"};
  std::vector<StoreSet> sets{default_->store_set("")};
  MutexLock lock(mutex_);
  for (const auto& [name, other] : others_) {
    Tenant* tenant = other->started;
    // A backup without it would be restored as one that never had it.
    if (tenant == nullptr) return Error{format("tenant %s is not open", name.c_str())};
    sets.push_back(tenant->store_set("tenants/" + name));
  }
  return sets;
}

// All at once: each of the others ends on its own thread.
void Tenants::stop() {
  std::vector<Other*> all;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    for (const auto& [name, other] : others_) all.push_back(other.get());
  }
  for (Other* other : all) other->thread.request_stop();
  if (default_started_.exchange(false)) default_->stop();
  for (Other* other : all) {
    if (other->thread.joinable()) other->thread.join();
  }
}

}  // namespace lockstep
