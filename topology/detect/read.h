#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "topology/fact.h"
#include "topology/system_root.h"

namespace telegrad::detect {

// Devices of one kind that are looked at; docs/topology_json.md has the same
// limits.
constexpr size_t kMaxNics = 1024;
constexpr size_t kMaxInterfaces = 4096;

// The text of one small file without white space around it, or its errno.
struct Line {
  std::string path = {};
  std::string text = {};
  int error = 0;
  bool ok() const { return error == 0 && !text.empty(); }
  Evidence Why(absl::string_view what,
               Confidence confidence = Confidence::kReported) const;
};
Line ReadLine(const SysRoot& root, std::string path, size_t max_bytes = 4096);

// Printable ASCII of `text`, at most 160 characters: what files hold may be
// binary, and goes into messages and JSON.
std::string Printable(absl::string_view text);

// The leading integer of "4: ACTIVE", "0x3a4", "-1"; none for anything else.
std::optional<int64_t> LeadingInt(absl::string_view text);

// A value of a file; unknown, with the evidence, where it has none or one
// outside [low, high].
template <typename T>
Known<T> ReadKnown(const SysRoot& root, std::string path,
                   absl::string_view what, int64_t low, int64_t high) {
  const Line line = ReadLine(root, std::move(path));
  Known<T> known;
  known.why.push_back(line.Why(what));
  const std::optional<int64_t> value =
      line.ok() ? LeadingInt(line.text) : std::nullopt;
  if (value.has_value() && *value >= low && *value <= high) {
    known.value = static_cast<T>(*value);
  }
  return known;
}

// "0-3,8" -> {0, 1, 2, 3, 8}, at most 65536 numbers.
std::vector<int> ParseCpuList(absl::string_view text);

// The last part of a path: "net/eth0" -> "eth0".
std::string BaseName(absl::string_view path);

}  // namespace telegrad::detect
