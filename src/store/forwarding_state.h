// A state that hands everything on to another, for whoever changes or watches one call of it.
//
// Thread rule: as the other's.
#pragma once

#include "store/state_store.h"

namespace lockstep {

class ForwardingState : public StateStore {
 public:
  explicit ForwardingState(StateStore& to) : to_(to) {}

  Result<void> save_verdict(const Verdict& verdict) override { return to_.save_verdict(verdict); }
  std::vector<StoredVerdict> find_verdicts(const VerdictsAsked& asked) const override {
    return to_.find_verdicts(asked);
  }
  Result<void> save_feedback(const VerdictFeedback& feedback) override { return to_.save_feedback(feedback); }
  Result<void> drop_feedback(std::string_view verdict_id) override { return to_.drop_feedback(verdict_id); }
  std::vector<VerdictFeedback> feedback() const override { return to_.feedback(); }
  Result<void> save_capture(const StoredCapture& capture) override { return to_.save_capture(capture); }
  Result<void> drop_capture(std::string_view id) override { return to_.drop_capture(id); }
  std::vector<StoredCapture> captures() const override { return to_.captures(); }
  Result<void> save_alert_rows(std::span<const StoredAlertRow> rows) override { return to_.save_alert_rows(rows); }
  Result<std::vector<StoredAlertRow>> alert_rows() const override { return to_.alert_rows(); }
  Result<void> save_incidents(std::span<const StoredIncident> rows) override { return to_.save_incidents(rows); }
  Result<std::vector<StoredIncident>> incidents() const override { return to_.incidents(); }
  Result<void> copy_to(const std::string& path) const override { return to_.copy_to(path); }

  Result<void> save_token(const StoredToken& token) override { return to_.save_token(token); }
  Result<void> note_token_use(std::string_view id, int64_t last_used_unix_ns) override {
    return to_.note_token_use(id, last_used_unix_ns);
  }
  Result<std::vector<StoredToken>> tokens() const override { return to_.tokens(); }
  Result<int64_t> add_audit(const AuditRow& row) override { return to_.add_audit(row); }
  Result<void> finish_audit(int64_t number, std::string_view object, int status) override {
    return to_.finish_audit(number, object, status);
  }
  Result<std::vector<AuditRow>> audit(const AuditFilter& filter) const override { return to_.audit(filter); }
  Result<void> save_owners(std::span<const StoredOwner> owners) override { return to_.save_owners(owners); }
  Result<void> drop_owners(std::span<const StoredOwner> owners) override { return to_.drop_owners(owners); }
  Result<std::vector<StoredOwner>> owners() const override { return to_.owners(); }

 private:
  StateStore& to_;
};

}  // namespace lockstep
