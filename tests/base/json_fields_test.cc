#include "base/json_fields.h"

#include <gtest/gtest.h>

#include <cmath>

namespace telegrad {
namespace {

using Json = JsonFields::Json;

constexpr char kFormat[] = "plan: '$0' $1";

enum class Colour { kRed, kGreen };
const char* Name(Colour colour) {
  return colour == Colour::kRed ? "red" : "green";
}

// What `read` says of an object; "" where it is content.
template <typename Function>
std::string Said(const char* text, Function read) {
  const Json json = Json::parse(text);
  JsonFields fields(json, kFormat);
  read(fields);
  return std::string(fields.status().message());
}

TEST(JsonFields, GiveWhatIsThereByType) {
  const Json json = Json::parse(
      R"({"text":"a","flag":true,"number":0.5,"big":18446744073709551615,
          "least":-128,"texts":["b","c"],"inner":{"deep":7},"none":null,
          "colour":"green"})");
  JsonFields fields(json, kFormat);
  EXPECT_EQ(fields.Text("text", 1), "a");
  EXPECT_TRUE(fields.Flag("flag"));
  EXPECT_EQ(fields.Number("number"), .5);
  EXPECT_EQ(fields.Integer<uint64_t>("big"), UINT64_MAX);
  EXPECT_EQ(fields.Integer<int8_t>("least"), -128);
  EXPECT_EQ(fields.Texts("texts", 2, 1), std::vector<std::string>({"b", "c"}));
  EXPECT_EQ(fields.Object("inner").Integer("deep", 7, 7), 7);
  EXPECT_TRUE(std::isnan(fields.NumberOrNan("none")));
  Colour colour = Colour::kRed;
  fields.ReadName("colour", colour, Colour::kGreen);
  EXPECT_EQ(colour, Colour::kGreen);
  int absent = 4;
  fields.Optional("absent", absent);
  EXPECT_EQ(absent, 4);
  fields.RefuseOthers();
  EXPECT_TRUE(fields.status().ok()) << fields.status();
}

TEST(JsonFields, NameTheFirstFieldThatIsWrongByItsPath) {
  EXPECT_EQ(Said(R"({"a":[{"b":1},{"b":"x"}],"c":[]})",
                 [](JsonFields& fields) {
                   int calls = 0;
                   fields.Each("a", 2, [&](JsonFields& each) {
                     ++calls;
                     each.Integer<int>("b");
                   });
                   EXPECT_EQ(calls, 2);
                   EXPECT_EQ(fields.Text("c"), "");
                   EXPECT_EQ(fields.Integer("b", 3, 4), 3);
                 }),
            "plan: 'a[1].b' is not an integer");
}

TEST(JsonFields, SayWhatIsWrong) {
  const auto said = [](const char* value, auto read) {
    return Said(absl::StrCat("{\"x\":", value, "}").c_str(), read);
  };
  const auto text = [](JsonFields& f) { f.Text("x", 2); };
  EXPECT_EQ(Said("{}", text), "plan: 'x' is missing");
  EXPECT_EQ(Said("[1]", text), "plan: '' is not an object");
  EXPECT_EQ(said("1", text), "plan: 'x' is not a string");
  EXPECT_EQ(said("\"abc\"", text), "plan: 'x' is too long");
  const auto count = [](JsonFields& f) { f.Integer("x", 0, 9); };
  for (const char* value : {"1.0", "true", "null", "\"1\"", "[]", "1e3"}) {
    EXPECT_EQ(said(value, count), "plan: 'x' is not an integer") << value;
  }
  for (const char* value : {"-1", "10", "18446744073709551615"}) {
    EXPECT_EQ(said(value, count), "plan: 'x' is out of range") << value;
  }
  const auto any = [](JsonFields& f) { f.Integer<int64_t>("x"); };
  EXPECT_EQ(said("9223372036854775808", any), "plan: 'x' is out of range");
  const auto size = [](JsonFields& f) { f.Integer<uint64_t>("x"); };
  EXPECT_EQ(said("-1", size), "plan: 'x' is out of range");
  EXPECT_EQ(said("null", [](JsonFields& f) { f.Number("x"); }),
            "plan: 'x' is not a number");
  EXPECT_EQ(said("0", [](JsonFields& f) { f.Flag("x"); }),
            "plan: 'x' is neither true nor false");
  EXPECT_EQ(said("{}", [](JsonFields& f) { f.List("x"); }),
            "plan: 'x' is not a list");
  EXPECT_EQ(said("[1,2]", [](JsonFields& f) { f.List("x", 1); }),
            "plan: 'x' has 2 entries, at most 1");
  EXPECT_EQ(said("[\"a\",1]", [](JsonFields& f) { f.Texts("x"); }),
            "plan: 'x' is not a string");
  EXPECT_EQ(said("7", [](JsonFields& f) { f.Object("x").Text("y"); }),
            "plan: 'x' is not an object");
  EXPECT_EQ(said("\"\\u0001\"",
                 [](JsonFields& f) {
                   Colour colour = Colour::kRed;
                   f.ReadName("x", colour, Colour::kGreen);
                 }),
            "plan: 'x' is '\\001', none of red, green");
  EXPECT_EQ(said("1", [](JsonFields& f) { f.RefuseOthers(); }),
            "plan: 'x' is not known");
}

TEST(JsonFields, LeaveWhatTheyWouldFillWhereSomethingIsWrong) {
  std::string text = "before";
  int number = 5;
  Said(R"({"text":1,"number":6})", [&](JsonFields& fields) {
    fields.Read("text", text);
    fields.Read("number", number);
  });
  EXPECT_EQ(text, "before");
  EXPECT_EQ(number, 5);
}

TEST(ParseJson, CountsDepthOutsideOfStrings) {
  const std::string deep(64, '[');
  const std::string end(64, ']');
  EXPECT_TRUE(ParseJson(deep + end).is_array());
  EXPECT_TRUE(ParseJson("[" + deep + end + "]").is_discarded());
  EXPECT_TRUE(ParseJson(std::string(1'000'000, '[')).is_discarded());
  EXPECT_TRUE(ParseJson("{\"a\":" + deep + end + "}").is_discarded());
  EXPECT_TRUE(ParseJson("\"" + deep + "\\\"[\"").is_string());
  EXPECT_TRUE(ParseJson("\"" + deep + "\\").is_discarded());
}

}  // namespace
}  // namespace telegrad
