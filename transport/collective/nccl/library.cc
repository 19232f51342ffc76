#include "transport/collective/nccl/library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace telegrad::collective {
namespace {

constexpr int kOldestVersion = 21400;

// Also the way out, for those who have GPUs.
absl::Status NotLoaded(const std::string& name, const std::string& why) {
  return absl::UnavailableError(absl::StrCat(
      "nccl: ", name, " cannot be used: ", why,
      "; it comes with NVIDIA's package libnccl2, or pip's nvidia-nccl-cu12 "
      "or -cu13: put its folder into LD_LIBRARY_PATH"));
}

// Looks functions up until one is missing.
class Symbols {
 public:
  explicit Symbols(void* handle) : handle_(handle) {}

  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (*function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }

 private:
  void* const handle_;
  const char* missing_ = nullptr;
};

const char* FindNccl(void* handle, Library* library) {
  Symbols symbols(handle);
  symbols.Find("ncclGetVersion", &library->get_version);
  symbols.Find("ncclGetUniqueId", &library->get_unique_id);
  symbols.Find("ncclCommInitRankConfig", &library->comm_init_rank_config);
  symbols.Find("ncclCommGetAsyncError", &library->comm_get_async_error);
  symbols.Find("ncclCommFinalize", &library->comm_finalize);
  symbols.Find("ncclCommDestroy", &library->comm_destroy);
  symbols.Find("ncclCommAbort", &library->comm_abort);
  symbols.Find("ncclGetErrorString", &library->get_error_string);
  symbols.Find("ncclGroupStart", &library->group_start);
  symbols.Find("ncclGroupEnd", &library->group_end);
  symbols.Find("ncclAllReduce", &library->all_reduce);
  symbols.Find("ncclReduceScatter", &library->reduce_scatter);
  symbols.Find("ncclAllGather", &library->all_gather);
  symbols.Find("ncclBroadcast", &library->broadcast);
  symbols.Find("ncclSend", &library->send);
  symbols.Find("ncclRecv", &library->recv);
  return symbols.missing();
}

}  // namespace

// The library stays loaded: NCCL has threads of its own.
absl::StatusOr<Library> LoadNccl(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return NotLoaded(name, dlerror());
  Library library{.get_device_count = &cudaGetDeviceCount,
                  .get_device = &cudaGetDevice,
                  .set_device = &cudaSetDevice,
                  .pointer_get_attributes = &cudaPointerGetAttributes,
                  .stream_create = &cudaStreamCreateWithFlags,
                  .stream_destroy = &cudaStreamDestroy,
                  .stream_query = &cudaStreamQuery,
                  .get_last_error = &cudaGetLastError};
  if (const char* const missing = FindNccl(handle, &library)) {
    return NotLoaded(name, absl::StrCat("it has no ", missing));
  }
  ASSIGN_OR_RETURN(const int version, VersionOf(library));
  if (version < kOldestVersion) {
    return NotLoaded(
        name, absl::StrCat("it is NCCL ", VersionText(version), ", at least ",
                           VersionText(kOldestVersion), " is needed"));
  }
  return library;
}

absl::StatusOr<int> VersionOf(const Library& library) {
  int version = 0;
  RETURN_IF_ERROR(
      FromNccl(library, library.get_version(&version), "ncclGetVersion"));
  return version;
}

std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

absl::Status FromNccl(const Library& library, ncclResult_t result,
                      const char* what) {
  if (result == ncclSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(
      "nccl: ", what, " failed: ", library.get_error_string(result), " (",
      int{result}, "); NCCL_DEBUG=WARN in the environment says more");
  if (result != ncclRemoteError) return absl::InternalError(text);
  return WithExitCode(ExitCode::kPeerDied, absl::UnavailableError(text));
}

absl::Status FromCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cuda: ", what, " failed: ", cudaGetErrorString(error), " (",
                   int{error}, ")"));
}

}  // namespace telegrad::collective
