#include "kvstore/collective/nccl/communicator.h"

#include <algorithm>
#include <future>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"

namespace telegrad::collective {
namespace {

// Between two looks at the GPU, once it takes longer.
constexpr Duration kLongestNap = std::chrono::microseconds(200);

// Everything by value: it may outlive the communicator.
void EndNow(Library library, int device, ncclComm_t communicator,
            cudaStream_t stream, bool is_whole) {
  const kernels::DeviceScope scope({DeviceKind::kCuda, device});
  ncclResult_t state = ncclInternalError;
  if (communicator != nullptr && is_whole) {
    const TimePoint deadline = Clock::now() + kCloseGrace;
    state = library.comm_finalize(communicator);
    while (state == ncclInProgress && Clock::now() < deadline) {
      std::this_thread::sleep_for(kLongestNap);
      if (library.comm_get_async_error(communicator, &state) != ncclSuccess) {
        state = ncclInternalError;
      }
    }
  }
  if (communicator != nullptr) {
    (void)(state == ncclSuccess ? library.comm_destroy(communicator)
                                : library.comm_abort(communicator));
  }
  if (stream != nullptr) (void)library.stream_destroy(stream);
}

absl::Status HasEnded() {
  return absl::FailedPreconditionError("nccl: the communicator has ended");
}

}  // namespace

absl::Status LostPeers::Check(const Mesh& mesh, TimePoint now) {
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const absl::Status status = mesh.CheckPeer(rank);
    if (status.ok()) continue;
    if (since_ == TimePoint()) since_ = now;
    return now - since_ < kCloseGrace ? absl::OkStatus() : status;
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(const Library& library, int device) {
  int num_devices = 0;
  const cudaError_t error = library.get_device_count(&num_devices);
  if (error != cudaSuccess || num_devices == 0) {
    (void)library.get_last_error();
    return absl::UnavailableError(absl::StrCat(
        "nccl: no CUDA device: ",
        cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error),
        "; groups of host memory have backend \"host\""));
  }
  if (device < 0 || device >= num_devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("nccl: device ", device, " of ", num_devices,
                     " CUDA devices, counted from 0"));
  }
  return absl::OkStatus();
}

Communicator::Communicator(const Library& library, int device)
    : library_(library), device_(device) {}

Communicator::~Communicator() { End(is_whole_); }

void Communicator::Abort() { End(false); }

void Communicator::End(bool is_whole) {
  if (communicator_ == nullptr && stream_ == nullptr) return;
  std::packaged_task<void()> end(
      [library = library_, device = device_, communicator = communicator_,
       stream = stream_,
       is_whole] { EndNow(library, device, communicator, stream, is_whole); });
  std::future<void> ended = end.get_future();
  std::thread thread = StartThread(std::move(end));
  const auto grace = 2 * kCloseGrace;
  if (ended.wait_for(grace) == std::future_status::ready) {
    thread.join();
  } else {
    thread.detach();
  }
  communicator_ = nullptr;
  stream_ = nullptr;
  is_whole_ = false;
}

absl::Status Communicator::Init(Mesh& mesh, const ncclUniqueId& id) {
  const kernels::DeviceScope scope({DeviceKind::kCuda, device_});
  RETURN_IF_ERROR(
      FromCuda(library_.stream_create(&stream_, cudaStreamNonBlocking),
               "cudaStreamCreateWithFlags"));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = library_.comm_init_rank_config(
      &communicator_, mesh.world_size(), id, mesh.rank(), &config);
  if (result != ncclInProgress) {
    RETURN_IF_ERROR(FromNccl(library_, result, "ncclCommInitRankConfig"));
  }
  RETURN_IF_ERROR(
      Await(mesh, "NCCL to connect all ranks", [this] { return IsReady(); }));
  is_whole_ = true;
  return absl::OkStatus();
}

absl::Status Communicator::Run(Mesh& mesh, const Issue& issue,
                               cudaStream_t stream) {
  if (!is_whole_) return HasEnded();
  const kernels::DeviceScope scope({DeviceKind::kCuda, device_});
  lost_ = {};
  const ncclResult_t result =
      issue(communicator_, stream == nullptr ? stream_ : stream);
  if (result != ncclInProgress) {
    RETURN_IF_ERROR(FromNccl(library_, result, "handing a collective over"));
  }
  // Before that nothing may be asked of the stream.
  RETURN_IF_ERROR(Await(mesh, "NCCL to begin", [this] { return IsReady(); }));
  if (stream != nullptr) return absl::OkStatus();
  return Await(mesh, "its GPU to finish", [this] { return IsStreamDone(); });
}

absl::Status Communicator::Check(Mesh& mesh) {
  if (!is_whole_) return HasEnded();
  const TimePoint now = Clock::now();
  RETURN_IF_ERROR(IsReady().status());
  RETURN_IF_ERROR(mesh.Listen(now));
  return lost_.Check(mesh, now);
}

absl::Status Communicator::Await(Mesh& mesh, const std::string& what,
                                 const Poll& is_done) {
  const TimePoint start = Clock::now();
  const TimePoint deadline = start + mesh.options().timeout;
  LostPeers lost;
  while (true) {
    ASSIGN_OR_RETURN(const bool done, is_done());
    if (done) return absl::OkStatus();
    const TimePoint now = Clock::now();
    if (now >= deadline) return mesh.TimedOut(what);
    // Short collectives are polled for, long ones slept for.
    const Duration nap = std::min<Duration>(kLongestNap, (now - start) / 16);
    RETURN_IF_ERROR(mesh.Listen(std::min(deadline, now + nap)));
    RETURN_IF_ERROR(lost.Check(mesh, now));
  }
}

absl::StatusOr<bool> Communicator::IsReady() const {
  ncclResult_t state = ncclSuccess;
  RETURN_IF_ERROR(FromNccl(library_,
                           library_.comm_get_async_error(communicator_, &state),
                           "ncclCommGetAsyncError"));
  if (state == ncclInProgress) return false;
  RETURN_IF_ERROR(FromNccl(library_, state, "the communicator"));
  return true;
}

absl::StatusOr<bool> Communicator::IsStreamDone() const {
  ASSIGN_OR_RETURN(const bool is_ready, IsReady());
  if (!is_ready) return false;
  const cudaError_t error = library_.stream_query(stream_);
  if (error == cudaSuccess) return true;
  (void)library_.get_last_error();
  if (error == cudaErrorNotReady) return false;
  return FromCuda(error, "cudaStreamQuery");
}

}  // namespace telegrad::collective
