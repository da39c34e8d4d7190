#include "access/token_store.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/base64.h"
#include "base/characters.h"
#include "base/log.h"
#include "base/secret_file.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kAdminFileId = "admin-file";

// Without them there is nothing to be safe with, so the process ends.
std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  size_t have = 0;
  while (have < count) {
    const ssize_t got = ::getrandom(bytes.data() + have, count - have, 0);
    if (got > 0) have += static_cast<size_t>(got);
    if (got < 0 && errno != EINTR) std::abort();
  }
  return bytes;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string role_text(uint32_t roles) {
  std::string text;
  for (std::string_view name : role_names(roles)) text += (text.empty() ? "" : " ") + std::string(name);
  return text;
}

StoredToken stored(const Token& token, const Sha256& digest) {
  return {token.id,
          token.name,
          std::string(digest.begin(), digest.end()),
          role_text(token.roles),
          joined(token.tenants),
          token.owner,
          token.created_unix_ns,
          token.expires_unix_ns,
          token.revoked_unix_ns,
          token.last_used_unix_ns};
}

Token admin_of_file() {
  return {.id = std::string(kAdminFileId),
          .name = "--admin-token-file",
          .owner = std::string(kAdminFileId),
          .roles = kAllRoles,
          .tenants = {"*"}};
}

}  // namespace

bool Token::is_of(std::string_view tenant) const {
  return speaks_for(tenants, tenant);
}

Result<uint32_t> parse_roles(std::string_view text) {
  uint32_t roles = 0;
  for (std::string_view word : split(text, ',')) {
    word = trim(word);
    const RoleRow* row = find_role(word);
    if (row == nullptr)
      return Error{
          "there are the roles ingest, read, operate and admin, and no others"};  // no echo: it may be a secret
    roles |= roles_of(row->role);
  }
  return roles;
}

std::vector<std::string_view> role_names(uint32_t roles) {
  std::vector<std::string_view> names;
  for (const RoleRow& row : kRoles) {
    if (!may(roles, row.role)) continue;
    const bool is_included = std::any_of(std::begin(kRoles), std::end(kRoles), [&](const RoleRow& other) {
      return other.role != row.role && may(roles, other.role) && may(roles_of(other.role), row.role);
    });
    if (!is_included) names.push_back(row.name);
  }
  return names;
}

bool is_token_id(std::string_view text) {
  return text.size() == 8 && is_lower_hex(text);
}

std::string random_secret(std::string_view prefix) {
  return std::string(prefix) + base64url(random_bytes(32));
}

TokenStore::TokenStore(AccessState& state, std::string admin_token_file, const Clock& clock, Counters& counters)
    : state_(state), admin_token_file_(std::move(admin_token_file)), clock_(clock), counters_(counters) {}

Result<std::unique_ptr<TokenStore>> TokenStore::open(AccessState& state, const std::string& admin_token_file,
                                                     const Clock& clock, Counters& counters) {
  std::unique_ptr<TokenStore> store(new TokenStore(state, admin_token_file, clock, counters));
  LOCKSTEP_TRY(store->read_back());
  if (!admin_token_file.empty()) {
    MutexLock lock(store->mutex_);
    LOCKSTEP_TRY(store->read_admin_token());
    store->in_use_ = true;
  }
  store->count();
  return store;
}

Result<TokenStore::Entry> TokenStore::entry_of(const StoredToken& row) {
  Entry entry;
  entry.token = {.id = row.id,
                 .name = row.name,
                 .owner = row.owner,
                 .created_unix_ns = row.created_unix_ns,
                 .expires_unix_ns = row.expires_unix_ns,
                 .revoked_unix_ns = row.revoked_unix_ns,
                 .last_used_unix_ns = row.last_used_unix_ns};
  // A role of a newer version gives nothing here.
  for (std::string_view word : split(row.roles, ' ')) {
    if (Result<uint32_t> role = parse_roles(word); role.ok()) entry.token.roles |= *role;
  }
  for (std::string_view tenant : split(row.tenants, ' ')) {
    if (!tenant.empty()) entry.token.tenants.emplace_back(tenant);
  }
  if (row.digest.size() != entry.digest.size())
    return Error{
        format("token %s in the state is damaged: its digest has %zu bytes", row.id.c_str(), row.digest.size())};
  std::copy(row.digest.begin(), row.digest.end(), entry.digest.begin());
  entry.use_saved_unix_ns = row.last_used_unix_ns;
  return entry;
}

Result<void> TokenStore::read_back() {
  const std::vector<StoredToken> rows = LOCKSTEP_TRY(state_.tokens());
  MutexLock lock(mutex_);
  for (const StoredToken& row : rows) {
    Entry entry = LOCKSTEP_TRY(entry_of(row));
    if (row.revoked_unix_ns == 0) in_use_ = true;
    id_of_digest_[entry.digest] = row.id;
    by_id_[row.id] = std::move(entry);
  }
  return {};
}

void TokenStore::take_over(std::span<const StoredToken> rows) {
  MutexLock one_change(change_mutex_);
  for (const StoredToken& row : rows) take_over_one(row);
  count();
}

void TokenStore::take_over_one(const StoredToken& row) {
  Result<Entry> entry = entry_of(row);
  if (!entry.ok() || !is_token_id(row.id)) return;
  {
    MutexLock lock(mutex_);
    const auto known = by_id_.find(row.id);
    const bool is_news = known == by_id_.end() ? live_tokens() < kTokensMax || row.revoked_unix_ns != 0
                                               : row.revoked_unix_ns != 0 && known->second.token.revoked_unix_ns == 0;
    if (!is_news) return;
    if (known != by_id_.end()) {
      known->second.token.revoked_unix_ns = row.revoked_unix_ns;
    } else {
      id_of_digest_[entry->digest] = row.id;
      by_id_[row.id] = std::move(*entry);
      in_use_ = in_use_ || row.revoked_unix_ns == 0;
    }
  }
  // It holds all the same; after a start it is heard of again.
  if (Result<void> saved = state_.save_token(row); !saved.ok())
    LOCKSTEP_LOG_WARN("access", "%s", saved.error().c_str());
}

// Under mutex_.
Result<void> TokenStore::read_admin_token() {
  struct stat info {};
  if (::stat(admin_token_file_.c_str(), &info) != 0)
    return Error{format("--admin-token-file %s: %s", admin_token_file_.c_str(), std::strerror(errno))};
  admin_changed_ = info.st_mtim;
  // A file system's clock ticks: two changes within a tick have one time. So it is read again until it is a second old.
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  admin_settled_ = now.tv_sec - info.st_mtim.tv_sec > 1;
  Result<std::string> secret = read_private_file(admin_token_file_);
  if (!secret.ok()) return prefixed(secret.failure(), "--admin-token-file: ");
  if (secret->size() < kAdminTokenBytesMin)
    return Error{format("--admin-token-file %s: a token of %zu characters can be guessed (at least %zu)",
                        admin_token_file_.c_str(), secret->size(), kAdminTokenBytesMin)};
  admin_digest_ = sha256(*secret);
  return {};
}

// Under mutex_.
void TokenStore::look_at_admin_token() {
  if (admin_token_file_.empty()) return;
  struct stat info {};
  const bool is_there = ::stat(admin_token_file_.c_str(), &info) == 0;
  const bool is_same =
      is_there && info.st_mtim.tv_sec == admin_changed_.tv_sec && info.st_mtim.tv_nsec == admin_changed_.tv_nsec;
  if ((is_same && admin_settled_) || (!is_there && admin_failing_)) return;
  const std::optional<Sha256> before = admin_digest_;
  const Result<void> read = read_admin_token();
  if (is_same && admin_digest_ == before) return;
  counters_.add("lockstep_access_admin_token_reads_total", read.ok() ? "result=\"read\"" : "result=\"refused\"");
  admin_failing_ = !read.ok();
  if (!read.ok()) LOCKSTEP_LOG_WARN("access", "%s; the token that it held before stays valid", read.error().c_str());
}

std::optional<Token> TokenStore::find(std::string_view secret) {
  const Sha256 digest = sha256(secret);
  const int64_t now_ns = clock_.unix_ns();
  MutexLock lock(mutex_);
  if (admin_digest_ && equal_in_constant_time(*admin_digest_, digest)) return admin_of_file();
  const auto id = id_of_digest_.find(digest);
  if (id == id_of_digest_.end()) return std::nullopt;
  Entry& entry = by_id_.find(id->second)->second;
  if (!equal_in_constant_time(entry.digest, digest) || !entry.token.is_live(now_ns)) return std::nullopt;
  if (now_ns - entry.token.last_used_unix_ns >= kNoteUseNs) entry.token.last_used_unix_ns = now_ns;
  return entry.token;
}

std::optional<Token> TokenStore::live(std::string_view id) const {
  MutexLock lock(mutex_);
  if (id == kAdminFileId && admin_digest_) return admin_of_file();
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || !found->second.token.is_live(clock_.unix_ns())) return std::nullopt;
  return found->second.token;
}

Result<TokenMade> TokenStore::create(TokenWanted wanted) {
  if (wanted.roles == 0) return Error{"a token needs a role: ingest, read, operate or admin"};
  if (wanted.tenants.empty()) return Error{"a token needs a tenant"};
  for (const std::string& tenant : wanted.tenants) {
    if (tenant != "*" && !is_tenant_name(tenant))
      return Error{format("\"%s\" cannot be a tenant's name: small letters, digits, - and _, at most 63 of them",
                          as_one_line(tenant.substr(0, 64)).c_str())};
  }
  for (const auto& [what, text] : {std::pair{"name", &wanted.name}, std::pair{"owner", &wanted.owner}}) {
    if (text->size() > kTokenNameBytesMax || has_control_characters(*text) || !is_utf8(*text))
      return Error{format("a token's %s is text of at most %zu bytes in one line", what, kTokenNameBytesMax)};
  }
  const int64_t now_ns = clock_.unix_ns();
  if (wanted.expires_unix_ns != 0 && wanted.expires_unix_ns <= now_ns)
    return Error{"the token would have expired already"};
  MutexLock one_change(change_mutex_);
  Entry entry;
  {
    MutexLock lock(mutex_);
    const size_t live = live_tokens();
    if (live >= kTokensMax) return Error{format("there are %zu tokens (limit %zu): revoke some", live, kTokensMax)};
    do entry.token.id = to_hex(random_bytes(4));
    while (by_id_.contains(entry.token.id));
  }
  // From the first token on everybody needs one: it must be able to make the others.
  const bool is_admin_everywhere = may(wanted.roles, Role::kAdmin) && wanted.tenants[0] == "*";
  if (!in_use_ && !(is_admin_everywhere && wanted.expires_unix_ns == 0))
    return Error{
        "the first token must be admin for all tenants and not expire (--role admin --tenant '*'): from then "
        "on every request needs a token, also the one that makes the next"};
  entry.token.name = std::move(wanted.name);
  entry.token.owner = wanted.owner.empty() ? entry.token.id : std::move(wanted.owner);
  entry.token.roles = wanted.roles | bit_of(Role::kAnyone);
  entry.token.tenants = std::move(wanted.tenants);
  entry.token.created_unix_ns = now_ns;
  entry.token.expires_unix_ns = wanted.expires_unix_ns;
  std::string secret = random_secret(kTokenPrefix);
  entry.digest = sha256(secret);
  LOCKSTEP_TRY(state_.save_token(stored(entry.token, entry.digest)));
  TokenMade made{entry.token, std::move(secret)};
  MutexLock lock(mutex_);
  id_of_digest_[entry.digest] = entry.token.id;
  by_id_[made.token.id] = std::move(entry);
  in_use_ = true;
  return made;
}

Result<Token> TokenStore::revoke(std::string_view id) {
  MutexLock one_change(change_mutex_);
  Entry changed;
  {
    MutexLock lock(mutex_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end())
      return Error{"there is no such token; lockstep token list shows their ids", ErrorCode::kNotFound};
    changed = found->second;
  }
  if (changed.token.revoked_unix_ns == 0) {
    changed.token.revoked_unix_ns = clock_.unix_ns();
    LOCKSTEP_TRY(state_.save_token(stored(changed.token, changed.digest)));
    MutexLock lock(mutex_);
    by_id_.find(id)->second.token.revoked_unix_ns = changed.token.revoked_unix_ns;
  }
  return changed.token;
}

std::vector<Token> TokenStore::list() const {
  MutexLock lock(mutex_);
  std::vector<Token> all;
  for (const auto& [id, entry] : by_id_) all.push_back(entry.token);
  std::sort(all.begin(), all.end(), [](const Token& a, const Token& b) {
    return std::pair(a.created_unix_ns, std::string_view(a.id)) < std::pair(b.created_unix_ns, std::string_view(b.id));
  });
  return all;
}

void TokenStore::tick() {
  {
    MutexLock lock(mutex_);
    look_at_admin_token();
  }
  save_uses();
  count();
}

// Once a minute, and without the lock while the disk is busy: find() is asked by the thread of all connections.
void TokenStore::save_uses() {
  std::vector<std::pair<std::string, int64_t>> used;
  {
    MutexLock lock(mutex_);
    const int64_t now_ns = clock_.monotonic_ns();
    if (saved_uses_ns_ != 0 && now_ns - saved_uses_ns_ < kNoteUseNs) return;
    saved_uses_ns_ = now_ns;
    for (auto& [id, entry] : by_id_) {
      if (entry.token.last_used_unix_ns == entry.use_saved_unix_ns || entry.token.revoked_unix_ns != 0) continue;
      entry.use_saved_unix_ns = entry.token.last_used_unix_ns;
      used.emplace_back(id, entry.token.last_used_unix_ns);
    }
  }
  for (const auto& [id, at_unix_ns] : used) {
    if (Result<void> saved = state_.note_token_use(id, at_unix_ns); !saved.ok()) {
      LOCKSTEP_LOG_WARN("access", "%s", saved.error().c_str());
      return;
    }
  }
}

size_t TokenStore::live_tokens() const {
  const int64_t now_ns = clock_.unix_ns();
  return static_cast<size_t>(
      std::count_if(by_id_.begin(), by_id_.end(), [&](const auto& one) { return one.second.token.is_live(now_ns); }));
}

void TokenStore::count() {
  MutexLock lock(mutex_);
  counters_.set("lockstep_access_tokens", "", static_cast<int64_t>(live_tokens() + (admin_digest_ ? 1 : 0)));
}

}  // namespace lockstep
