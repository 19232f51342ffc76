#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "compression/codec.h"
#include "kernels/dispatch.h"
#include "python/c/status.h"
#include "topology/detect.h"
#include "topology/doctor.h"
#include "topology/machine_json.h"
#include "topology/options.h"
#include "transport/transport.h"

using telegrad::c::Give;
using telegrad::c::GiveText;
using Json = nlohmann::ordered_json;

namespace {

absl::StatusOr<telegrad::Machine> OwnMachine() {
  ASSIGN_OR_RETURN(const telegrad::TopologyOptions options,
                   telegrad::TopologyOptionsFromEnvironment());
  return telegrad::DetectMachine(telegrad::SysRoot::Live(), options);
}

absl::StatusOr<Json> JsonOf(const telegrad::Codec& codec) {
  constexpr size_t kElems = size_t{1} << 16;
  const telegrad::CodecTraits& traits = codec.traits();
  ASSIGN_OR_RETURN(const auto prepared,
                   codec.PrepareCold(kElems, telegrad::Device{},
                                     telegrad::StandardOptions(traits)));
  Json options = Json::array();
  for (const telegrad::CodecOption& each : traits.options) {
    options.push_back({{"name", each.name},
                       {"default", each.standard},
                       {"low", each.low},
                       {"high", each.high},
                       {"help", each.help}});
  }
  return Json{
      {"name", traits.name},
      {"summary", traits.summary},
      {"bits",
       8.0 * static_cast<double>(prepared->max_encoded_bytes()) / kElems},
      {"has_threshold", traits.needs_threshold},
      {"has_residual", traits.needs_residual},
      {"options", options}};
}

absl::StatusOr<std::string> About() {
  Json codecs = Json::array();
  for (const telegrad::Codec* codec : telegrad::AllCodecs()) {
    ASSIGN_OR_RETURN(Json each, JsonOf(*codec));
    codecs.push_back(std::move(each));
  }
  std::string why_not;
  const bool has_gpu = telegrad::kernels::CudaKernels(&why_not) != nullptr;
  const std::vector<std::string> transports =
      absl::StrSplit(telegrad::DescribeTransports(), '\n', absl::SkipEmpty());
  return Json{{"version", telegrad_version()},
              {"transports", transports},
              {"cuda", has_gpu ? "a GPU is here" : why_not},
              {"codecs", codecs}}
      .dump();
}

}  // namespace

extern "C" {

int32_t telegrad_topology(char* text, uint64_t text_bytes, uint64_t* needed,
                          telegrad_status* status) {
  const absl::StatusOr<telegrad::Machine> machine = OwnMachine();
  if (!machine.ok()) return Give(machine.status(), status);
  return GiveText(telegrad::ToJson(*machine), text, text_bytes, needed, status);
}

int32_t telegrad_about(char* text, uint64_t text_bytes, uint64_t* needed,
                       telegrad_status* status) {
  const absl::StatusOr<std::string> about = About();
  if (!about.ok()) return Give(about.status(), status);
  return GiveText(*about, text, text_bytes, needed, status);
}

int32_t telegrad_doctor(char* text, uint64_t text_bytes, uint64_t* needed,
                        telegrad_status* status) {
  const absl::StatusOr<telegrad::Machine> machine = OwnMachine();
  if (!machine.ok()) return Give(machine.status(), status);
  return GiveText(telegrad::ToJson(telegrad::Examine(*machine, {})), text,
                  text_bytes, needed, status);
}

}  // extern "C"
