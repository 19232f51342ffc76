#pragma once

#include <nccl.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// NCCL is loaded when a group asks for it, so that one binary runs with and
// without it. nccl.h: https://docs.nvidia.com/deeplearning/nccl/user-guide
namespace telegrad::collective {

// The functions that a group calls; tests have their own.
struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;

  decltype(&cudaGetDeviceCount) get_device_count = nullptr;
  decltype(&cudaPointerGetAttributes) pointer_get_attributes = nullptr;
  decltype(&cudaStreamCreateWithFlags) stream_create = nullptr;
  decltype(&cudaStreamDestroy) stream_destroy = nullptr;
  decltype(&cudaStreamQuery) stream_query = nullptr;
  decltype(&cudaGetLastError) get_last_error = nullptr;
};

// `name` as dlopen takes it. Unavailable when it cannot be loaded, lacks a
// function or is older than 2.14, which has no communicators that do not block.
absl::StatusOr<Library> LoadNccl(const std::string& name);

// NCCL's number of its version, 22809 for "2.28.9".
absl::StatusOr<int> VersionOf(const Library& library);
std::string VersionText(int version);

// OK, or the error that names `what` failed. ncclRemoteError is Unavailable,
// exit code 20; anything else Internal.
absl::Status FromNccl(const Library& library, ncclResult_t result,
                      const char* what);
absl::Status FromCuda(cudaError_t error, const char* what);

}  // namespace telegrad::collective
