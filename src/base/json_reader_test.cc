#include "base/json_reader.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  Result<JsonDocument> document = JsonDocument::parse(text, limits);
  return document.ok() ? "accepted" : document.error();
}

TEST(JsonReader, SaysAtWhichByteARefusedTextIsWrong) {
  size_t wrong_at = 99;
  const Result<JsonDocument> cut = JsonDocument::parse("{\"a\": 1,\n }", {}, &wrong_at);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(wrong_at, 10u);
  EXPECT_TRUE(cut.error().starts_with("JSON: byte 10: ")) << cut.error();
  EXPECT_FALSE(JsonDocument::parse("[1, 2]", {.bytes_max = 5}, &wrong_at).ok());
  EXPECT_EQ(wrong_at, 0u);
}

TEST(JsonReader, ReadsValuesOfEveryKind) {
  std::string text = R"( {"n": -12, "u": 18446744073709551615, "d": 1.5e3, "s": "a\"b", "t": true, "f": false,
                          "z": null, "list": [1, [2], {"k": 3}], "empty": {}, "none": [] } )";
  Result<JsonDocument> document = JsonDocument::parse(text);
  ASSERT_TRUE(document.ok()) << document.error();
  JsonValue root = document->root();
  EXPECT_TRUE(root.is_object());
  EXPECT_EQ(root["n"].integer(), -12);
  EXPECT_EQ(root["n"].unsigned_integer(), std::nullopt);
  EXPECT_EQ(root["u"].unsigned_integer(), UINT64_MAX);
  EXPECT_EQ(root["u"].integer(), std::nullopt) << "it does not fit";
  EXPECT_EQ(root["d"].number(), 1500);
  EXPECT_EQ(root["d"].integer(), std::nullopt);
  EXPECT_EQ(root["s"].string(), "a\"b");
  EXPECT_EQ(root["s"].number(), std::nullopt);
  EXPECT_EQ(root["t"].boolean(), true);
  EXPECT_EQ(root["f"].boolean(), false);
  EXPECT_TRUE(root["z"].present());
  EXPECT_EQ(root["z"].boolean(), std::nullopt);
  EXPECT_FALSE(root["nothing"].present());
  EXPECT_FALSE(root["nothing"]["deeper"].present());
  EXPECT_EQ(root["nothing"].string(), std::nullopt);

  std::vector<std::string> items;
  for (JsonValue item : root["list"]) items.emplace_back(item.json());
  EXPECT_EQ(items, (std::vector<std::string>{"1", "[2]", R"({"k": 3})"}));
  for (JsonValue item : root["empty"]) ADD_FAILURE() << item.json();
  for (JsonValue item : root["none"]) ADD_FAILURE() << item.json();
  for (JsonValue item : root["n"]) ADD_FAILURE() << "a number has no elements: " << item.json();
}

TEST(JsonReader, WalksTheMembersOfAnObjectInOrder) {
  Result<JsonDocument> document = JsonDocument::parse(R"({"b": {"x": 0}, "a": 2, "b": 3, "\u0063\n": 4})");
  ASSERT_TRUE(document.ok()) << document.error();
  std::vector<std::string> keys;
  for (JsonValue member : document->root()) keys.push_back(member.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"b", "a", "b", "c\n"}));
  EXPECT_TRUE(document->root()["b"].is_object()) << "of two, the first counts";
  EXPECT_EQ(document->root()["c\n"].integer(), 4);
  EXPECT_FALSE(document->root()["x"].present()) << "a member of a member is none of ours";
}

TEST(JsonReader, DecodesEscapes) {
  Result<JsonDocument> document = JsonDocument::parse(R"(["\"\\\/\b\f\n\r\t", "\u00e4\u20ac", "\ud83d\ude00!", "ä"])");
  ASSERT_TRUE(document.ok()) << document.error();
  std::vector<std::string> strings;
  for (JsonValue item : document->root()) strings.push_back(item.string().value_or("?"));
  EXPECT_EQ(strings, (std::vector<std::string>{"\"\\/\b\f\n\r\t", "ä€", "😀!", "ä"}));
}

TEST(JsonReader, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[",
                           "]",
                           "[1,]",
                           "[,1]",
                           "[1 2]",
                           "{\"a\":1,}",
                           "{\"a\" 1}",
                           "{a:1}",
                           "{1:1}",
                           "{\"a\"}",
                           "'a'",
                           "\"a",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "\"\\",
                           "\"\\u00",
                           "01",
                           "-",
                           "1.",
                           ".5",
                           "1e",
                           "+1",
                           "NaN",
                           "tru",
                           "nul",
                           "true false",
                           "1 1",
                           "// no\n1",
                           "\"tab\there\""}) {
    EXPECT_NE(error_of(text), "accepted") << text;
  }
  EXPECT_EQ(error_of("[1,\n 2,\n x]"), "JSON: byte 9: not a value");
  EXPECT_EQ(error_of("[1 2]"), "JSON: byte 3: a comma or the end of the list is wanted here");
}

TEST(JsonReader, KeepsToItsLimits) {
  JsonLimits limits{.bytes_max = 20, .values_max = 4, .depth_max = 3};
  EXPECT_EQ(error_of("[[[1]]]", limits), "accepted");
  EXPECT_EQ(error_of("[[[[1]]]]", limits), "JSON: byte 3: nested too deep");
  EXPECT_EQ(error_of("[1,2,3]", limits), "accepted");
  EXPECT_EQ(error_of("[1,2,3,4]", limits), "JSON: byte 7: too many values");
  EXPECT_EQ(error_of(std::string(21, ' '), limits), "JSON: 21 bytes are over the limit of 20");
  EXPECT_EQ(error_of(std::string(1'000'000, '[')), "JSON: byte 32: nested too deep") << "the stack is not the limit";
}

TEST(JsonReader, RefusesEveryTextThatIsCutShort) {
  std::string text = R"({"a": [1, {"b": "c\u0041"}, null], "d": false})";
  ASSERT_EQ(error_of(text), "accepted");
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_NE(error_of(std::string_view(text).substr(0, length)), "accepted") << length;
}

}  // namespace
}  // namespace lockstep
