// State that must outlive everything else: verdicts, what people said of them, incidents, alerts with what is still to be
// sent and their silences, and who may do what (store/access_state.h).
//
// Contract (store/state_store_contract_test.cc): what save_verdict() and save_feedback() returned ok for survives a
// crash; the same id saved again replaces; listings are newest first.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/feedback.h"
#include "model/verdict.h"
#include "store/access_state.h"

namespace lockstep {

inline constexpr size_t kFeedbackMax = 20'000;  // answers of people; the newest are kept

// A capture (control/captures.h), as its JSON.
struct StoredCapture {
  std::string id;
  int64_t begun_unix_ns = 0;
  std::string json;
};

struct StoredVerdict {
  std::string id;
  std::string job_id;
  std::string state;
  int64_t found_unix_ns = 0;
  std::string json;  // as to_json(Verdict) wrote it
};
// Which of them; what is empty leaves none out.
struct VerdictsAsked {
  std::string_view id = {};
  std::string_view job_id = {};
  int64_t found_since_unix_ns = std::numeric_limits<int64_t>::min();
  std::string_view json_with = {};  // in whose JSON this stands somewhere
};

// What src/alert keeps: an alert, a notification that is still to be delivered, a silence, what was done for a verdict.
enum class AlertRowKind : uint8_t { kAlert = 1, kDelivery = 2, kSilence = 3, kAction = 4 };
struct StoredAlertRow {
  AlertRowKind kind = AlertRowKind::kAlert;
  std::string id;
  std::string json;        // empty in save_alert_rows(): the row goes
  bool is_others = false;  // it goes here alone: another process has it now
};

// What src/incident keeps.
struct StoredIncident {
  std::string id;
  std::string json;        // empty in save_incidents(): the row goes
  bool is_others = false;  // as of StoredAlertRow
};

class StateStore : public AccessState {
 public:
  virtual Result<void> save_verdict(const Verdict& verdict) = 0;
  virtual std::vector<StoredVerdict> find_verdicts(const VerdictsAsked& asked) const = 0;
  // Every one there is: a request that many make asks for less.
  std::vector<StoredVerdict> verdicts(std::string_view job_id) const { return find_verdicts({.job_id = job_id}); }

  virtual Result<void> save_feedback(const VerdictFeedback& feedback) = 0;
  virtual Result<void> drop_feedback(std::string_view verdict_id) = 0;  // nothing where there is none
  virtual std::vector<VerdictFeedback> feedback() const = 0;

  virtual Result<void> save_capture(const StoredCapture& capture) = 0;
  virtual Result<void> drop_capture(std::string_view id) = 0;  // nothing where there is none
  virtual std::vector<StoredCapture> captures() const = 0;

  // All of them or none: that an alert fires, and that it is to be sent, is one fact.
  virtual Result<void> save_alert_rows(std::span<const StoredAlertRow> rows) = 0;
  virtual Result<std::vector<StoredAlertRow>> alert_rows() const = 0;  // by kind and id

  // All of them or none: two that become one are one fact.
  virtual Result<void> save_incidents(std::span<const StoredIncident> rows) = 0;
  virtual Result<std::vector<StoredIncident>> incidents() const = 0;  // by id

  // Everything saved so far as a file of its own, which must not be there yet; open_sqlite_state_store() opens it.
  virtual Result<void> copy_to(const std::string& path) const;
};

}  // namespace lockstep
