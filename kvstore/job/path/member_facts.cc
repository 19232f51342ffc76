#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/json_fields.h"
#include "kvstore/job/path/data_path.h"
#include "topology/machine_json.h"

// What members post about themselves: a line of JSON, then the machine's.
namespace telegrad {
namespace {

using Json = JsonFields::Json;

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

absl::Status Bad(absl::string_view member, absl::string_view what) {
  return WithExitCode(ExitCode::kMismatch,
                      absl::InvalidArgumentError(absl::StrCat(
                          member, " does not say what it is on: ", what)));
}

std::string TierOneText(std::optional<bool> is_on) {
  return !is_on.has_value() ? "auto" : *is_on ? "on" : "off";
}

std::optional<bool> OnOrOff(JsonFields& line, const char* name) {
  static constexpr const char* kWords[] = {"auto", "on", "off"};
  const size_t word = line.Word(name, kWords);
  return word == 0 ? std::nullopt : std::optional<bool>(word == 1);
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
    error =
        std::string(facts.machine.status().message().substr(0, kMaxErrorBytes));
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
                     {"tier1", TierOneText(facts.tier_one)},
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
  const Json json =
      end > kMaxLineBytes ? Json() : ParseJson(text.substr(0, end));
  JsonFields line(json, "$0 $1");
  // Texts may stand in messages to people.
  const auto text_of = [&](const char* field, size_t bytes = kMaxNameBytes) {
    return absl::Utf8SafeCEscape(line.Text(field, bytes));
  };
  MemberFacts facts{
      .name = std::string(name),
      .host = text_of("host"),
      .boot_id = text_of("boot_id"),
      .interface = text_of("interface"),
      .transports = line.Texts("transports", kMaxTransports, kMaxNameBytes),
      .lacks = text_of("lacks", 4 * kMaxErrorBytes),
      .transport = text_of("transport"),
      .tls = text_of("tls"),
      .rails = line.Integer("rails", 0, kMaxCount),
      .connections = line.Integer("connections", 0, kMaxCount),
      .tier_one = OnOrOff(line, "tier1"),
      .gdr = text_of("gdr"),
      .network_namespace = text_of("network_namespace"),
      .plan = text_of("plan")};
  const std::string error = text_of("error", 4 * kMaxErrorBytes);
  for (std::string& each : facts.transports) {
    each = absl::Utf8SafeCEscape(each);
  }
  if (!line.status().ok()) {
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
