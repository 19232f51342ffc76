#include "topology/nvidia/cuda_facts.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "topology/path.h"

namespace telegrad {
namespace {

// The part of CUDA's driver API that tells of devices; cuda.h is not on every
// machine that builds us. Source: CUDA Driver API, stable by its versioning.
class CudaDevices {
 public:
  // It stays once it has started: others use the same driver, and it may have
  // threads.
  CudaDevices()
      : library_(
            ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    int (*init)(unsigned) = nullptr;
    is_up_ = library_ != nullptr && Find("cuInit", &init) &&
             Find("cuDeviceGetByPCIBusId", &find_) &&
             Find("cuDeviceGetAttribute", &attribute_) && init(0) == 0;
  }
  ~CudaDevices() {
    if (library_ != nullptr) ::dlclose(library_);
  }
  CudaDevices(const CudaDevices&) = delete;
  CudaDevices& operator=(const CudaDevices&) = delete;

  // Unknown, with the error, where the driver does not tell.
  Known<bool> ExportsDmabuf(const Bdf& bdf) const {
    constexpr int kDmabuf = 124;  // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
    Known<bool> known;
    if (!is_up_) return known;
    int device = 0;
    int value = 0;
    int error = find_(&device, ToString(bdf).c_str());
    if (error == 0) error = attribute_(&value, kDmabuf, device);
    if (error == 0) known.value = value != 0;
    known.why = {{.what = absl::StrCat(ToString(bdf), " exports dmabuf"),
                  .source = "cuDeviceGetAttribute",
                  .raw = error == 0 ? absl::StrCat(value)
                                    : absl::StrCat("CUresult ", error)}};
    return known;
  }

 private:
  template <typename Function>
  bool Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library_, name));
    return *function != nullptr;
  }

  void* library_ = nullptr;
  bool is_up_ = false;
  int (*find_)(int*, const char*) = nullptr;
  int (*attribute_)(int*, int, int) = nullptr;
};

}  // namespace

void AddCudaFacts(const TopologyOptions& options, Machine& machine) {
  if (!options.probe || machine.gpus.empty()) return;
  const CudaDevices cuda;
  bool all_known = true;
  bool all_export = true;
  std::vector<Evidence> why;
  for (Gpu& gpu : machine.gpus) {
    gpu.dmabuf = cuda.ExportsDmabuf(gpu.bdf);
    all_known &= gpu.dmabuf.known();
    all_export &= gpu.dmabuf.value_or(true);
    why.insert(why.end(), gpu.dmabuf.why.begin(), gpu.dmabuf.why.end());
  }
  if (why.empty()) return;
  Capabilities& has = machine.capabilities;
  if (!all_export) has.gdr_dmabuf_gpu = Tri::kNo;  // one that cannot decides
  if (all_export && all_known) has.gdr_dmabuf_gpu = Tri::kYes;
  std::vector<Evidence>& all = has.why["gdr_dmabuf_gpu"];
  all.insert(all.end(), why.begin(), why.end());
}

}  // namespace telegrad
