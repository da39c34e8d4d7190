#include "diagnosis/signals/explain.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/evenly.h"
#include "base/median.h"
#include "base/text.h"
#include "diagnosis/phrasing.h"

namespace lockstep {
namespace {

// What a hypothesis must reach to be named at all.
constexpr double kNamedMin = 0.25;
// Of a second cause that is clearly there too.
constexpr double kAlsoMin = 0.55;
// How well a cause shows as what the steps say.
constexpr double kFits = 1, kMay = 0.5, kOdd = 0.03;
// An event explains what begins soon after it, or while it lasts.
constexpr int64_t kEventBeforeNs = 120'000'000'000;
constexpr int64_t kEventSoonNs = 60'000'000'000;
constexpr int64_t kSilentNs = 30'000'000'000;
constexpr int64_t kHeardNs = 15'000'000'000;
// A difference that was there before it began explains the change badly, but its beginning may be older than we know.
constexpr double kChronic = 0.35;
constexpr double kOneReference = 0.8;
// Spreads of the reference that a difference must exceed.
constexpr double kSigmas = 3;

struct CulpritView {
  const Identity* identity = nullptr;
  std::optional<EntityReadings> gpu;
  std::optional<EntityReadings> host;
  std::vector<EntityReadings> nics;
  std::vector<KeptEvent> events;
  std::vector<std::string> other_adapters;  // of the host, not its own
  int64_t heard_ns = 0;
};

struct Reference {
  bool known = false;
  double middle = 0;
  double spread = 0;
};

Reference reference_of(std::vector<double> values) {
  Reference reference;
  if (values.empty()) return reference;
  reference.known = true;
  reference.middle = median_of(values);
  reference.spread = spread_of(std::move(values), reference.middle);
  return reference;
}

// One test, answered.
struct Outcome {
  bool known = false;
  double strength = 0;
  const SignalTest* test = nullptr;
  const CulpritView* culprit = nullptr;
  std::string subject;
  std::string device;
  int64_t through_unix_ns = 0;  // the newest sample that is in value
  double value = 0;
  bool has_before = false;
  double before = 0;
  bool has_peers = false;
  double peers = 0;
  bool has_sibling = false;
  double sibling = 0;
  KeptEvent event;
};

double grade(double times_needed) {
  return times_needed < 1 ? 0 : std::min(1.0, 0.5 + 0.5 * (times_needed - 1));
}

double differs(double now, double reference, double spread, const SignalTest& test) {
  double difference = test.compare == Compare::kLower ? reference - now : now - reference;
  double need = std::max({test.floor, test.relative * std::fabs(reference), kSigmas * spread, 1e-9});
  return grade(difference / need);
}

template <typename T>
std::vector<const T*> sample(const std::vector<T>& all, size_t most) {
  std::vector<const T*> some;
  for (size_t at : evenly(all.size(), most)) some.push_back(&all[at]);
  return some;
}

std::string unit_text(const SignalRow& row) {
  if (row.unit[0] == '\0') return "";
  return row.unit[0] == '/' ? row.unit : std::string(" ") + row.unit;
}

std::string number_text(double value) {
  double size = std::fabs(value);
  if (size < 0.005) return "0";
  return format(size >= 100 ? "%.0f" : size >= 10 ? "%.1f" : "%.2f", value);
}

class Case {
 public:
  Case(const SignalStore& signals, const Question& question) : question_(question) {
    whole_job_ = question.sign == kWholeJob;
    constexpr size_t kManyCulprits = 3;
    constexpr uint32_t kOwnTime = kGpuBehind | kHostLate | kInputWaits;
    together_ = whole_job_ || ((question.sign & kOwnTime) != 0 && question.culprits.size() >= kManyCulprits);
    const SignalSpan span{.before_from_unix_ns = question.job_from_unix_ns, .since_unix_ns = question.since_unix_ns};
    std::set<std::string> culprit_hosts;
    std::set<Rank> culprit_ranks;
    for (const Identity& identity : question.culprits) {
      culprit_hosts.insert(identity.host);
      culprit_ranks.insert(identity.rank);
    }
    for (const Identity* identity : sample(question.culprits, kCulpritsMax)) {
      CulpritView view;
      view.identity = identity;
      view.heard_ns = signals.last_heard_unix_ns(identity->host);
      view.gpu = signals.read(Place::kGpu, identity->host, identity->gpu_uuid, span);
      view.host = signals.read(Place::kHost, identity->host, "", span);
      std::vector<std::string> near = signals.adapters_of(identity->host, identity->gpu_uuid);
      for (const std::string& device : near) {
        if (auto nic = signals.read(Place::kNic, identity->host, device, span)) view.nics.push_back(std::move(*nic));
      }
      for (std::string& device : signals.adapters_of(identity->host, "")) {
        if (std::find(near.begin(), near.end(), device) == near.end()) view.other_adapters.push_back(std::move(device));
      }
      view.events =
          signals.events_of(identity->host, question.since_unix_ns - kEventBeforeNs, question.through_unix_ns);
      culprits_.push_back(std::move(view));
    }
    if (whole_job_) return;
    std::set<std::string> seen_hosts;
    for (const Identity* identity : sample(question.peers, kPeersMax)) {
      if (culprit_ranks.contains(identity->rank)) continue;
      if (auto gpu = signals.read(Place::kGpu, identity->host, identity->gpu_uuid, span))
        peers_.push_back(std::move(*gpu));
      bool other_host = !culprit_hosts.contains(identity->host);
      for (const std::string& device : signals.adapters_of(identity->host, identity->gpu_uuid)) {
        bool own = false;
        for (const CulpritView& culprit : culprits_) {
          for (const EntityReadings& nic : culprit.nics) own |= !other_host && nic.id == device;
        }
        if (own) continue;
        if (auto nic = signals.read(Place::kNic, identity->host, device, span)) peers_.push_back(std::move(*nic));
      }
      if (!other_host || !seen_hosts.insert(identity->host).second) continue;
      if (auto host = signals.read(Place::kHost, identity->host, "", span)) peers_.push_back(std::move(*host));
      int64_t heard = signals.last_heard_unix_ns(identity->host);
      if (heard > 0) {
        ++peer_hosts_;
        peer_hosts_heard_ += heard >= question.through_unix_ns - kHeardNs;
      }
      std::set<EventIndex> kinds;
      for (const KeptEvent& event :
           signals.events_of(identity->host, question.since_unix_ns - kEventBeforeNs, question.through_unix_ns))
        kinds.insert(event.kind);
      for (EventIndex kind : kinds) ++peer_hosts_with_[kind];
    }
  }

  const std::vector<CulpritView>& culprits() const { return culprits_; }

  Outcome ask(const SignalTest& test) const {
    if (test.compare == Compare::kHappened) return ask_event(test);
    if (test.compare == Compare::kSilent) return ask_silent(test);
    SignalIndex signal = signal_index(test.signal);
    Outcome best;
    best.test = &test;
    if (signal == kNoSignal) return best;
    Place place = signal_row(signal).place;
    std::vector<double> strengths;
    for (const CulpritView& culprit : culprits_) {
      Outcome of_culprit;
      if (test.compare == Compare::kAboveSibling) {
        of_culprit = ask_sums(test, signal, culprit);
      } else if (place == Place::kGpu && culprit.gpu) {
        of_culprit = ask_entity(test, signal, *culprit.gpu, culprit);
      } else if (place == Place::kHost && culprit.host) {
        of_culprit = ask_entity(test, signal, *culprit.host, culprit);
      } else if (place == Place::kNic) {
        for (const EntityReadings& nic : culprit.nics) {
          Outcome outcome = ask_entity(test, signal, nic, culprit);
          if (outcome.known && (!of_culprit.known || outcome.strength > of_culprit.strength)) of_culprit = outcome;
        }
      }
      if (!of_culprit.known) continue;
      strengths.push_back(of_culprit.strength);
      if (!best.known || of_culprit.strength > best.strength) best = of_culprit;
    }
    // All are slow alike: what counts is what most of them show, not the oddest.
    if (together_ && best.known) best.strength = median_of(strengths);
    best.test = &test;
    return best;
  }

 private:
  // Of an adapter's state (its rate, its PCIe width) the same adapter of other hosts is the measure, where hosts are
  // alike: not every port of a host is as fast. What comes and goes is compared with everybody.
  Reference peers_of(SignalIndex signal, const EntityReadings* entity = nullptr) const {
    std::vector<double> values, alike;
    bool by_name = entity != nullptr && entity->place == Place::kNic && signal_row(signal).kind == SignalKind::kLevel;
    for (const EntityReadings& peer : peers_) {
      SignalReading reading = peer.of(signal);
      if (!reading.known) continue;
      values.push_back(reading.now);
      if (by_name && peer.id == entity->id) alike.push_back(reading.now);
    }
    return reference_of(alike.empty() ? std::move(values) : std::move(alike));
  }

  Outcome start(const SignalTest& test, SignalIndex signal, const EntityReadings& entity,
                const CulpritView& culprit) const {
    Outcome outcome;
    outcome.test = &test;
    outcome.culprit = &culprit;
    outcome.subject = entity.place == Place::kGpu    ? format("rank %d", culprit.identity->rank.value())
                      : entity.place == Place::kHost ? entity.host
                                                     : entity.id + " of " + entity.host;
    if (entity.place == Place::kNic) outcome.device = entity.id;
    SignalReading reading = entity.of(signal);
    outcome.through_unix_ns = entity.through_unix_ns;
    outcome.value = reading.now;
    outcome.has_before = reading.before_known;
    outcome.before = reading.before;
    return outcome;
  }

  Outcome ask_entity(const SignalTest& test, SignalIndex signal, const EntityReadings& entity,
                     const CulpritView& culprit) const {
    SignalReading reading = entity.of(signal);
    Outcome outcome = start(test, signal, entity, culprit);
    if (!reading.known) return outcome;
    Reference peers = peers_of(signal, &entity);
    outcome.has_peers = peers.known;
    outcome.peers = peers.middle;
    if (test.compare == Compare::kIsSet) {
      outcome.known = true;
      if (reading.now < test.floor || (peers.known && peers.middle >= test.floor)) return outcome;
      outcome.strength = !reading.before_known ? kOneReference : reading.before >= test.floor ? 0.5 : 1;
      return outcome;
    }
    if (test.compare == Compare::kBelowSibling) {
      SignalIndex sibling = signal_index(test.sibling);
      SignalReading most = entity.of(sibling);
      if (!most.known) return outcome;
      outcome.known = true;
      outcome.has_sibling = true;
      outcome.sibling = most.now;
      auto below = [&](double now, double limit) {
        return limit - now >= test.floor && now < limit * (1 - test.relative);
      };
      if (!below(reading.now, most.now)) return outcome;
      Reference peers_most = peers_of(sibling, &entity);
      if (peers.known && peers_most.known && below(peers.middle, peers_most.middle)) return outcome;
      outcome.strength = !reading.before_known ? kOneReference : below(reading.before, most.now) ? 0.45 : 1;
      return outcome;
    }
    if (!reading.before_known && !peers.known) return outcome;
    outcome.known = true;
    double by_before = reading.before_known ? differs(reading.now, reading.before, reading.before_spread, test) : 0;
    double by_peers = peers.known ? differs(reading.now, peers.middle, peers.spread, test) : 0;
    if (reading.before_known && peers.known) {
      outcome.strength = by_peers * (kChronic + (1 - kChronic) * by_before);
    } else if (reading.before_known) {
      outcome.strength = (whole_job_ ? 1 : kOneReference) * by_before;
    } else {
      outcome.strength = kOneReference * by_peers;
    }
    return outcome;
  }

  // One signal against another, each summed over the adapters of a host.
  Outcome ask_sums(const SignalTest& test, SignalIndex signal, const CulpritView& culprit) const {
    Outcome outcome;
    outcome.test = &test;
    outcome.culprit = &culprit;
    outcome.subject = culprit.identity->host;
    SignalIndex sibling = signal_index(test.sibling);
    bool own_known = false, sibling_known = false;
    for (const EntityReadings& nic : culprit.nics) {
      SignalReading own = nic.of(signal), other = nic.of(sibling);
      own_known |= own.known;
      sibling_known |= other.known;
      outcome.through_unix_ns = std::max(outcome.through_unix_ns, nic.through_unix_ns);
      outcome.value += own.known ? own.now : 0;
      outcome.sibling += other.known ? other.now : 0;
      outcome.has_before |= own.before_known;
      outcome.before += own.before_known ? own.before : 0;
    }
    if (!own_known || !sibling_known) return outcome;
    outcome.known = true;
    outcome.has_sibling = true;
    if (outcome.value < test.floor || outcome.value < test.relative * outcome.sibling) return outcome;
    Reference peers = peers_of(signal), peers_sibling = peers_of(sibling);
    outcome.has_peers = peers.known;
    outcome.peers = peers.middle;
    bool everybody = peers.known && peers_sibling.known && peers.middle >= test.relative * peers_sibling.middle &&
                     peers.middle >= 0.2 * test.floor;
    outcome.strength = everybody ? 0.3 : 1;
    return outcome;
  }

  Outcome ask_event(const SignalTest& test) const {
    Outcome best;
    best.test = &test;
    EventIndex kind = event_index(test.signal);
    if (kind == kNoEvent) return best;
    constexpr std::string_view kHostWide[] = {"nvswitch",      "oom_kill", "hung_task",
                                              "machine_check", "cpu_hot",  "storage_server"};
    bool host_wide = std::find(std::begin(kHostWide), std::end(kHostWide), test.signal) != std::end(kHostWide);
    for (const CulpritView& culprit : culprits_) {
      if (culprit.heard_ns == 0 && culprit.events.empty()) continue;  // no agent: nobody would have told
      if (!best.known) {
        best.known = true;
        best.culprit = &culprit;
        best.subject = culprit.identity->host;
      }
      for (const KeptEvent& event : culprit.events) {
        if (event.kind != kind) continue;
        double strength = 1;
        bool own_adapter = std::any_of(culprit.nics.begin(), culprit.nics.end(),
                                       [&](const EntityReadings& nic) { return nic.id == event.device; });
        bool others_adapter = std::find(culprit.other_adapters.begin(), culprit.other_adapters.end(), event.device) !=
                              culprit.other_adapters.end();
        if (!event.gpu_uuid.empty()) {
          if (event.gpu_uuid != culprit.identity->gpu_uuid) continue;
          if (together_) continue;  // one GPU of many
        } else if (others_adapter) {
          continue;
        } else if (!own_adapter && !host_wide) {
          strength = 0.5;  // somewhere on its host
        }
        if (event.time_unix_ns > question_.since_unix_ns + kEventSoonNs) strength *= 0.6;
        if (event.secondary) strength *= 0.5;
        auto at_peers = peer_hosts_with_.find(kind);
        if (at_peers != peer_hosts_with_.end() && at_peers->second * 3 > peer_hosts_) strength *= 0.2;
        if (strength <= best.strength) continue;
        best.strength = strength;
        best.culprit = &culprit;
        best.subject = !event.gpu_uuid.empty() ? format("rank %d", culprit.identity->rank.value())
                       : event.device.empty()  ? culprit.identity->host
                                               : event.device + " of " + culprit.identity->host;
        if (own_adapter) best.device = event.device;
        best.event = event;
      }
    }
    return best;
  }

  Outcome ask_silent(const SignalTest& test) const {
    Outcome outcome;
    outcome.test = &test;
    for (const CulpritView& culprit : culprits_) {
      if (culprit.heard_ns == 0) continue;
      outcome.known = true;
      outcome.culprit = &culprit;
      outcome.subject = culprit.identity->host;
      outcome.value = static_cast<double>(question_.through_unix_ns - culprit.heard_ns) / 1e9;
      if (culprit.heard_ns < question_.through_unix_ns - kSilentNs && peer_hosts_heard_ > 0) outcome.strength = 1;
      if (outcome.strength > 0) break;
    }
    return outcome;
  }

  const Question& question_;
  bool whole_job_ = false;
  bool together_ = false;  // the culprits, or all ranks, are slow alike
  std::vector<CulpritView> culprits_;
  std::vector<EntityReadings> peers_;
  int peer_hosts_ = 0;
  int peer_hosts_heard_ = 0;
  std::map<EventIndex, int> peer_hosts_with_;
};

struct Hypothesis {
  const Signature* signature = nullptr;
  double fit = 0;
  double likelihood = 0;
  double coverage = 0;
  double score = 0;
  double untaught = 0;    // the score without what people said
  bool proven = false;    // by a required test, not by exclusion
  bool opposed = false;   // a signal speaks against it
  bool excluded = false;  // what it needs is told, and is healthy
  std::vector<Outcome> required, expected, contradicting;
  double strength() const { return fit * likelihood * (0.5 + 0.5 * coverage); }
  bool is_open() const { return proven && !opposed; }
};

Hypothesis weigh(const Case& about, const Signature& signature, uint32_t sign, const CausePriors& priors) {
  Hypothesis hypothesis;
  hypothesis.signature = &signature;
  hypothesis.fit = (signature.fits & sign) != 0 ? kFits : (signature.may & sign) != 0 ? kMay : kOdd;
  auto ask_all = [&](const std::vector<SignalTest>& tests, std::vector<Outcome>& outcomes) {
    for (const SignalTest& test : tests) outcomes.push_back(about.ask(test));
  };
  ask_all(signature.required, hypothesis.required);
  ask_all(signature.expected, hypothesis.expected);
  ask_all(signature.contradicting, hypothesis.contradicting);

  double proof = 0, best_known = 0, best_possible = 0, known_weight = 0, all_weight = 0;
  for (const Outcome& outcome : hypothesis.required) {
    best_possible = std::max(best_possible, outcome.test->weight);
    all_weight += outcome.test->weight;
    if (!outcome.known) continue;
    known_weight += outcome.test->weight;
    best_known = std::max(best_known, outcome.test->weight);
    proof = std::max(proof, outcome.test->weight * outcome.strength);
  }
  hypothesis.proven = proof > 0;
  double expected = 0, expected_known = 0, expected_all = 0;
  for (const Outcome& outcome : hypothesis.expected) {
    expected_all += outcome.test->weight;
    if (!outcome.known) continue;
    expected_known += outcome.test->weight;
    expected += outcome.test->weight * outcome.strength;
  }
  double against = 0, against_known = 0, against_all = 0;
  for (const Outcome& outcome : hypothesis.contradicting) {
    against_all += outcome.test->weight;
    if (!outcome.known) continue;
    against_known += outcome.test->weight;
    against += outcome.test->weight * outcome.strength;
  }
  hypothesis.coverage = best_possible > 0 ? 0.7 * best_known / best_possible : 0.7;
  hypothesis.coverage += expected_all > 0 ? 0.3 * expected_known / expected_all : 0.3 * (best_known > 0);
  if (signature.unproven > 0) {
    double looked = against_all > 0 ? against_known / against_all : 0;
    if (proof < signature.unproven * looked) {
      proof = signature.unproven * looked;
      hypothesis.coverage = looked;
    }
  } else {
    hypothesis.excluded = !hypothesis.proven && known_weight > 0 && known_weight >= 0.4 * all_weight;
  }
  double support = expected_known > 0 ? 0.8 + 0.2 * expected / expected_known : 0.95;
  hypothesis.likelihood = std::clamp(proof * support - against, 0.0, 1.0);
  // Shares of causes differ by far more than what is known about them: their root counts, within bounds.
  auto prior = [](double share) { return std::clamp(std::sqrt(share / 0.1), 0.5, 1.25); };
  hypothesis.score = hypothesis.strength() * prior(priors.weight(signature.cause, signature.prior));
  hypothesis.untaught = hypothesis.strength() * prior(signature.prior);
  hypothesis.opposed = against > 0;
  return hypothesis;
}

// Of the GPU, the adapter or the host that the outcome is about, and of no other.
std::string query_of(const Outcome& outcome, SignalIndex signal, const Question& question) {
  const CulpritView& culprit = *outcome.culprit;
  std::vector<std::string> ids;
  if (outcome.test->compare == Compare::kAboveSibling) {
    for (const EntityReadings& nic : culprit.nics) ids.push_back(nic.id);
  } else if (signal_row(signal).place == Place::kNic) {
    ids = {outcome.device};
  } else if (signal_row(signal).place == Place::kGpu) {
    ids = {culprit.identity->gpu_uuid};
  }
  return signal_query(signal, culprit.identity->host, ids, question.since_unix_ns, outcome.through_unix_ns);
}

std::string with_capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

// "SM clock 1.41 GHz, 1.98 GHz before, 1.97 GHz at its peers"
std::string figures(const Outcome& outcome, const SignalRow& row) {
  std::string unit = unit_text(row);
  std::string text = format("%s %s%s", row.words, number_text(outcome.value).c_str(), unit.c_str());
  if (outcome.has_sibling) {
    SignalIndex sibling = signal_index(outcome.test->sibling);
    text += format(", %s %s%s", signal_row(sibling).words, number_text(outcome.sibling).c_str(), unit.c_str());
  }
  if (outcome.has_before) text += format(", %s before", number_text(outcome.before).c_str());
  if (outcome.has_peers) text += format(", %s at its peers", number_text(outcome.peers).c_str());
  return text;
}

Claim claim_of(const Outcome& outcome, const Question& question) {
  Claim made;
  made.subject = outcome.subject;
  if (outcome.test->compare == Compare::kHappened) {
    const EventRow& row = event_rows()[outcome.event.kind];
    double after = static_cast<double>(outcome.event.time_unix_ns - question.since_unix_ns) / 1e9;
    made.kind = ClaimKind::kEvent;
    std::string code = outcome.event.code >= 0 ? format(" %lld", static_cast<long long>(outcome.event.code)) : "";
    made.claim = format("%s (%s%s) %.0f s %s it began%s%s.", with_capital(row.words).c_str(), row.name, code.c_str(),
                        std::fabs(after), after < 0 ? "before" : "after", outcome.event.text.empty() ? "" : ": ",
                        outcome.event.text.c_str());
    made.value = static_cast<double>(outcome.event.count);
    made.unit = "events";
    made.query =
        format("/api/logs?event=%s&host=%s&from=%lld&to=%lld", url_part(row.name).c_str(),
               url_part(outcome.culprit->identity->host).c_str(), static_cast<long long>(outcome.event.time_unix_ns),
               static_cast<long long>(outcome.event.time_unix_ns));
    if (!outcome.event.gpu_uuid.empty()) made.query += "&gpu=" + url_part(outcome.event.gpu_uuid);
    return made;
  }
  made.kind = ClaimKind::kCounter;
  if (outcome.test->compare == Compare::kSilent) {
    made.claim = format("Nothing was heard of its host for %.0f s, while others report.", outcome.value);
    made.value = outcome.value;
    made.unit = "s";
    made.query = format("/api/agents?host=%s&at=%lld", url_part(outcome.culprit->identity->host).c_str(),
                        static_cast<long long>(question.through_unix_ns));
    return made;
  }
  const SignalRow& row = signal_row(signal_index(outcome.test->signal));
  made.claim = with_capital(figures(outcome, row)) + ".";
  made.value = outcome.value;
  made.unit = row.unit;
  made.baseline = outcome.has_sibling ? outcome.sibling : outcome.before;
  made.peers = outcome.peers;
  made.query = query_of(outcome, signal_index(outcome.test->signal), question);
  return made;
}

// The healthy signal that says most against a cause.
const Outcome* healthiest(const Hypothesis& hypothesis) {
  const Outcome* best = nullptr;
  for (const Outcome& outcome : hypothesis.required) {
    if (!outcome.known || outcome.strength > 0 || outcome.test->compare == Compare::kHappened ||
        outcome.test->compare == Compare::kSilent)
      continue;
    if (best == nullptr || outcome.test->weight > best->test->weight) best = &outcome;
  }
  return best;
}

void add_exclusions(const std::vector<Hypothesis>& all, const Hypothesis* named, const Question& question,
                    Explanation& explanation) {
  constexpr size_t kExclusionsMax = 4;
  std::vector<const Hypothesis*> order;
  for (const Hypothesis& hypothesis : all) {
    if (hypothesis.proven || &hypothesis == named || healthiest(hypothesis) == nullptr) continue;
    order.push_back(&hypothesis);
  }
  // First what would have fitted the steps, the commonest first.
  std::stable_sort(order.begin(), order.end(), [](const Hypothesis* a, const Hypothesis* b) {
    if (a->excluded != b->excluded) return a->excluded;
    if (a->fit != b->fit) return a->fit > b->fit;
    return a->signature->prior > b->signature->prior;
  });
  std::set<Cause> causes;
  for (const Hypothesis* hypothesis : order) {
    if (explanation.exclusions.size() >= kExclusionsMax) break;
    // What never looks like this needs no exclusion, unless there is nothing else to say.
    if (hypothesis->fit <= kOdd && !explanation.exclusions.empty()) break;
    // The same cause may be looked for in two places.
    if ((named != nullptr && named->signature->cause == hypothesis->signature->cause) ||
        !causes.insert(hypothesis->signature->cause).second)
      continue;
    Claim made = claim_of(*healthiest(*hypothesis), question);
    made.kind = ClaimKind::kExclusion;
    if (!made.claim.empty() && made.claim[1] >= 'a' && made.claim[1] <= 'z')
      made.claim[0] =
          static_cast<char>(made.claim[0] >= 'A' && made.claim[0] <= 'Z' ? made.claim[0] - 'A' + 'a' : made.claim[0]);
    made.claim = format("Not %s: %s", to_text(hypothesis->signature->cause), made.claim.c_str());
    explanation.exclusions.push_back(std::move(made));
  }
}

// Where the node's signals say nothing: what to look at next.
const char* deciding_observation(uint32_t sign) {
  switch (sign) {
    case kGpuBehind:
      return "a kernel profile of it and of one peer";
    case kHostLate:
      return "a stack sample of its main thread";
    case kInputWaits:
      return "stacks of its loader's workers";
    case kSlowFlows:
    case kTransfersPause:
      return "counters of the switch ports on its path";
    case kGroupTransferSlow:
      return "NVLink and NVSwitch logs of the group's hosts";
    case kPauses:
      return "a stack of its main thread while it stands still";
    case kDead:
      return "exit code and log of its process";
    case kStalled:
    case kMissing:
      return "stacks of all ranks";
    case kWholeJob:
      return "a kernel profile of one rank before and after";
    case kCheckpointLong:
      return "latency of the file system that checkpoints are written to";
    default:
      return "a profile of it and of one peer";
  }
}

// Somebody reports what would show it.
bool is_checked(const Hypothesis& hypothesis) {
  return std::any_of(hypothesis.required.begin(), hypothesis.required.end(),
                     [](const Outcome& outcome) { return outcome.known; });
}

std::string why_lower(const Hypothesis& hypothesis, const Hypothesis* named) {
  const Outcome* against = nullptr;
  for (const Outcome& outcome : hypothesis.contradicting) {
    if (outcome.known && outcome.strength > 0 &&
        (against == nullptr || outcome.strength * outcome.test->weight > against->strength * against->test->weight))
      against = &outcome;
  }
  if (against != nullptr && against->test->compare != Compare::kHappened)
    return format("speaks against it: %s", figures(*against, signal_row(signal_index(against->test->signal))).c_str());
  if (hypothesis.proven && named != nullptr && hypothesis.likelihood >= kAlsoMin)
    return "seen at the same time, and weaker or rarer";
  if (hypothesis.proven) return "its sign is weak";
  return is_checked(hypothesis) ? "nothing shows it" : "its node reports nothing that would show it";
}

// All of them, the best first.
std::vector<Hypothesis> weigh_all(const Case& about, uint32_t sign, const CausePriors& priors) {
  std::vector<Hypothesis> all;
  for (const Signature& signature : signatures()) all.push_back(weigh(about, signature, sign, priors));
  std::stable_sort(all.begin(), all.end(), [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  // What people said of verdicts decides between causes that the signals leave open. It lifts none that a signal speaks
  // against, or that nothing proves, over one that is proven and has nothing against it.
  auto untaught = std::max_element(all.begin(), all.end(),
                                   [](const Hypothesis& a, const Hypothesis& b) { return a.untaught < b.untaught; });
  if (untaught != all.end() && untaught->is_open() && !all.front().is_open()) {
    auto first_open = std::find_if(all.begin(), all.end(), [](const Hypothesis& each) { return each.is_open(); });
    std::rotate(all.begin(), first_open, first_open + 1);
  }
  return all;
}

// What is shown of a hypothesis: its strongest required signs, then what else was expected and is there.
std::vector<const Outcome*> shown_of(const Hypothesis& best, const Outcome** strongest) {
  std::vector<const Outcome*> shown;
  std::set<std::string_view> seen;
  auto take = [&](const std::vector<Outcome>& outcomes) {
    for (const Outcome& outcome : outcomes) {
      if (outcome.known && outcome.strength > 0 && seen.insert(outcome.test->signal).second) shown.push_back(&outcome);
    }
  };
  take(best.required);
  std::stable_sort(shown.begin(), shown.end(), [](const Outcome* a, const Outcome* b) {
    return a->strength * a->test->weight > b->strength * b->test->weight;
  });
  if (shown.size() > 3) shown.resize(3);
  *strongest = shown.empty() ? nullptr : shown.front();
  take(best.expected);
  return shown;
}

void name_cause(const Hypothesis& best, double score_sum, const Question& question, Explanation& explanation) {
  const Signature& signature = *best.signature;
  explanation.by_signals = true;
  // Where the steps name the same cause and no signal shows more, the layer is theirs too.
  if (best.proven || signature.cause != question.cause || question.layer == Layer::kUnknown)
    explanation.layer = signature.layer;
  explanation.cause = signature.cause;
  explanation.coverage = best.coverage;
  explanation.confidence =
      std::min(0.97, best.likelihood * (0.6 + 0.4 * best.coverage) * (0.5 + 0.5 * best.score / score_sum));
  const Outcome* strongest = nullptr;
  const std::vector<const Outcome*> shown = shown_of(best, &strongest);
  if (strongest != nullptr && strongest->culprit != nullptr) {
    const Identity& guilty = *strongest->culprit->identity;
    explanation.rank = guilty.rank;
    explanation.host = guilty.host;
    explanation.gpu_uuid = guilty.gpu_uuid;
    explanation.device = strongest->device;
  }
  for (const Outcome* outcome : shown) explanation.chain.push_back(claim_of(*outcome, question));
  if (question.sign == kWholeJob) {
    explanation.component = question.component.empty() ? signature.component : question.component;
  } else if (!explanation.device.empty()) {
    explanation.component =
        format("%s %s of %s", signature.component, explanation.device.c_str(), explanation.host.c_str());
  } else if (explanation.rank != kNoRank) {
    explanation.component = format("%s of rank %d", signature.component, explanation.rank.value());
  }
  explanation.next.push_back({signature.action, signature.command});
  if (explanation.confidence < 0.6) explanation.decided_by = signature.decided_by;
}

// As sure as the steps alone can be: they name the layer well and the cause by habit.
void leave_to_steps(const std::vector<Hypothesis>& all, const Question& question, Explanation& explanation) {
  explanation.confidence = 0.4;
  bool refuted = false;
  for (const Hypothesis& hypothesis : all) {
    if (question.cause != hypothesis.signature->cause) continue;
    explanation.coverage = std::max(explanation.coverage, hypothesis.coverage);
    refuted |= hypothesis.excluded && hypothesis.fit >= kMay;
    if (!hypothesis.excluded) explanation.decided_by = hypothesis.signature->decided_by;
  }
  // Its own signs are reported and are not there: only the layer is left.
  if (refuted) explanation.confidence = 0.25;
  if (refuted || explanation.decided_by.empty()) explanation.decided_by = deciding_observation(question.sign);
}

void add_alternatives(const std::vector<Hypothesis>& all, const Hypothesis* best, double score_sum,
                      Explanation& explanation) {
  constexpr size_t kAlternativesMax = 3;
  std::set<Cause> causes{explanation.cause};
  std::vector<const Hypothesis*> others;
  for (const Hypothesis& hypothesis : all) others.push_back(&hypothesis);
  // Behind those with a score: what fits the steps and cannot be told for want of telemetry.
  std::stable_sort(others.begin(), others.end(), [](const Hypothesis* a, const Hypothesis* b) {
    if (a->score > 0.02 || b->score > 0.02) return a->score > b->score;
    return a->fit * a->signature->prior > b->fit * b->signature->prior;
  });
  for (const Hypothesis* hypothesis : others) {
    const Signature& signature = *hypothesis->signature;
    if (hypothesis == best || hypothesis->excluded || hypothesis->fit <= kOdd) continue;
    const bool checked = is_checked(*hypothesis);
    if (checked && !hypothesis->proven && hypothesis->score <= 0.02) continue;
    if (hypothesis->proven && hypothesis->likelihood >= kAlsoMin && hypothesis->strength() >= kNamedMin &&
        best != nullptr && !causes.contains(signature.cause))
      explanation.also.push_back(signature.cause);
    if (explanation.alternatives.size() >= kAlternativesMax || !causes.insert(signature.cause).second) continue;
    explanation.alternatives.push_back({format("%s (%s)", to_text(signature.cause), to_text(signature.layer)),
                                        std::round(hypothesis->score / score_sum * 100) / 100,
                                        why_lower(*hypothesis, best), signature.decided_by, signature.cause, checked});
  }
}

}  // namespace

Explanation explain(const SignalStore& signals, const CausePriors& priors, const Question& question) {
  Explanation explanation;
  explanation.layer = question.layer;
  explanation.cause = question.cause;
  explanation.component = question.component;
  if (!question.culprits.empty()) {
    explanation.rank = question.culprits.front().rank;
    explanation.host = question.culprits.front().host;
    explanation.gpu_uuid = question.culprits.front().gpu_uuid;
  }
  Case about(signals, question);
  const std::vector<Hypothesis> all = weigh_all(about, question.sign, priors);
  const Hypothesis* best = all.empty() || all.front().strength() < kNamedMin ? nullptr : &all.front();
  double score_sum = 0.05;
  for (const Hypothesis& hypothesis : all) score_sum += hypothesis.score;
  if (best != nullptr) {
    name_cause(*best, score_sum, question, explanation);
  } else {
    leave_to_steps(all, question, explanation);
  }
  add_exclusions(all, best, question, explanation);
  add_alternatives(all, best, score_sum, explanation);
  return explanation;
}

}  // namespace lockstep
