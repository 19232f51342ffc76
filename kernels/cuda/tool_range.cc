#include "kernels/cuda/tool_range.h"

#include <nvtx3/nvToolsExt.h>

namespace telegrad::kernels::cuda {
namespace {

// Null without a tool; NVTX's calls then do nothing.
nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("telegrad");
  return domain;
}

}  // namespace

void BeginRange(const char* name) {
  nvtxEventAttributes_t range = {};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(Domain(), &range);
}

void EndRange() { nvtxDomainRangePop(Domain()); }

}  // namespace telegrad::kernels::cuda
