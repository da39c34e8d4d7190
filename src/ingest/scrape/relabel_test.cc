#include "ingest/scrape/relabel.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

RelabelRule rule(RelabelAction action, std::vector<std::string> sources, const char* regex = "(.*)",
                 const char* target = "", const char* replacement = "$1") {
  RelabelRule made;
  made.action = action;
  made.source_labels = std::move(sources);
  made.target_label = target;
  made.replacement = replacement;
  EXPECT_TRUE(made.compile(regex).ok()) << regex;
  return made;
}

// "a=1 b=2", or "dropped".
std::string after(std::vector<RelabelRule> rules, Labels labels) {
  if (!relabel(rules, labels)) return "dropped";
  std::string text;
  for (const auto& [name, value] : labels) text += (text.empty() ? "" : " ") + name + "=" + value;
  return text;
}

using enum RelabelAction;

TEST(Relabel, ReplacesWhereTheWholeValueMatches) {
  const Labels labels = {{"a", "foo"}, {"b", "bar"}};
  EXPECT_EQ(after({rule(kReplace, {"a"}, "f(.*)", "d", "ch${1}-ch${1}")}, labels), "a=foo b=bar d=choo-choo");
  EXPECT_EQ(after({rule(kReplace, {"a"}, "o", "d", "x")}, labels), "a=foo b=bar");  // not from beginning to end
  EXPECT_EQ(after({rule(kReplace, {"a", "b"}, "(.*);(.*)", "c", "$2-$1")}, labels), "a=foo b=bar c=bar-foo");
  EXPECT_EQ(after({rule(kReplace, {"a", "missing"}, "foo;", "c", "x")}, labels), "a=foo b=bar c=x");
  EXPECT_EQ(after({rule(kReplace, {}, "(.*)", "c", "always")}, labels), "a=foo b=bar c=always");
  EXPECT_EQ(after({rule(kReplace, {"missing"}, "(.*)", "a")}, labels), "b=bar");  // empty: gone
  EXPECT_EQ(after({rule(kReplace, {"a"}, "(f).*", "${1}_new", "v")}, labels), "a=foo b=bar f_new=v");
  EXPECT_EQ(after({rule(kReplace, {"a"}, "(x)?.*", "$1", "v")}, labels), "a=foo b=bar");  // a label without a name
  EXPECT_EQ(after({rule(kReplace, {"a"}, "f(?P<rest>.*)", "c", "${rest}!")}, labels), "a=foo b=bar c=oo!");
}

TEST(Relabel, ExpandsDollarsAsGoDoes) {
  const Labels labels = {{"a", "xy"}};
  auto made = [&](const char* replacement) {
    const std::string text = after({rule(kReplace, {"a"}, "(x)(y)", "b", replacement)}, labels);
    return text.size() > 7 ? text.substr(7) : std::string();
  };
  EXPECT_EQ(made("$1$2"), "xy");
  EXPECT_EQ(made("$0"), "xy");
  EXPECT_EQ(made("<$1x>"), "<>");  // the group "1x", which is none
  EXPECT_EQ(made("${1}x"), "xx");
  EXPECT_EQ(made("$$1"), "$1");
  EXPECT_EQ(made("a$"), "a$");
  EXPECT_EQ(made("a$-${"), "a$-${");
  EXPECT_EQ(made("<$3>"), "<>");
  EXPECT_EQ(made("<$99999999999999999999>"), "<>");
}

TEST(Relabel, KeepsAndDrops) {
  const Labels labels = {{"a", "foo"}, {"b", "foo"}, {"c", "bar"}};
  EXPECT_NE(after({rule(kKeep, {"a"}, "fo+")}, labels), "dropped");
  EXPECT_EQ(after({rule(kKeep, {"a"}, "o+")}, labels), "dropped");
  EXPECT_EQ(after({rule(kDrop, {"a"}, ".*o.*")}, labels), "dropped");
  EXPECT_NE(after({rule(kDrop, {"a"}, "f")}, labels), "dropped");
  EXPECT_EQ(after({rule(kDrop, {"missing"}, "")}, labels), "dropped");
  EXPECT_NE(after({rule(kKeepEqual, {"a"}, "(.*)", "b")}, labels), "dropped");
  EXPECT_EQ(after({rule(kKeepEqual, {"a"}, "(.*)", "c")}, labels), "dropped");
  EXPECT_EQ(after({rule(kDropEqual, {"a"}, "(.*)", "b")}, labels), "dropped");
  EXPECT_NE(after({rule(kDropEqual, {"a"}, "(.*)", "c")}, labels), "dropped");
  // A dot is also a line's end.
  EXPECT_NE(after({rule(kKeep, {"a"}, "x.y")}, {{"a", "x\ny"}}), "dropped");
}

TEST(Relabel, MapsKeepsAndDropsNames) {
  const Labels labels = {{"__meta_pod", "p"}, {"__meta_zone", "z"}, {"zone", "old"}};
  EXPECT_EQ(after({rule(kLabelMap, {}, "__meta_(.+)")}, labels), "__meta_pod=p __meta_zone=z pod=p zone=z");
  EXPECT_EQ(after({rule(kLabelMap, {}, "__meta_(pod)", "", "k8s_$1")}, labels),
            "__meta_pod=p __meta_zone=z k8s_pod=p zone=old");
  EXPECT_EQ(after({rule(kLabelDrop, {}, "__meta_.*")}, labels), "zone=old");
  EXPECT_EQ(after({rule(kLabelKeep, {}, "zone|__meta_pod")}, labels), "__meta_pod=p zone=old");
}

TEST(Relabel, HashesAndChangesCase) {
  RelabelRule share = rule(kHashMod, {"a"}, "(.*)", "shard");
  share.modulus = 1000;
  // The last eight bytes of the MD5 of "foo" (acbd18db4cc2f85cedef654fccc4a4d8), most significant first, mod 1000.
  EXPECT_EQ(after({share}, {{"a", "foo"}}), "a=foo shard=" + std::to_string(0xedef654fccc4a4d8ull % 1000));
  EXPECT_EQ(after({rule(kLowercase, {"a"}, "(.*)", "b")}, {{"a", "FoO-1"}}), "a=FoO-1 b=foo-1");
  EXPECT_EQ(after({rule(kUppercase, {"a"}, "(.*)", "a")}, {{"a", "FoO-1"}}), "a=FOO-1");
}

TEST(Relabel, RulesSeeWhatTheOnesBeforeThemMade) {
  EXPECT_EQ(after({rule(kReplace, {"a"}, "(.*)", "__tmp", "$1!"), rule(kReplace, {"__tmp"}, "(.*)", "b"),
                   rule(kLabelDrop, {}, "__tmp")},
                  {{"a", "x"}}),
            "a=x b=x!");
}

TEST(Relabel, RefusesWhatIsNoRegexOrAction) {
  RelabelRule made;
  EXPECT_FALSE(made.compile("(").ok());
  EXPECT_FALSE(made.compile("(?=a)").ok());
  EXPECT_EQ(parse_relabel_action("KEEP").value(), kKeep);
  EXPECT_EQ(parse_relabel_action("keeep").error(), "there is no action \"keeep\"; did you mean keep?");
}

}  // namespace
}  // namespace lockstep
