#include "topology/verbs/gpu_probe.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"

namespace telegrad::verbs {
namespace {

constexpr size_t kBytes = 65536;

// The part of CUDA's driver API that the probe needs; cuda.h is not on every
// machine that builds us. Source: CUDA Driver API, stable by its versioning.
class CudaDriver {
 public:
  ~CudaDriver() {
    if (context_) release_(0);
    if (library_ != nullptr) ::dlclose(library_);
  }
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  // Null without a driver or a GPU.
  static std::unique_ptr<CudaDriver> Open() {
    std::unique_ptr<CudaDriver> driver(new CudaDriver());
    return driver->Load() ? std::move(driver) : nullptr;
  }

  uint64_t Allocate() {
    uint64_t address = 0;
    return allocate_(&address, kBytes) == 0 ? address : 0;
  }
  void Free(uint64_t address) { free_(address); }

  // A dmabuf of the memory; -1: the driver cannot.
  int Export(uint64_t address) {
    constexpr int kDmabuf = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    int fd = -1;
    if (export_ == nullptr) return -1;
    return export_(&fd, address, kBytes, kDmabuf, 0) == 0 ? fd : -1;
  }

 private:
  CudaDriver() = default;

  template <typename Function>
  bool Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library_, name));
    return *function != nullptr;
  }

  bool Load() {
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return false;
    int (*init)(unsigned) = nullptr;
    int (*retain)(void**, int) = nullptr;
    int (*set_current)(void*) = nullptr;
    const bool found =
        Find("cuInit", &init) && Find("cuDevicePrimaryCtxRetain", &retain) &&
        Find("cuCtxSetCurrent", &set_current) &&
        Find("cuDevicePrimaryCtxRelease_v2", &release_) &&
        Find("cuMemAlloc_v2", &allocate_) && Find("cuMemFree_v2", &free_);
    Find("cuMemGetHandleForAddressRange", &export_);
    void* context = nullptr;
    if (!found || init(0) != 0 || retain(&context, 0) != 0) return false;
    context_ = true;
    return set_current(context) == 0;
  }

  void* library_ = nullptr;
  bool context_ = false;
  int (*release_)(int) = nullptr;
  int (*allocate_)(uint64_t*, size_t) = nullptr;
  int (*free_)(uint64_t) = nullptr;
  int (*export_)(void*, uint64_t, size_t, int, unsigned long long) = nullptr;
};

// 0, or the errno of the last refusal.
int Register(ibv_pd* domain, CudaDriver& cuda, uint64_t address,
             std::string* by) {
  constexpr int kAccess =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  errno = 0;
  ibv_mr* region =
      ibv_reg_mr(domain, reinterpret_cast<void*>(address), kBytes, kAccess);
  *by = "ibv_reg_mr";
  if (region == nullptr) {
    const int fd = cuda.Export(address);
    if (fd < 0) return errno != 0 ? errno : EIO;
    *by = "ibv_reg_dmabuf_mr";
    region = ibv_reg_dmabuf_mr(domain, 0, kBytes, address, fd, kAccess);
    const int error = errno;
    ::close(fd);
    if (region == nullptr) return error != 0 ? error : EIO;
  }
  ibv_dereg_mr(region);
  return 0;
}

}  // namespace

void ProbeGpuMemory(ibv_pd* domain, const std::string& device,
                    Capabilities& capabilities) {
  const std::unique_ptr<CudaDriver> cuda = CudaDriver::Open();
  if (cuda == nullptr) return;
  const uint64_t address = cuda->Allocate();
  if (address == 0) return;
  std::string by;
  const int error = Register(domain, *cuda, address, &by);
  cuda->Free(address);
  capabilities.why["gdr_probe"].push_back(
      {.what = absl::StrCat(device, error == 0 ? " registered" : " refused",
                            " GPU memory"),
       .source = by,
       .error = error,
       .confidence = Confidence::kMeasured});
  if (error == 0) {
    capabilities.gdr_probe = Tri::kYes;
  } else if (capabilities.gdr_probe == Tri::kUnknown) {
    capabilities.gdr_probe = Tri::kNo;
  }
}

}  // namespace telegrad::verbs
