// Copies between a GPU and pinned memory as the staged transport makes them:
// verifies them, then measures both directions at once beside the runtime's
// plain calls, and these of memory on each NUMA node. Exit: 0 all equal, 1 a
// difference or an error, 77 no device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "kernels/cuda/device_copy.h"
#include "kernels/cuda/pinned.h"

namespace telegrad {
namespace {

using kernels::DeviceCopier;

constexpr size_t kBytes = size_t{4} << 20;  // copied by one call
constexpr int kCopies = 64;                 // calls measured, each way
constexpr int kRounds = 7;

void Require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

Bytes OnDevice(void* memory, size_t size) {
  return {memory, size, {DeviceKind::kCuda, 0}};
}

bool WaitFor(DeviceCopier& copier, DeviceCopier::Ticket ticket) {
  DeviceCopier::State state;
  do {
    state = copier.Poll(ticket);
  } while (state == DeviceCopier::State::kRunning);
  return state == DeviceCopier::State::kDone;
}

// Many at once, to the device and back, of sizes beside one another.
bool Verify(DeviceCopier& copier, std::byte* device) {
  for (size_t size : {size_t{1}, size_t{4095}, size_t{65536}, kBytes}) {
    std::byte* const from = copier.AllocateHost(size);
    std::byte* const to = copier.AllocateHost(size);
    if (from == nullptr || to == nullptr) return false;
    std::vector<DeviceCopier::Ticket> tickets;
    for (size_t i = 0; i < size; ++i) {
      from[i] = static_cast<std::byte>(i * 7 + i / 256);
    }
    if (!WaitFor(copier, copier.Start(OnDevice(device, size), {from, size}))) {
      return false;
    }
    const size_t part = (size + 15) / 16;
    for (size_t begin = 0; begin < size; begin += part) {
      const size_t bytes = std::min(part, size - begin);
      tickets.push_back(
          copier.Start({to + begin, bytes}, OnDevice(device + begin, bytes)));
    }
    bool is_well = true;
    for (const auto ticket : tickets) is_well &= WaitFor(copier, ticket);
    is_well &= std::memcmp(from, to, size) == 0;
    copier.FreeHost(from);
    copier.FreeHost(to);
    std::printf("copies of %zu bytes: %s\n", size, is_well ? "equal" : "WRONG");
    if (!is_well) return false;
  }
  if (WaitFor(copier, 1'000'000) ||
      copier.Poll(0) != DeviceCopier::State::kFailed) {
    std::printf("tickets that nobody has are not refused\n");
    return false;
  }
  return true;
}

struct Arrays {
  std::byte* up;
  std::byte* down;
  std::byte* device_up;
  std::byte* device_down;
};

double ByCopier(DeviceCopier& copier, const Arrays& arrays) {
  const TimePoint start = Clock::now();
  std::vector<DeviceCopier::Ticket> tickets;
  for (int i = 0; i < kCopies; ++i) {
    tickets.push_back(
        copier.Start(OnDevice(arrays.device_up, kBytes), {arrays.up, kBytes}));
    tickets.push_back(copier.Start({arrays.down, kBytes},
                                   OnDevice(arrays.device_down, kBytes)));
  }
  for (const auto ticket : tickets) {
    if (!WaitFor(copier, ticket)) std::exit(1);
  }
  return SecondsSince(start);
}

// The limit: the same bytes on two streams, waited for once.
double ByRuntime(cudaStream_t up, cudaStream_t down, const Arrays& arrays) {
  const TimePoint start = Clock::now();
  for (int i = 0; i < kCopies; ++i) {
    Require(cudaMemcpyAsync(arrays.device_up, arrays.up, kBytes,
                            cudaMemcpyHostToDevice, up),
            "copy");
    Require(cudaMemcpyAsync(arrays.down, arrays.device_down, kBytes,
                            cudaMemcpyDeviceToHost, down),
            "copy");
  }
  Require(cudaStreamSynchronize(up), "wait");
  Require(cudaStreamSynchronize(down), "wait");
  return SecondsSince(start);
}

void Measure(DeviceCopier& copier, std::byte* device) {
  const Arrays arrays = {copier.AllocateHost(kBytes),
                         copier.AllocateHost(kBytes), device, device + kBytes};
  cudaStream_t up = nullptr;
  cudaStream_t down = nullptr;
  Require(cudaStreamCreateWithFlags(&up, cudaStreamNonBlocking), "stream");
  Require(cudaStreamCreateWithFlags(&down, cudaStreamNonBlocking), "stream");
  double ours = 1e9;
  double runtime = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    ours = std::min(ours, ByCopier(copier, arrays));
    runtime = std::min(runtime, ByRuntime(up, down, arrays));
  }
  const double bytes = 2.0 * kCopies * static_cast<double>(kBytes);
  std::printf(
      "both ways at once: %.1f GB/s, %.1f GB/s by the runtime alone (%.3f)\n",
      1e-9 * bytes / ours, 1e-9 * bytes / runtime, runtime / ours);
}

// What the store's choice of a node is worth (topology/numa.h).
void MeasureNodes(int num_nodes, std::byte* device) {
  cudaStream_t up = nullptr;
  cudaStream_t down = nullptr;
  Require(cudaStreamCreateWithFlags(&up, cudaStreamNonBlocking), "stream");
  Require(cudaStreamCreateWithFlags(&down, cudaStreamNonBlocking), "stream");
  for (int node = 0; node < num_nodes; ++node) {
    std::byte* const from = kernels::cuda::MapPinned(2 * kBytes, node);
    if (from == nullptr) continue;
    const Arrays arrays = {from, from + kBytes, device, device + kBytes};
    double seconds = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      seconds = std::min(seconds, ByRuntime(up, down, arrays));
    }
    std::printf("memory on NUMA node %d: %.1f GB/s\n", node,
                2e-9 * kCopies * static_cast<double>(kBytes) / seconds);
    kernels::cuda::UnmapPinned(from, 2 * kBytes);
  }
}

int Main(bool is_verify_only, int num_nodes) {
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
    std::printf("no CUDA device\n");
    return 77;
  }
  void* device = nullptr;
  Require(cudaMalloc(&device, 2 * kBytes), "memory of the device");
  const auto copier = kernels::cuda::MakeCopier();
  if (!Verify(*copier, static_cast<std::byte*>(device))) {
    std::printf("failed: %s\n", copier->error().c_str());
    return 1;
  }
  if (is_verify_only) return 0;
  Measure(*copier, static_cast<std::byte*>(device));
  MeasureNodes(num_nodes, static_cast<std::byte*>(device));
  return 0;
}

}  // namespace
}  // namespace telegrad

// Arguments: none; --verify-only; or --nodes NUMBER, of NUMA nodes.
int main(int argc, char** argv) {
  const bool has_nodes = argc > 2 && std::strcmp(argv[1], "--nodes") == 0;
  return telegrad::Main(argc > 1 && std::strcmp(argv[1], "--verify-only") == 0,
                        has_nodes ? std::atoi(argv[2]) : 0);
}
