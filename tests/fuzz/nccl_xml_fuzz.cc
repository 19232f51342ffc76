// libFuzzer: NCCL's topology XML; what is read survives a dump.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "topology/import/nccl_xml.h"
#include "topology/machine_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace telegrad;
  const auto root = topology_import::ParseXml(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!root.ok()) return 0;
  const auto machine = topology_import::MachineFromNcclXml(*root);
  // A dump costs ten times the reading.
  if (!machine.ok() || size % 16 != 0) return 0;
  const auto again = MachineFromJson(ToJson(*machine, -1));
  if (!again.ok() || *again != *machine) std::abort();
  return 0;
}
