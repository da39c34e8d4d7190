#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace lockstep {
namespace {

std::string text_of(std::string_view value) {
  return JsonWriter().string(value).text();
}

TEST(JsonWriter, PutsCommasBetweenAndOnlyBetween) {
  JsonWriter json;
  json.begin_object()
      .field("a", 1)
      .key("b")
      .begin_array()
      .number(1)
      .begin_object()
      .end_object()
      .begin_array()
      .end_array()
      .null()
      .end_array()
      .field("c", true)
      .end_object();
  EXPECT_EQ(json.text(), R"({"a":1,"b":[1,{},[],null],"c":true})");
}

TEST(JsonWriter, WritesEveryKindOfField) {
  JsonWriter json;
  json.begin_object()
      .field("text", std::string_view("x"))
      .field("literal", "y")
      .field("least", std::numeric_limits<int64_t>::min())
      .field("most", std::numeric_limits<uint64_t>::max())
      .field("half", 0.5)
      .field("no", false)
      .key("raw")
      .raw("[1]")
      .end_object();
  EXPECT_EQ(
      json.take(),
      R"({"text":"x","literal":"y","least":-9223372036854775808,"most":18446744073709551615,"half":0.5,"no":false,"raw":[1]})");
}

TEST(JsonWriter, EscapesWhatJsonCannotHold) {
  EXPECT_EQ(text_of("a\"b\\c\n\t"), R"("a\"b\\c\n\t")");
  EXPECT_EQ(text_of(std::string_view("\0\x1f\x7f", 3)), R"("\u0000\u001f\u007f")");
  EXPECT_EQ(JsonWriter().begin_object().field("k\"", 1).end_object().text(), R"({"k\"":1})");
}

TEST(JsonWriter, KeepsValidUtf8AndReplacesTheRest) {
  EXPECT_EQ(text_of("é€😀"), "\"é€😀\"");
  EXPECT_EQ(text_of("a\xff"
                    "b"),
            "\"a\uFFFDb\"");
  EXPECT_EQ(text_of("\xe2\x82"), "\"\uFFFD\uFFFD\"");                      // cut off
  EXPECT_EQ(text_of("\xc0\xaf"), "\"\uFFFD\uFFFD\"");                      // overlong
  EXPECT_EQ(text_of("\xed\xa0\x80"), "\"\uFFFD\uFFFD\uFFFD\"");            // a surrogate
  EXPECT_EQ(text_of("\xf4\x90\x80\x80"), "\"\uFFFD\uFFFD\uFFFD\uFFFD\"");  // beyond the last character
}

TEST(JsonWriter, NumbersThatJsonCannotSayAreNull) {
  JsonWriter json;
  json.begin_array()
      .number(std::nan(""))
      .number(std::numeric_limits<double>::infinity())
      .number(-std::numeric_limits<double>::infinity())
      .end_array();
  EXPECT_EQ(json.text(), "[null,null,null]");
}

TEST(JsonWriter, DoublesComeBackAsTheyWere) {
  for (double value : {0.1, 1e300, -2.5, 1.0 / 3, 5e-324})
    EXPECT_EQ(std::strtod(JsonWriter().number(value).text().c_str(), nullptr), value);
}

}  // namespace
}  // namespace lockstep
