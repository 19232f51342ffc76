#include "tests/simt/ranges_tool.h"

#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::map<std::string, int, std::less<>> begun;
int num_open = 0;
char domain;  // the address of the one that counts

nvtxDomainHandle_t Create(const char* name) {
  if (std::strcmp(name, "telegrad") != 0) return nullptr;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}

bool Counts(nvtxDomainHandle_t of) {
  return reinterpret_cast<char*>(of) == &domain;
}

int Push(nvtxDomainHandle_t of, const nvtxEventAttributes_t* range) {
  if (!Counts(of)) return 0;
  const std::lock_guard<std::mutex> lock(mutex);
  ++begun[range->message.ascii];
  return num_open++;
}

int Pop(nvtxDomainHandle_t of) {
  if (!Counts(of)) return 0;
  const std::lock_guard<std::mutex> lock(mutex);
  return --num_open;
}

template <typename Call>
NvtxFunctionPointer Pointer(Call* call) {
  return reinterpret_cast<NvtxFunctionPointer>(call);
}

}  // namespace

extern "C" {

int ranges_begun(const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  return begun[name];
}

int ranges_open() {
  const std::lock_guard<std::mutex> lock(mutex);
  return num_open;
}

// NVTX calls it with the first range of a process.
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable calls = nullptr;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(
                                  NVTX_CB_MODULE_CORE2, &calls, nullptr) == 0) {
    return 0;
  }
  *calls[NVTX_CBID_CORE2_DomainCreateA] = Pointer(Create);
  *calls[NVTX_CBID_CORE2_DomainRangePushEx] = Pointer(Push);
  *calls[NVTX_CBID_CORE2_DomainRangePop] = Pointer(Pop);
  return 1;
}

}  // extern "C"
