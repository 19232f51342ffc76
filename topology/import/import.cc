#include "topology/import.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/input_file.h"
#include "base/status_macros.h"
#include "topology/detect.h"
#include "topology/import/hwloc_xml.h"
#include "topology/import/nccl_xml.h"
#include "topology/import/xml.h"
#include "topology/machine_json.h"
#include "topology/options.h"
#include "topology/system_root.h"

namespace telegrad {
namespace {

constexpr size_t kMaxFile = size_t{16} << 20;
constexpr char kWhatIsRead[] =
    "a dump of telegrad-topo (JSON), NCCL's topology XML "
    "(NCCL_TOPO_DUMP_FILE), "
    "hwloc's XML (lstopo FILE.xml) or a recorded /sys (folder or tar archive) "
    "is read";

// Without byte order mark and white space.
absl::string_view Start(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");
  return absl::StripLeadingAsciiWhitespace(text);
}

bool IsText(absl::string_view text) {
  const absl::string_view start = Start(text);
  return absl::StartsWith(start, "{") || absl::StartsWith(start, "<");
}

// The text of a file of JSON or XML; empty for an archive or a folder.
absl::StatusOr<std::string> ReadText(const std::string& path) {
  const absl::StatusOr<UniqueFd> file = OpenFile(path);
  if (!file.ok()) return std::string();
  ASSIGN_OR_RETURN(std::string text, ReadUpTo(*file, size_t{1} << 16));
  if (!IsText(text)) return std::string();
  ASSIGN_OR_RETURN(const std::string rest, ReadUpTo(*file, kMaxFile));
  text += rest;
  if (text.size() <= kMaxFile) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("more than 16 MiB; ", kWhatIsRead));
}

absl::StatusOr<Machine> MachineFromTree(const std::string& path,
                                        const TopologyOptions& options) {
  const absl::StatusOr<SysRoot> root = SysRoot::Open(path);
  if (root.ok()) return DetectMachine(*root, options);
  if (!absl::IsInvalidArgument(root.status())) return root.status();
  return absl::InvalidArgumentError(
      absl::StrCat(root.status().message(), "; ", kWhatIsRead));
}

absl::StatusOr<Machine> MachineFromXml(absl::string_view text) {
  ASSIGN_OR_RETURN(const topology_import::XmlElement root,
                   topology_import::ParseXml(text));
  if (root.name == "system") return topology_import::MachineFromNcclXml(root);
  if (root.name == "topology") {
    return topology_import::MachineFromHwlocXml(root);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("XML of <", root.name, ">; ", kWhatIsRead));
}

}  // namespace

absl::StatusOr<Machine> MachineFromText(absl::string_view text) {
  const absl::string_view start = Start(text);
  if (absl::StartsWith(start, "{")) return MachineFromJson(start);
  if (absl::StartsWith(start, "<")) return MachineFromXml(start);
  return absl::InvalidArgumentError(
      absl::StrCat("neither JSON nor XML; ", kWhatIsRead));
}

absl::StatusOr<Machine> MachineFromFile(const std::string& path,
                                        const TopologyOptions& options) {
  const absl::StatusOr<std::string> text = ReadText(path);
  if (text.ok() && text->empty()) return MachineFromTree(path, options);
  absl::StatusOr<Machine> machine =
      text.ok() ? MachineFromText(*text) : text.status();
  if (!machine.ok()) {
    return absl::Status(machine.status().code(),
                        absl::StrCat(path, ": ", machine.status().message()));
  }
  machine->source = path;
  ApplyOverrides(options, *machine);
  return machine;
}

}  // namespace telegrad
