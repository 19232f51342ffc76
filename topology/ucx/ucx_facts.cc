#include "topology/ucx/ucx_facts.h"

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>
#include <uct/api/uct.h>

#include <cstdarg>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/resource_limit.h"
#include "base/vendor.h"

namespace telegrad {
namespace {

// UCX logs to the standard output, where our JSON goes.
ucs_log_func_rc_t DropMessage(const char* /*file*/, unsigned /*line*/,
                              const char* /*function*/,
                              ucs_log_level_t /*level*/,
                              const ucs_log_component_config_t* /*component*/,
                              const char* /*message*/, va_list /*arguments*/) {
  return UCS_LOG_FUNC_RC_STOP;
}

class Quiet {
 public:
  Quiet() { ucs_log_push_handler(&DropMessage); }
  ~Quiet() { ucs_log_pop_handler(); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

void AskComponents(Capabilities& capabilities) {
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return;
  std::vector<std::string> found;
  unsigned rdma_devices = 0;
  for (unsigned i = 0; i < count; ++i) {
    uct_component_attr_t attributes{};
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                            UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (uct_component_query(components[i], &attributes) != UCS_OK) continue;
    found.push_back(
        absl::StrCat(attributes.name, " ", attributes.md_resource_count));
    if (absl::string_view(attributes.name) == "ib") {
      rdma_devices = attributes.md_resource_count;
    }
  }
  uct_release_component_list(components);
  capabilities.ucx_rdma = rdma_devices > 0 ? Tri::kYes : Tri::kNo;
  capabilities.why["ucx_rdma"].push_back(
      {.what = "components and how many devices each has",
       .source = "uct_query_components",
       .raw = absl::StrJoin(found, ", ")});
}

void AskMemoryTypes(Capabilities& capabilities) {
  ucp_config_t* config = nullptr;
  if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) return;
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_TAG;
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&parameters, config, &context);
  ucp_config_release(config);
  Evidence why = {.what = "memory types of a context",
                  .source = "ucp_context_query"};
  if (status != UCS_OK) {
    why.raw = ucs_status_string(status);
    capabilities.why["ucx_cuda"].push_back(std::move(why));
    return;
  }
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(context, &attributes) == UCS_OK) {
    const bool has_cuda =
        (attributes.memory_types & (1UL << UCS_MEMORY_TYPE_CUDA)) != 0;
    capabilities.ucx_cuda = has_cuda ? Tri::kYes : Tri::kNo;
    why.raw = absl::StrCat("mask 0x", absl::Hex(attributes.memory_types),
                           has_cuda ? ", with cuda" : ", without cuda");
  }
  capabilities.why["ucx_cuda"].push_back(std::move(why));
  ucp_cleanup(context);
}

}  // namespace

void AddUcxFacts(const TopologyOptions& /*options*/, Machine& machine) {
  if (!vendor::OpenUcx().ok()) return;
  const Quiet quiet;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  machine.capabilities.ucx_version =
      absl::StrCat(major, ".", minor, ".", release);
  // With fewer it ends the process by an assertion.
  if (const absl::Status enough = CheckFreeFiles(16, "asking UCX");
      !enough.ok()) {
    machine.capabilities.why["ucx_rdma"].push_back(
        {.what = "not asked",
         .source = "uct_query_components",
         .raw = std::string(enough.message())});
    return;
  }
  AskComponents(machine.capabilities);
  AskMemoryTypes(machine.capabilities);
}

}  // namespace telegrad
