#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kvstore/job/path/data_path.h"
#include "topology/machine_json.h"

// What members post about themselves: a line of JSON, then the machine's.
namespace telegrad {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxNameBytes = 255;
constexpr size_t kMaxTransports = 16;
constexpr size_t kMaxErrorBytes = 1000;
constexpr size_t kMaxLineBytes = 32 * 1024;
constexpr size_t kMaxMachineBytes = 512 * 1024;
constexpr int kMaxCount = 4096;

// Without what no plan needs and others need not see.
Machine Condensed(Machine machine) {
  machine.environment.clear();
  machine.notes.clear();
  machine.capabilities.why.clear();
  for (NetInterface& each : machine.interfaces) each.addresses.clear();
  for (auto* paths : {&machine.gpu_nic, &machine.gpu_gpu}) {
    for (std::vector<PathInfo>& row : *paths) {
      for (PathInfo& path : row) path.why.clear();
    }
  }
  return machine;
}

// Typed, bounded access; remembers whether anything was wrong.
class Line {
 public:
  explicit Line(absl::string_view text)
      : json_(text.size() > kMaxLineBytes ? Json()
                                          : Json::parse(text, nullptr, false)),
        is_right_(json_.is_object()) {}

  std::string Text(const char* name, size_t max_bytes = kMaxNameBytes) {
    return TextOf(Find(name), max_bytes);
  }
  int Count(const char* name) {
    const Json value = Find(name);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMaxCount) {
      is_right_ = false;
      return 0;
    }
    return value.get<int>();
  }
  std::vector<std::string> Texts(const char* name) {
    std::vector<std::string> texts;
    const Json list = Find(name);
    if (!list.is_array() || list.size() > kMaxTransports) {
      is_right_ = false;
      return texts;
    }
    for (const Json& each : list) texts.push_back(TextOf(each, kMaxNameBytes));
    return texts;
  }
  bool is_right() const { return is_right_; }

 private:
  Json Find(const char* name) {
    return is_right_ && json_.contains(name) ? json_[name] : Json();
  }
  // It may stand in messages to people.
  std::string TextOf(const Json& value, size_t max_bytes) {
    const auto* text = value.get_ptr<const std::string*>();
    if (text != nullptr && text->size() <= max_bytes) {
      return absl::Utf8SafeCEscape(*text);
    }
    is_right_ = false;
    return "";
  }

  Json json_;
  bool is_right_;
};

absl::Status Bad(absl::string_view member, absl::string_view what) {
  return WithExitCode(ExitCode::kMismatch,
                      absl::InvalidArgumentError(absl::StrCat(
                          member, " does not say what it is on: ", what)));
}

}  // namespace

std::string ToText(const MemberFacts& facts) {
  std::string error;
  std::string machine;
  if (facts.machine.ok()) {
    machine = ToJson(Condensed(*facts.machine), -1);
    if (machine.size() > kMaxMachineBytes) {
      error = absl::StrCat("its description has ", machine.size(),
                           " bytes, beyond ", kMaxMachineBytes);
      machine.clear();
    }
  } else {
    error = facts.machine.status().ToString().substr(0, kMaxErrorBytes);
  }
  const Json line = {{"host", facts.host.substr(0, kMaxNameBytes)},
                     {"boot_id", facts.boot_id.substr(0, kMaxNameBytes)},
                     {"interface", facts.interface},
                     {"transports", facts.transports},
                     {"lacks", facts.lacks.substr(0, kMaxErrorBytes)},
                     {"transport", facts.transport},
                     {"tls", facts.tls},
                     {"rails", static_cast<unsigned>(facts.rails)},
                     {"connections", static_cast<unsigned>(facts.connections)},
                     {"tier1", facts.tier_one},
                     {"gdr", facts.gdr},
                     {"network_namespace", facts.network_namespace},
                     {"plan", facts.plan},
                     {"error", error}};
  return absl::StrCat(line.dump(-1, ' ', false, Json::error_handler_t::replace),
                      "\n", machine);
}

absl::StatusOr<MemberFacts> ParseMemberFacts(absl::string_view name,
                                             absl::string_view text) {
  const size_t end = std::min(text.find('\n'), text.size());
  Line line(text.substr(0, end));
  MemberFacts facts{.name = std::string(name),
                    .host = line.Text("host"),
                    .boot_id = line.Text("boot_id"),
                    .interface = line.Text("interface"),
                    .transports = line.Texts("transports"),
                    .lacks = line.Text("lacks", 4 * kMaxErrorBytes),
                    .transport = line.Text("transport"),
                    .tls = line.Text("tls"),
                    .rails = line.Count("rails"),
                    .connections = line.Count("connections"),
                    .tier_one = line.Text("tier1"),
                    .gdr = line.Text("gdr"),
                    .network_namespace = line.Text("network_namespace"),
                    .plan = line.Text("plan")};
  const std::string error = line.Text("error", 4 * kMaxErrorBytes);
  if (!line.is_right()) {
    return Bad(name, absl::StrCat(
                         "'", absl::Utf8SafeCEscape(text.substr(0, 100)), "'"));
  }
  if (!error.empty()) {
    facts.machine = absl::NotFoundError(error);
    return facts;
  }
  absl::StatusOr<Machine> machine =
      MachineFromJson(text.substr(std::min(end + 1, text.size())));
  if (!machine.ok()) {
    return Bad(
        name, absl::Utf8SafeCEscape(machine.status().message().substr(0, 200)));
  }
  facts.machine = *std::move(machine);
  return facts;
}

}  // namespace telegrad
