

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json_fields.h"
#include "base/status_macros.h"
#include "topology/json/fields.h"
#include "topology/machine_json.h"
#include "topology/path.h"

namespace telegrad {
namespace topology_json {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxText = size_t{8} << 20;
constexpr size_t kMaxItems = 4096;
constexpr size_t kMaxGpus = 128;
constexpr size_t kMaxNics = 1024;

// Keeps the first error; after one, reading goes on without effect.
class Errors {
 public:
  void Add(const std::string& path, absl::string_view what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("topology JSON: ", path, ": ", what));
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

class Reader {
 public:
  Reader(const Json& object, std::string path, Errors& errors)
      : object_(object), path_(std::move(path)), errors_(errors) {
    if (!object_.is_object()) Fail(path_, "expected an object");
    why_ = Find("why");
    // PathInfo has a text of this name.
    if (why_ != nullptr && !why_->is_object()) why_ = nullptr;
    if (why_ != nullptr) seen_.insert("why");
  }

  template <typename T>
  void Field(const char* name, T& out) {
    seen_.insert(name);
    if (const Json* value = Find(name)) Read(*value, At(name), out);
  }

  template <typename T>
  void Field(const char* name, Known<T>& out) {
    seen_.insert(name);
    ReadWhy(name, out.why);
    const Json* value = Find(name);
    if (value != nullptr && !value->is_null()) {
      Read(*value, At(name), out.value.emplace());
    }
  }

  template <typename T>
  void Enum(const char* name, T& out, T last) {
    seen_.insert(name);
    const Json* value = Find(name);
    if (value == nullptr) return;
    for (int i = 0; i <= static_cast<int>(last); ++i) {
      if (value->is_string() &&
          value->get_ref<const std::string&>() == Name(static_cast<T>(i))) {
        out = static_cast<T>(i);
        return;
      }
    }
    Fail(At(name), "not one of its words (docs/topology_json.md)");
  }

  void Hex(const char* name, Known<uint32_t>& out, int /*digits*/) {
    seen_.insert(name);
    ReadWhy(name, out.why);
    const Json* value = Find(name);
    if (value == nullptr || value->is_null()) return;
    const std::string text =
        value->is_string() ? value->get<std::string>() : "";
    const bool has_form =
        text.size() >= 3 && text.size() <= 10 && text.starts_with("0x");
    if (!has_form || !absl::SimpleHexAtoi(text, &out.value.emplace())) {
      Fail(At(name), "expected a text like \"0x15b3\"");
    }
  }

  void Derived(const char* name) { seen_.insert(name); }

  // What nobody asked for is a slip of whoever wrote the file.
  void RefuseOthers() {
    if (!object_.is_object()) return;
    for (const auto& [name, value] : object_.items()) {
      if (seen_.count(name) == 0) Fail(At(name), "unknown member");
    }
    if (why_ == nullptr) return;
    for (const auto& [name, value] : why_->items()) {
      if (seen_why_.count(name) == 0) {
        Fail(absl::StrCat(path_, ".why.", name), "evidence of no such member");
      }
    }
  }

 private:
  void Fail(const std::string& path, absl::string_view what) {
    errors_.Add(path, what);
  }

  std::string At(absl::string_view name) const {
    return path_.empty() ? std::string(name) : absl::StrCat(path_, ".", name);
  }

  const Json* Find(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(name);
    return it == object_.end() ? nullptr : &*it;
  }

  void ReadWhy(const char* name, std::vector<Evidence>& out) {
    seen_why_.insert(name);
    if (why_ == nullptr || !why_->contains(name)) return;
    Read((*why_)[name], absl::StrCat(path_, ".why.", name), out);
  }

  template <typename T>
  void Read(const Json& value, const std::string& path, T& out) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      ReadInteger(value, path, out);
    } else {
      Reader reader(value, path, errors_);
      VisitFields(reader, out);
      reader.RefuseOthers();
    }
  }

  template <typename T>
  void ReadInteger(const Json& value, const std::string& path, T& out) {
    using Limits = std::numeric_limits<T>;
    bool fits = value.is_number_integer();
    if (value.is_number_unsigned()) {
      fits = std::in_range<T>(value.get<uint64_t>());
    } else if (fits) {
      fits = std::in_range<T>(value.get<int64_t>());
    }
    if (!fits) {
      return Fail(path, absl::StrCat("expected a whole number of ",
                                     Limits::min(), " to ", Limits::max()));
    }
    out = value.get<T>();
  }

  void Read(const Json& value, const std::string& path, std::string& out) {
    if (!value.is_string()) return Fail(path, "expected a text");
    out = value.get<std::string>();
  }

  void Read(const Json& value, const std::string& path, bool& out) {
    if (!value.is_boolean()) return Fail(path, "expected true or false");
    out = value.get<bool>();
  }

  void Read(const Json& value, const std::string& path, double& out) {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(number) || number < 0) {
      return Fail(path, "expected a number that is not negative");
    }
    out = number;
  }

  void Read(const Json& value, const std::string& path, Bdf& out) {
    if (!value.is_string() ||
        !ParseBdf(value.get_ref<const std::string&>(), &out)) {
      Fail(path, "expected a bus id like \"0000:81:00.0\"");
    }
  }

  void Read(const Json& value, const std::string& path,
            std::array<uint8_t, 16>& out) {
    std::string text = value.is_string() ? value.get<std::string>() : "";
    text.erase(std::remove(text.begin(), text.end(), ':'), text.end());
    const bool is_hex =
        text.size() == 32 &&
        std::all_of(text.begin(), text.end(),
                    [](unsigned char c) { return absl::ascii_isxdigit(c); });
    if (!is_hex) return Fail(path, "expected a GID, 32 hexadecimal digits");
    for (size_t i = 0; i < out.size(); ++i) {
      uint32_t byte = 0;
      (void)absl::SimpleHexAtoi(text.substr(2 * i, 2), &byte);
      out[i] = static_cast<uint8_t>(byte);
    }
  }

  template <typename T>
  void Read(const Json& value, const std::string& path, std::vector<T>& out) {
    if (!value.is_array()) return Fail(path, "expected a list");
    if (value.size() > kMaxItems) {
      return Fail(
          path, absl::StrCat(value.size(), " items are more than ", kMaxItems));
    }
    out.resize(value.size());
    for (size_t i = 0; i < out.size() && errors_.status().ok(); ++i) {
      Read(value[i], absl::StrCat(path, "[", i, "]"), out[i]);
    }
  }

  template <typename Key, typename T>
  void Read(const Json& value, const std::string& path, std::map<Key, T>& out) {
    if (!value.is_object()) return Fail(path, "expected an object");
    if (value.size() > kMaxItems) return Fail(path, "too many members");
    for (const auto& [name, each] : value.items()) {
      const std::string member = absl::StrCat(path, ".", name);
      Key key{};
      if (!ReadKey(name, key)) return Fail(member, "not a whole number");
      Read(each, member, out[key]);
    }
  }

  static bool ReadKey(const std::string& name, std::string& key) {
    key = name;
    return true;
  }
  static bool ReadKey(const std::string& name, int& key) {
    return absl::SimpleAtoi(name, &key);
  }

  const Json& object_;
  std::string path_;
  Errors& errors_;
  const Json* why_ = nullptr;
  std::set<std::string> seen_;
  std::set<std::string> seen_why_;
};

bool HasShape(const std::vector<std::vector<PathInfo>>& matrix, size_t rows,
              size_t columns) {
  return matrix.empty() ||
         (matrix.size() == rows &&
          std::all_of(matrix.begin(), matrix.end(),
                      [&](const auto& row) { return row.size() == columns; }));
}

// What other code indexes by must be in range.
void CheckIndices(const Machine& machine, Errors& errors) {
  const size_t num_gpus = machine.gpus.size();
  const size_t num_nics = machine.nics.size();
  if (num_gpus > kMaxGpus) errors.Add("gpus", "more than 128");
  if (num_nics > kMaxNics) errors.Add("nics", "more than 1024");
  for (size_t i = 1; i < num_gpus; ++i) {
    if (machine.gpus[i].bdf < machine.gpus[i - 1].bdf) {
      errors.Add(absl::StrCat("gpus[", i, "].bus_id"),
                 "GPUs stand in the order of their bus ids");
    }
  }
  for (size_t i = 0; i < machine.links.size(); ++i) {
    const GpuLink& link = machine.links[i];
    const auto size = static_cast<int>(num_gpus);
    if (link.a < 0 || link.a >= size || link.b < GpuLink::kToCpu ||
        link.b >= size) {
      errors.Add(absl::StrCat("links[", i, "]"),
                 "a is an index of gpus, b too or -1 (switch) or -2 (CPU)");
    }
  }
  if (!HasShape(machine.gpu_nic, num_gpus, num_nics)) {
    errors.Add("paths.gpu_nic", "expected a row per GPU with one item per NIC");
  }
  if (!HasShape(machine.gpu_gpu, num_gpus, num_gpus)) {
    errors.Add("paths.gpu_gpu", "expected a row and a column per GPU");
  }
}

}  // namespace
}  // namespace topology_json

absl::StatusOr<Machine> MachineFromJson(absl::string_view text) {
  using topology_json::Json;
  topology_json::Errors errors;
  if (text.size() > topology_json::kMaxText) {
    return absl::InvalidArgumentError("topology JSON: more than 8 MiB");
  }
  const Json json = ParseJson<Json>(text);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError("topology JSON: not a JSON object");
  }
  if (!json.contains("schema") || json["schema"] != "1") {
    return absl::InvalidArgumentError(
        "topology JSON: schema: this version reads \"1\"; write the file anew "
        "with telegrad-topo of this version");
  }
  Machine machine;
  topology_json::Reader reader(json, "", errors);
  topology_json::VisitFields(reader, machine);
  reader.RefuseOthers();
  topology_json::CheckIndices(machine, errors);
  RETURN_IF_ERROR(errors.status());
  if (machine.gpu_nic.empty() || machine.gpu_gpu.empty()) {
    Machine filled = machine;
    FillPaths(filled);
    if (machine.gpu_nic.empty()) machine.gpu_nic = std::move(filled.gpu_nic);
    if (machine.gpu_gpu.empty()) machine.gpu_gpu = std::move(filled.gpu_gpu);
  }
  return machine;
}

}  // namespace telegrad
