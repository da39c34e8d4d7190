#include "server/shared_state.h"

#include <utility>

#include "base/text.h"
#include "server/shared_tokens.h"
#include "store/forwarding_state.h"

namespace lockstep {
namespace {

// In names of rows: "alert/KIND/ID" and "incident/ID".
constexpr std::string_view kAlert = "alert/", kIncident = "incident/";

std::string name_of(AlertRowKind kind, const std::string& id) {
  return format("%s%d/%s", kAlert.data(), static_cast<int>(kind), id.c_str());
}

class SharedStateStore final : public ForwardingState {
 public:
  SharedStateStore(std::unique_ptr<StateStore> state, std::string tenant, SharedRows& rows, std::string token_secret)
      : ForwardingState(*state),
        state_(std::move(state)),
        tenant_(std::move(tenant)),
        rows_(rows),
        token_secret_(std::move(token_secret)) {}

  Result<void> save_token(const StoredToken& token) override {
    LOCKSTEP_TRY(state_->save_token(token));
    if (token_secret_.empty()) return {};
    const SharedRow row = token_row(token, token_secret_);
    return rows_.put("", {&row, 1});
  }

  Result<void> save_alert_rows(std::span<const StoredAlertRow> rows) override {
    LOCKSTEP_TRY(state_->save_alert_rows(rows));
    return share(rows, [](const StoredAlertRow& row) { return name_of(row.kind, row.id); });
  }
  Result<void> save_incidents(std::span<const StoredIncident> rows) override {
    LOCKSTEP_TRY(state_->save_incidents(rows));
    return share(rows, [](const StoredIncident& row) { return std::string(kIncident) + row.id; });
  }

 private:
  template <typename Row, typename Name>
  Result<void> share(std::span<const Row> rows, const Name& name) {
    std::vector<SharedRow> shared;
    for (const Row& row : rows) {
      if (!row.is_others) shared.push_back({name(row), row.json});
    }
    return shared.empty() ? Result<void>() : rows_.put(tenant_, shared);
  }

  const std::unique_ptr<StateStore> state_;
  const std::string tenant_;
  SharedRows& rows_;
  const std::string token_secret_;
};

}  // namespace

std::unique_ptr<StateStore> share_state(std::unique_ptr<StateStore> state, std::string tenant, SharedRows& rows,
                                        std::string token_secret) {
  return std::make_unique<SharedStateStore>(std::move(state), std::move(tenant), rows, std::move(token_secret));
}

std::string shared_alert(const SharedRows& rows, const std::string& tenant, const std::string& fingerprint) {
  return rows.find(tenant, name_of(AlertRowKind::kAlert, fingerprint));
}

SharedState shared_state(const SharedRows& rows, const std::string& tenant) {
  SharedState state;
  for (SharedRow& row : rows.rows(tenant)) {
    const std::string_view id = row.id;
    if (id.starts_with(kIncident)) {
      state.incidents.push_back({std::string(id.substr(kIncident.size())), std::move(row.value)});
    } else if (id.starts_with(kAlert) && id.size() > kAlert.size() + 2) {
      const int kind = id[kAlert.size()] - '0';
      if (kind < 1 || kind > 4 || id[kAlert.size() + 1] != '/') continue;
      state.alerts.push_back(
          {static_cast<AlertRowKind>(kind), std::string(id.substr(kAlert.size() + 2)), std::move(row.value)});
    }
  }
  return state;
}

}  // namespace lockstep
