#include "model/verdict_terms.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

struct EmitterRow {
  Emitter emitter;
  const char* name;
  const char* meaning;
};
constexpr EmitterRow kEmitters[] = {
#define LOCKSTEP_ONE(id, name, meaning) {Emitter::id, name, meaning},
    LOCKSTEP_EMITTERS(LOCKSTEP_ONE)
#undef LOCKSTEP_ONE
};

template <typename Term>
class VerdictTerms : public ::testing::Test {};
using AllTerms = ::testing::Types<VerdictState, VerdictKind, Pattern, Layer, Cause, ClaimKind>;
TYPED_TEST_SUITE(VerdictTerms, AllTerms);

TYPED_TEST(VerdictTerms, NamesBecomeTermsAndTermsNames) {
  std::set<std::string> names;
  for (size_t i = 0; i < kTerms<TypeParam>.size(); ++i) {
    const TermRow<TypeParam>& row = kTerms<TypeParam>[i];
    EXPECT_EQ(static_cast<size_t>(row.term), i) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_STREQ(to_text(row.term), row.name);
    EXPECT_EQ(term_of<TypeParam>(row.name), row.term);
    EXPECT_EQ(term_of<TypeParam>(std::string(row.name) + "s"), std::nullopt);
  }
  EXPECT_EQ(term_of<TypeParam>(""), std::nullopt);
  EXPECT_EQ(term_of<TypeParam>("cosmic-rays"), std::nullopt);
}

TYPED_TEST(VerdictTerms, EveryOneIsASentenceAndHasAnEmitter) {
  for (const TermRow<TypeParam>& row : kTerms<TypeParam>) {
    const std::string meaning = row.meaning;
    EXPECT_TRUE(meaning.ends_with('.')) << row.name;
    EXPECT_EQ(meaning.find_first_of("|\\\n"), std::string::npos) << row.name << ": goes into tables and TypeScript";
    // What a job that ended by a fault is: kept for what will say so.
    if (row.name == std::string("fail")) continue;
    EXPECT_NE(row.emitters, emitters::kNobody) << row.name;
  }
}

TEST(Causes, NoneIsEmptyAndNotInTheTable) {
  EXPECT_STREQ(to_text(Cause::kNone), "");
  EXPECT_EQ(static_cast<size_t>(Cause::kNone), kTerms<Cause>.size());
  for (const EmitterRow& row : kEmitters) EXPECT_FALSE(may_emit(row.emitter, Cause::kNone)) << row.name;
}

TEST(Causes, AreEmittedByWhomTheTableSays) {
  EXPECT_TRUE(may_emit(Emitter::kLessWork, Cause::kLessWork));
  EXPECT_FALSE(may_emit(Emitter::kStraggler, Cause::kLessWork));
  static_assert(emits<Emitter::kPause, Cause::kLinkFlap> == Cause::kLinkFlap);
}

// What is generated from the table. LOCKSTEP_REFRESH=1 writes it anew.

template <typename Term>
std::string type_script(const char* type, const char* list) {
  std::string text = format("\nexport const %s = {\n", list);
  for (const TermRow<Term>& row : kTerms<Term>) {
    std::string meaning = row.meaning;
    for (size_t at = meaning.find('\''); at != std::string::npos; at = meaning.find('\'', at + 2))
      meaning.insert(at, "\\");
    text += format("  '%s': '%s',\n", row.name, meaning.c_str());
  }
  return text + format("} as const;\nexport type %s = keyof typeof %s;\n", type, list);
}

std::string type_script() {
  return "// Generated from src/model/verdict_terms.h: what states, kinds, patterns, layers, causes and claims of "
         "verdicts there "
         "are, "
         "and what each means.\n"
         "// Not to be edited; a test compares it, and `LOCKSTEP_REFRESH=1 model_test --gtest_filter='Generated.*'` "
         "writes it.\n" +
         type_script<VerdictState>("VerdictState", "kVerdictStates") +
         type_script<VerdictKind>("VerdictKind", "kVerdictKinds") + type_script<Pattern>("Pattern", "kPatterns") +
         type_script<Layer>("Layer", "kLayers") + type_script<Cause>("Cause", "kCauses") +
         type_script<ClaimKind>("ClaimKind", "kClaimKinds");
}

template <typename Term>
std::string page_table(const char* title, const char* head) {
  std::string text = format("\n## %s\n\n| %s | means | emitted by |\n|---|---|---|\n", title, head);
  for (const TermRow<Term>& row : kTerms<Term>) {
    std::string who;
    for (const EmitterRow& emitter : kEmitters) {
      if (row.may_be_emitted_by(emitter.emitter)) who += (who.empty() ? "" : ", ") + std::string(emitter.name);
    }
    text += format("| `%s` | %s | %s |\n", row.name, row.meaning, who.empty() ? "nobody yet" : who.c_str());
  }
  return text;
}

std::string page() {
  std::string text =
      "# The words of a verdict\n"
      "\n"
      "Every state, kind, pattern, layer, cause and kind of claim that a verdict can have: the closed list that the "
      "engine, the\n"
      "API, the simulator, the CLI and the web page share. How to read a verdict, and when each cause is given:\n"
      "[verdicts.md](verdicts.md). Any cause of this list may be given as feedback (`lockstep verdict ID --wrong\n"
      "--cause CAUSE`).\n"
      "\n"
      "Generated from `src/model/verdict_terms.h`; a test compares this page with it.\n";
  text += page_table<VerdictState>("States", "state") + page_table<VerdictKind>("Kinds", "kind") +
          page_table<Pattern>("Patterns", "pattern") + page_table<Layer>("Layers", "layer") +
          page_table<Cause>("Causes", "cause") + page_table<ClaimKind>("Kinds of claims", "kind");
  text += "\n## Emitters\n\n| emitter | what it is |\n|---|---|\n";
  for (const EmitterRow& row : kEmitters) text += format("| %s | %s |\n", row.name, row.meaning);
  return text;
}

void expect_file(const std::string& path, const std::string& content) {
  if (std::getenv("LOCKSTEP_REFRESH") != nullptr) {
    Result<void> written = write_file_atomically(path, content);
    ASSERT_TRUE(written.ok()) << written.error();
  }
  Result<std::string> file = read_file(path, 1 << 20);
  ASSERT_TRUE(file.ok()) << file.error();
  EXPECT_EQ(*file, content) << path << " is not what the table says; LOCKSTEP_REFRESH=1 writes it anew";
}

TEST(Generated, TheWebPagesListIsTheTable) {
  expect_file(LOCKSTEP_VERDICT_TERMS_WEB, type_script());
}

TEST(Generated, TheGuidesPageIsTheTable) {
  expect_file(LOCKSTEP_VERDICT_TERMS_PAGE, page());
}

// The tables of layers and causes there are written by hand: when each is given.
TEST(Generated, TheGuideOnVerdictsNamesEveryCauseAndOnlyCauses) {
  Result<std::string> guide = read_file(LOCKSTEP_VERDICTS_PAGE, 1 << 20);
  ASSERT_TRUE(guide.ok()) << guide.error();
  std::set<Cause> named;
  for (std::string_view line : split(*guide, '\n')) {
    if (!line.starts_with("| ")) continue;
    const std::vector<std::string_view> cells = split(line.substr(2), '|');
    if (cells.size() < 3 || trim(cells[0]) == "layer") continue;
    for (std::string_view layer : split(cells[0], ','))
      EXPECT_TRUE(term_of<Layer>(trim(layer))) << "\"" << layer << "\" is no layer: " << line;
    for (std::string_view cause : split(cells[1], ',')) {
      const std::optional<Cause> known = term_of<Cause>(trim(cause));
      EXPECT_TRUE(known) << "\"" << cause << "\" is no cause: " << line;
      if (known) named.insert(*known);
    }
  }
  for (const TermRow<Cause>& row : kTerms<Cause>) EXPECT_TRUE(named.contains(row.term)) << row.name << " is missing";
}

}  // namespace
}  // namespace lockstep
