// Who emits a term is what the table in model/verdict_terms.h says: causes, layers and kinds by construction (emits<>),
// the rest by what stands in the emitters' folders.
#include "model/verdict_terms.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "base/files.h"
#include "diagnosis/detectors/registry.h"
#include "diagnosis/signals/signatures.h"

namespace lockstep {
namespace {

struct NamedEmitter {
  Emitter emitter;
  const char* name;
};
constexpr NamedEmitter kEmitters[] = {
#define LOCKSTEP_ONE(id, name, meaning) {Emitter::id, name},
    LOCKSTEP_EMITTERS(LOCKSTEP_ONE)
#undef LOCKSTEP_ONE
};

std::string detector_folder(const char* name) {
  return LOCKSTEP_SOURCE_DIRECTORY "/src/diagnosis/detectors/" + std::string(name);
}

// What the code of a detector calls it: "ClaimKind::kWaitsFor".
std::set<std::string> named_in(const std::string& folder, const char* type) {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".cc") || path.ends_with("_test.cc")) continue;
    Result<std::string> code = read_file(path, 1 << 20);
    EXPECT_TRUE(code.ok()) << code.error();
    if (!code.ok()) continue;
    const std::regex pattern(std::string(type) + "::(k\\w+)");
    for (std::sregex_iterator at(code->begin(), code->end(), pattern), end; at != end; ++at) found.insert((*at)[1]);
  }
  return found;
}

struct NamedClaim {
  const char* id;
  ClaimKind kind;
};
constexpr NamedClaim kClaimIds[] = {
#define LOCKSTEP_ONE(id, name, emitters, meaning) {#id, ClaimKind::id},
    LOCKSTEP_CLAIM_KINDS(LOCKSTEP_ONE)
#undef LOCKSTEP_ONE
};
struct NamedCause {
  const char* id;
  Cause cause;
};
constexpr NamedCause kCauseIds[] = {
#define LOCKSTEP_ONE(id, ...) {#id, Cause::id},
    LOCKSTEP_CAUSES(LOCKSTEP_ONE)
#undef LOCKSTEP_ONE
};

TEST(Emitters, EveryDetectorIsOneAndHasItsFoldersName) {
  std::set<std::string> names;
  for (const NamedEmitter& each : kEmitters) names.insert(each.name);
  for (const StepDetector& detector : step_detectors()) {
    EXPECT_TRUE(names.contains(detector.name)) << detector.name;
    EXPECT_TRUE(std::filesystem::is_directory(detector_folder(detector.name))) << detector.name;
  }
}

TEST(Emitters, ADetectorEmitsTheCausesOfItsRowAndNoOthers) {
  for (const NamedEmitter& each : kEmitters) {
    if (!std::filesystem::is_directory(detector_folder(each.name))) continue;
    const std::set<std::string> named = named_in(detector_folder(each.name), "Cause");
    for (const NamedCause& cause : kCauseIds)
      EXPECT_EQ(named.contains(cause.id), may_emit(each.emitter, cause.cause)) << each.name << " and " << cause.id;
  }
}

TEST(Emitters, ADetectorMakesClaimsOfTheKindsInItsRow) {
  for (const NamedEmitter& each : kEmitters) {
    if (!std::filesystem::is_directory(detector_folder(each.name))) continue;
    for (const std::string& id : named_in(detector_folder(each.name), "ClaimKind")) {
      for (const NamedClaim& claim : kClaimIds) {
        if (id != claim.id) continue;
        EXPECT_TRUE(may_emit(each.emitter, claim.kind)) << each.name << " and " << id;
      }
    }
  }
}

TEST(Emitters, EveryCauseOfTheSignalsHasASignature) {
  for (const TermRow<Cause>& row : kTerms<Cause>)
    EXPECT_EQ(layer_of_cause(row.term).has_value(), row.may_be_emitted_by(Emitter::kSignals)) << row.name;
}

}  // namespace
}  // namespace lockstep
