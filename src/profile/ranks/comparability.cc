#include "profile/ranks/comparability.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"

namespace lockstep::profile {
namespace {

constexpr double kOtherCalls = 0.5;        // calls a step that differ by more: another program
constexpr double kNoteworthyCalls = 0.02;  // calls a step that differ by more are worth a note
constexpr double kSameCalls = 0.05;        // of an operator: its work is compared where it is called as often
constexpr double kOtherWork = 0.1;         // work a step that differs by more: another batch or model
constexpr double kNoteworthyWork = 0.01;   // work a step that differs by more is worth a note
constexpr double kNoteworthyShapes = 0.2;  // share of the kernels' time on shapes that the other run has not
constexpr double kOtherStepCount = 2;      // times as many steps are worth a note

bool differ(double ratio, double by) {
  return ratio > 1 + by || ratio < 1 / (1 + by);
}

class Check {
 public:
  Check(const RunSummary& before, const RunSummary& after) : before_(before), after_(after) {}

  Comparability all() {
    check_content();
    check_machines();
    check_versions();
    check_steps();
    check_calls();
    check_work();
    note_shapes();
    return std::move(out_);
  }

 private:
  void refuse(std::string why) { out_.not_comparable.push_back(std::move(why)); }
  void note(std::string what) { out_.notes.push_back(std::move(what)); }

  // A trace in which nothing was recorded is no slower than any other.
  void check_content() {
    const bool first = before_.step_ns > 0 && before_.calls > 0, second = after_.step_ns > 0 && after_.calls > 0;
    if (first && second) return;
    refuse(format("nothing ran in the traces of the %s run", first ? "second" : "first"));
  }

  void check_machines() {
    if (before_.has_gpu != after_.has_gpu) refuse("only one of them ran on a GPU");
    if (!before_.devices.empty() && !after_.devices.empty() && before_.devices != after_.devices) {
      refuse("other GPUs: " + before_.devices.front() + ", then " + after_.devices.front());
    }
    if (before_.world_size > 0 && after_.world_size > 0 && before_.world_size != after_.world_size) {
      refuse(format("%lld ranks, then %lld", static_cast<long long>(before_.world_size),
                    static_cast<long long>(after_.world_size)));
    }
    if (before_.ranks != after_.ranks) {
      note(format("traces of %llu ranks, then of %llu", static_cast<unsigned long long>(before_.ranks),
                  static_cast<unsigned long long>(after_.ranks)));
    }
  }

  // "12.8" of "12.8.1": what a release may change about how kernels run.
  static std::string release_of(const std::string& version) {
    const size_t first = version.find('.');
    return first == std::string::npos ? version : version.substr(0, version.find_first_not_of("0123456789", first + 1));
  }
  void check_versions() {
    for (const auto& [what, version] : before_.versions) {
      const auto found = after_.versions.find(what);
      if (found == after_.versions.end() || found->second == version) continue;
      const std::string line = format("%s %s, then %s", what.c_str(), version.c_str(), found->second.c_str());
      // The program does not choose its driver, and a node's is replaced at any time.
      const bool is_driver = what.ends_with("driver");
      is_driver || release_of(found->second) == release_of(version) ? note(line) : refuse("other versions: " + line);
    }
  }

  void check_steps() {
    const bool marked_before = before_.steps > 0, marked_after = after_.steps > 0;
    if (marked_before != marked_after) refuse("only one of them has marked steps");
    if (!marked_before && !marked_after) note("no steps are marked: whole traces are compared");
    if (!marked_before || !marked_after) return;
    const double fewer = std::min(before_.steps, after_.steps), more = std::max(before_.steps, after_.steps);
    if (more >= kOtherStepCount * fewer) note(format("%.0f steps, then %.0f", before_.steps, after_.steps));
    if (fewer < 2) note("a run of a single step: how much steps differ by chance is not known");
  }

  void check_calls() {
    if (before_.calls <= 0 || after_.calls <= 0) return;
    const double ratio = after_.calls / before_.calls;
    const std::string line = format("%.0f calls a step, then %.0f", before_.calls, after_.calls);
    if (differ(ratio, kOtherCalls)) {
      refuse(line + ": another program");
    } else if (std::fabs(ratio - 1) > kNoteworthyCalls) {
      note(line);
    }
  }

  // Operators that both call as often: where they are given more, it is another batch, sequence length or model, and no
  // slower kernel.
  void check_work() {
    bool in_flops = false;
    for (const OperatorWork& one : before_.operators) in_flops |= one.flops > 0;
    const auto work_of = [in_flops](const OperatorWork& one) { return in_flops ? one.flops : one.bytes; };
    double before = 0, after = 0, largest = 0;
    std::string where;
    for (const OperatorWork& one : before_.operators) {
      const auto other = std::find_if(after_.operators.begin(), after_.operators.end(),
                                      [&](const OperatorWork& two) { return two.name == one.name; });
      if (other == after_.operators.end() || one.calls <= 0 || differ(other->calls / one.calls, kSameCalls)) continue;
      if (work_of(one) <= 0 || work_of(*other) <= 0) continue;
      before += work_of(one);
      after += work_of(*other);
      const double change = std::fabs(work_of(*other) - work_of(one));
      if (change <= largest) continue;
      largest = change;
      where = one.name;
    }
    if (before <= 0 || after <= 0) return;
    const double ratio = after / before;
    const std::string line = format("the same calls get %.2f times the work by their shapes, mostly %s", ratio,
                                    utf8_prefix(where, 60).empty() ? "?" : as_one_line(utf8_prefix(where, 60)).c_str());
    if (differ(ratio, kOtherWork)) {
      refuse("other shapes: " + line + ": another batch, sequence length or model");
    } else if (std::fabs(ratio - 1) > kNoteworthyWork) {
      note(line);
    }
  }

  static double share_elsewhere(const RunSummary& one, const RunSummary& other) {
    std::set<std::string> known;
    for (const KernelTime& kernel : other.kernels) {
      for (const ShapeTime& shape : kernel.shapes) known.insert(shape.shape);
    }
    double all = 0, elsewhere = 0;
    for (const KernelTime& kernel : one.kernels) {
      for (const ShapeTime& shape : kernel.shapes) {
        if (shape.shape.empty() || shape.shape == kOtherShapes) continue;
        all += shape.ns;
        if (!known.contains(shape.shape)) elsewhere += shape.ns;
      }
    }
    return all > 0 ? elsewhere / all : 0;
  }
  void note_shapes() {
    if (before_.has_shapes != after_.has_shapes) {
      note("shapes were recorded in one of them only (record_shapes): kernels are compared by name");
    } else if (const double share = share_elsewhere(after_, before_); share > kNoteworthyShapes) {
      note(format("%.0f %% of the kernels' time is on shapes that the first run has not", 100 * share));
    }
  }

  const RunSummary& before_;
  const RunSummary& after_;
  Comparability out_;
};

}  // namespace

Comparability comparability_of(const RunSummary& before, const RunSummary& after) {
  return Check(before, after).all();
}

}  // namespace lockstep::profile
