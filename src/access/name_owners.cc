#include "access/name_owners.h"

#include "base/log.h"
#include "base/text.h"

namespace lockstep {

const char* to_text(OwnedKind kind) {
  return kind == OwnedKind::kHost ? "host" : "job";
}

Result<std::unique_ptr<NameOwners>> NameOwners::open(AccessState& state, const Clock& clock, Counters& counters) {
  std::unique_ptr<NameOwners> names(new NameOwners(state, clock, counters));
  const std::vector<StoredOwner> rows = LOCKSTEP_TRY(state.owners());
  for (const StoredOwner& row : rows) {
    const OwnedKind kind = row.kind == "job" ? OwnedKind::kJob : OwnedKind::kHost;
    names->bound_[{row.tenant, kind, row.name}] = {row.owner, row.used_unix_ns};
    ++names->names_of_[{row.tenant, row.owner}];
  }
  return names;
}

Result<void> NameOwners::check(const Caller& caller, OwnedKind kind, std::string_view name) {
  if (caller.owner.empty() || name.empty()) return {};
  const auto refused = [&](const char* result, const char* why) {
    counters_.add("lockstep_name_owner_checks_total", format("result=\"%s\"", result));
    return Error{format("%s \"%s\" %s", to_text(kind), as_one_line(name.substr(0, 100)).c_str(), why)};
  };
  if (name.size() > kNameBytesMax) return refused("refused_limit", "has a name that is too long");
  const int64_t now_ns = clock_.unix_ns();
  Key key{caller.tenant, kind, std::string(name)};
  std::lock_guard lock(mutex_);
  const auto found = bound_.find(key);
  if (found != bound_.end()) {
    Bound& bound = found->second;
    if (bound.owner != caller.owner)
      return refused("refused_owner", "belongs to another token: lockstep owner takeover gives it to this one's owner");
    if (now_ns - bound.used_unix_ns >= kNoteUseNs) {
      bound.used_unix_ns = now_ns;
      changed_[key] = true;
    }
    return {};
  }
  const OwnerKey owner{caller.tenant, caller.owner};
  if (names_of_[owner] >= kNamesPerOwnerMax && !make_room(owner, now_ns))
    return refused("refused_limit", "is one name too many for this token's owner");
  counters_.add("lockstep_name_owner_checks_total", "result=\"bound\"");
  ++names_of_[owner];
  changed_[key] = true;
  bound_[std::move(key)] = {caller.owner, now_ns};
  return {};
}

// Under mutex_. Seldom: the owner is at its limit.
bool NameOwners::make_room(const OwnerKey& owner, int64_t now_ns) {
  auto oldest = bound_.end();
  for (auto at = bound_.begin(); at != bound_.end(); ++at) {
    if (std::get<0>(at->first) != owner.first || at->second.owner != owner.second) continue;
    if (oldest == bound_.end() || at->second.used_unix_ns < oldest->second.used_unix_ns) oldest = at;
  }
  if (oldest == bound_.end() || now_ns - oldest->second.used_unix_ns < kIdleNs) return false;
  changed_[oldest->first] = false;
  bound_.erase(oldest);
  --names_of_[owner];
  return true;
}

Result<void> NameOwners::take_over(const std::string& tenant, OwnedKind kind, const std::string& name,
                                   const std::string& owner) {
  std::lock_guard one_save(save_mutex_);
  const Key key{tenant, kind, name};
  {
    std::lock_guard lock(mutex_);
    if (!bound_.contains(key))
      return Error{format("%s \"%s\" belongs to nobody yet", to_text(kind), as_one_line(name.substr(0, 100)).c_str()),
                   ErrorCode::kNotFound};
  }
  const int64_t now_ns = clock_.unix_ns();
  const StoredOwner row{tenant, to_text(kind), name, owner, now_ns};
  LOCKSTEP_TRY(state_.save_owners({&row, 1}));
  std::lock_guard lock(mutex_);
  Bound& bound = bound_[key];
  if (size_t& count = names_of_[{tenant, bound.owner}]; count > 0) --count;
  ++names_of_[{tenant, owner}];
  bound = {owner, now_ns};
  changed_.erase(key);
  return {};
}

std::vector<NameOwner> NameOwners::list(std::string_view tenant, size_t limit) const {
  std::lock_guard lock(mutex_);
  std::vector<NameOwner> names;
  for (auto at = bound_.lower_bound({std::string(tenant), OwnedKind::kHost, ""});
       at != bound_.end() && std::get<0>(at->first) == tenant && names.size() < limit; ++at)
    names.push_back({std::get<1>(at->first), std::get<2>(at->first), at->second.owner, at->second.used_unix_ns});
  return names;
}

void NameOwners::tick() {
  std::lock_guard one_save(save_mutex_);
  std::vector<StoredOwner> save, drop;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, is_there] : changed_) {
      const auto& [tenant, kind, name] = key;
      if (const auto found = bound_.find(key); is_there && found != bound_.end())
        save.push_back({tenant, to_text(kind), name, found->second.owner, found->second.used_unix_ns});
      else
        drop.push_back({tenant, to_text(kind), name, {}, 0});
    }
    changed_.clear();
    int64_t hosts = 0, jobs = 0;
    if (!save.empty() || !drop.empty()) {
      for (const auto& [key, bound] : bound_) ++(std::get<1>(key) == OwnedKind::kHost ? hosts : jobs);
      counters_.set("lockstep_name_owners", "kind=\"host\"", hosts);
      counters_.set("lockstep_name_owners", "kind=\"job\"", jobs);
    }
  }
  Result<void> done;
  if (!save.empty()) done = state_.save_owners(save);
  if (done.ok() && !drop.empty()) done = state_.drop_owners(drop);
  if (done.ok()) {
    failing_ = false;
    return;
  }
  counters_.add("lockstep_name_owner_failures_total");
  if (!failing_) LOCKSTEP_LOG_ERROR("access", "%s; tried again", done.error().c_str());
  failing_ = true;
  std::lock_guard lock(mutex_);
  for (const std::vector<StoredOwner>* rows : {&save, &drop}) {
    for (const StoredOwner& row : *rows) {
      const OwnedKind kind = row.kind == "job" ? OwnedKind::kJob : OwnedKind::kHost;
      changed_.emplace(Key{row.tenant, kind, row.name}, rows == &save);
    }
  }
}

}  // namespace lockstep
