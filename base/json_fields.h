#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// Reads the fields of an object that somebody else wrote: typed and bounded.
// The first error sticks, also that of an object within; after it reading goes
// on, and gives 0, "" and nothing. One thread.
class JsonFields {
 public:
  using Json = nlohmann::json;
  static constexpr size_t kAny = SIZE_MAX;

  // `format`, with $0 for a field's path and $1 for what is wrong, makes
  // messages: "field '$0' $1" gives "field 'gpus[1].name' is missing". Both
  // outlive this.
  JsonFields(const Json& object, const char* format);
  JsonFields(const JsonFields&) = delete;
  JsonFields& operator=(const JsonFields&) = delete;

  bool Has(const char* name) const;

  // Fields that must be there.
  std::string Text(const char* name, size_t max_bytes = kAny);
  std::vector<std::string> Texts(const char* name, size_t max_items = kAny,
                                 size_t max_bytes = kAny);
  bool Flag(const char* name);
  double Number(const char* name);
  // NaN for null, as which JSON has what is not finite.
  double NumberOrNan(const char* name);
  template <std::signed_integral T>
  T Integer(const char* name, T low = std::numeric_limits<T>::min(),
            T high = std::numeric_limits<T>::max()) {
    return static_cast<T>(Signed(name, low, high));
  }
  template <std::unsigned_integral T>
  T Integer(const char* name, T low = 0,
            T high = std::numeric_limits<T>::max()) {
    return static_cast<T>(Unsigned(name, low, high));
  }
  // The index of the text among `words`.
  size_t Word(const char* name, std::span<const char* const> words);
  const Json& List(const char* name, size_t max_items = kAny);
  JsonFields Object(const char* name) { return {Find(name), name, *this}; }
  // Calls `read` with each object of a list.
  template <typename Function>
  void Each(const char* name, size_t max_items, Function read) {
    size_t index = 0;
    for (const Json& one : List(name, max_items)) {
      JsonFields fields(&one, absl::StrCat(name, "[", index++, "]"), *this);
      if (status().ok()) read(fields);
    }
  }

  // Reads what the type of `out` says; it stays where there was an error.
  void Read(const char* name, std::string& out) { Set(out, Text(name)); }
  void Read(const char* name, bool& out) { Set(out, Flag(name)); }
  void Read(const char* name, double& out) { Set(out, Number(name)); }
  template <std::integral T>
  void Read(const char* name, T& out) {
    Set(out, Integer<T>(name));
  }
  // One of the values up to `last`, by the name that Name gives it.
  template <typename T>
  void ReadName(const char* name, T& out, T last) {
    std::vector<const char*> names;
    for (int i = 0; i <= static_cast<int>(last); ++i) {
      names.push_back(Name(static_cast<T>(i)));
    }
    Set(out, static_cast<T>(Word(name, names)));
  }
  template <typename T>
  void Optional(const char* name, T& out) {
    if (Has(name)) Read(name, out);
  }

  void Fail(absl::string_view name, absl::string_view what);
  // Fails where a field is left for which nobody has asked.
  void RefuseOthers();
  const absl::Status& status() const { return *status_; }

 private:
  // An object within `parent`; null where there is none.
  JsonFields(const Json* object, absl::string_view name, JsonFields& parent);

  // Null where there was an error.
  const Json* Find(const char* name);
  std::string TextOf(const char* name, const Json& value, size_t max_bytes);
  int64_t Signed(const char* name, int64_t low, int64_t high);
  uint64_t Unsigned(const char* name, uint64_t low, uint64_t high);
  template <typename T>
  void Set(T& out, T value) {
    if (status().ok()) out = std::move(value);
  }

  const Json& object_;
  const char* const format_;
  const std::string path_;
  std::vector<absl::string_view> asked_;
  absl::Status own_;
  absl::Status* const status_;
};

// Whether a text of JSON is nested deeper than anything of ours, 64: the parser
// keeps its own stack, but what copies or writes its result recurses.
bool IsNestedTooDeeply(absl::string_view text);

// What somebody else wrote, which may be anything; discarded where it is none,
// or nested too deeply.
template <typename Json = nlohmann::json>
Json ParseJson(absl::string_view text) {
  if (IsNestedTooDeeply(text)) return Json::value_t::discarded;
  return Json::parse(text.begin(), text.end(), nullptr,
                     /*allow_exceptions=*/false);
}

}  // namespace telegrad
