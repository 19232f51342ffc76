#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace telegrad {

enum class Tri : uint8_t { kNo, kYes, kUnknown };

// How far a fact can be relied on, best first: a functional probe, what a file
// or an API says, a rule applied to such facts, a default.
enum class Confidence : uint8_t { kMeasured, kReported, kInferred, kAssumed };

// Where a fact comes from: `source` is a path or the name of an API, `raw` what
// it said, `error` the errno of a read that failed (0: none).
struct Evidence {
  std::string what = {};
  std::string source = {};
  std::string raw = {};
  int error = 0;
  Confidence confidence = Confidence::kReported;
  bool operator==(const Evidence&) const = default;
};

// A value or "unknown", with the evidence for either.
template <typename T>
struct Known {
  std::optional<T> value = {};
  std::vector<Evidence> why = {};

  bool known() const { return value.has_value(); }
  T value_or(T other) const { return value.value_or(std::move(other)); }
  bool operator==(const Known&) const = default;
};

}  // namespace telegrad
