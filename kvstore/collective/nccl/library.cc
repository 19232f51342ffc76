#include "kvstore/collective/nccl/library.h"

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/open_library.h"
#include "base/status_macros.h"

namespace telegrad::collective {
namespace {

constexpr int kOldestVersion = 21400;

// Why it cannot be used, and the way out for those who have GPUs.
absl::Status NotLoaded(const std::string& name, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat(
      "nccl: ", name, " cannot be used: ", why,
      "; it comes with NVIDIA's package libnccl2, or pip's nvidia-nccl-cu12 "
      "or -cu13: put its folder into LD_LIBRARY_PATH"));
}

// Where an address of a function goes.
template <typename Function>
void** Slot(Function*& function) {
  return reinterpret_cast<void**>(&function);
}

absl::Status OpenNccl(const std::string& name, Library* library) {
  return vendor::Open(
      name, {{"ncclGetVersion", Slot(library->get_version)},
             {"ncclGetUniqueId", Slot(library->get_unique_id)},
             {"ncclCommInitRankConfig", Slot(library->comm_init_rank_config)},
             {"ncclCommGetAsyncError", Slot(library->comm_get_async_error)},
             {"ncclCommFinalize", Slot(library->comm_finalize)},
             {"ncclCommDestroy", Slot(library->comm_destroy)},
             {"ncclCommAbort", Slot(library->comm_abort)},
             {"ncclGetErrorString", Slot(library->get_error_string)},
             {"ncclGroupStart", Slot(library->group_start)},
             {"ncclGroupEnd", Slot(library->group_end)},
             {"ncclAllReduce", Slot(library->all_reduce)},
             {"ncclReduceScatter", Slot(library->reduce_scatter)},
             {"ncclReduce", Slot(library->reduce)},
             {"ncclAllGather", Slot(library->all_gather)},
             {"ncclBroadcast", Slot(library->broadcast)},
             {"ncclSend", Slot(library->send)},
             {"ncclRecv", Slot(library->recv)}});
}

}  // namespace

// The library stays loaded: NCCL has threads of its own.
absl::StatusOr<Library> LoadNccl(const std::string& name) {
  Library library{.get_device_count = &cudaGetDeviceCount,
                  .pointer_get_attributes = &cudaPointerGetAttributes,
                  .stream_create = &cudaStreamCreateWithFlags,
                  .stream_destroy = &cudaStreamDestroy,
                  .stream_query = &cudaStreamQuery,
                  .get_last_error = &cudaGetLastError};
  if (const absl::Status opened = OpenNccl(name, &library); !opened.ok()) {
    return NotLoaded(name, opened.message());
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
