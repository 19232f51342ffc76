#include "base/json_fields.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"

namespace telegrad {
namespace {

using Json = JsonFields::Json;

const Json& NoObject() {
  static const Json* const none = new Json(Json::object());
  return *none;
}

const Json& NoList() {
  static const Json* const none = new Json(Json::array());
  return *none;
}

}  // namespace

JsonFields::JsonFields(const Json& object, const char* format)
    : object_(object.is_object() ? object : NoObject()),
      format_(format),
      status_(&own_) {
  if (!object.is_object()) Fail("", "is not an object");
}

JsonFields::JsonFields(const Json* object, absl::string_view name,
                       JsonFields& parent)
    : object_(object != nullptr && object->is_object() ? *object : NoObject()),
      format_(parent.format_),
      path_(absl::StrCat(parent.path_, parent.path_.empty() ? "" : ".", name)),
      status_(parent.status_) {
  if (object != nullptr && !object->is_object()) Fail("", "is not an object");
}

bool JsonFields::Has(const char* name) const { return object_.contains(name); }

const Json* JsonFields::Find(const char* name) {
  if (!status_->ok()) return nullptr;
  asked_.push_back(name);
  const auto found = object_.find(name);
  if (found != object_.end()) return &*found;
  Fail(name, "is missing");
  return nullptr;
}

void JsonFields::Fail(absl::string_view name, absl::string_view what) {
  if (!status_->ok()) return;
  const char* const dot = path_.empty() || name.empty() ? "" : ".";
  *status_ = absl::InvalidArgumentError(
      absl::Substitute(format_, absl::StrCat(path_, dot, name), what));
}

std::string JsonFields::TextOf(const char* name, const Json& value,
                               size_t max_bytes) {
  const auto* text = value.get_ptr<const std::string*>();
  if (text == nullptr) return Fail(name, "is not a string"), "";
  if (text->size() > max_bytes) return Fail(name, "is too long"), "";
  return *text;
}

std::string JsonFields::Text(const char* name, size_t max_bytes) {
  const Json* value = Find(name);
  return value == nullptr ? "" : TextOf(name, *value, max_bytes);
}

std::vector<std::string> JsonFields::Texts(const char* name, size_t max_items,
                                           size_t max_bytes) {
  std::vector<std::string> texts;
  for (const Json& one : List(name, max_items)) {
    texts.push_back(TextOf(name, one, max_bytes));
  }
  return texts;
}

size_t JsonFields::Word(const char* name, std::span<const char* const> words) {
  const std::string text = Text(name);
  const auto found = std::find(words.begin(), words.end(), text);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  Fail(name, absl::StrCat("is '", absl::Utf8SafeCEscape(text), "', none of ",
                          absl::StrJoin(words, ", ")));
  return 0;
}

bool JsonFields::Flag(const char* name) {
  const Json* value = Find(name);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  return Fail(name, "is neither true nor false"), false;
}

double JsonFields::Number(const char* name) {
  const double number = NumberOrNan(name);
  if (std::isnan(number)) Fail(name, "is not a number");
  return number;
}

double JsonFields::NumberOrNan(const char* name) {
  const Json* value = Find(name);
  if (value == nullptr) return 0;
  if (value->is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (value->is_number()) return value->get<double>();
  return Fail(name, "is not a number"), 0;
}

int64_t JsonFields::Signed(const char* name, int64_t low, int64_t high) {
  const Json* value = Find(name);
  if (value == nullptr) return low;
  if (!value->is_number_integer()) return Fail(name, "is not an integer"), low;
  // An unsigned value above INT64_MAX must not wrap.
  const bool wraps =
      value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
  const int64_t number = value->get<int64_t>();
  if (!wraps && number >= low && number <= high) return number;
  return Fail(name, "is out of range"), low;
}

uint64_t JsonFields::Unsigned(const char* name, uint64_t low, uint64_t high) {
  const Json* value = Find(name);
  if (value == nullptr) return low;
  if (!value->is_number_integer()) return Fail(name, "is not an integer"), low;
  if (value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    if (number >= low && number <= high) return number;
  }
  return Fail(name, "is out of range"), low;
}

const Json& JsonFields::List(const char* name, size_t max_items) {
  const Json* value = Find(name);
  if (value == nullptr) return NoList();
  if (!value->is_array()) return Fail(name, "is not a list"), NoList();
  if (value->size() <= max_items) return *value;
  Fail(name,
       absl::StrCat("has ", value->size(), " entries, at most ", max_items));
  return NoList();
}

void JsonFields::RefuseOthers() {
  for (const auto& [name, value] : object_.items()) {
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) {
      return Fail(name, "is not known");
    }
  }
}

bool IsNestedTooDeeply(absl::string_view text) {
  constexpr int kMaxDepth = 64;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace telegrad
