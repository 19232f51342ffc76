#include <nccl.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/simt/device_memory.h"
#include "tests/simt/engine.h"
#include "tests/simt/threads.h"

// libnccl.so.2 of the emulated devices: what stores use of it, sums of float32
// and broadcasts, for ranks that are threads of one process. As NCCL's kernels
// do, a stream that has got to a collective waits there for those of all ranks.

namespace {

using telegrad::simt::DeviceAccess;
using telegrad::simt::Engine;
using telegrad::simt::EventState;

constexpr int kSum = -1;

struct Call {
  const void* in = nullptr;
  void* out = nullptr;
  size_t bytes = 0;
  int root = kSum;
};

// What ranks hand in as their n-th group of calls.
struct Round {
  explicit Round(size_t num_ranks)
      : calls(num_ranks), done(std::make_shared<EventState>(0)) {
    done->is_promised = true;
    done->pending.insert(++done->last);
  }
  std::vector<std::vector<Call>> calls;  // by rank
  size_t num_there = 0;                  // streams; with the engine's lock
  const std::shared_ptr<EventState> done;
};

struct Clique {
  std::mutex mutex;
  size_t num_ranks = 0;
  std::map<int, std::shared_ptr<Round>> rounds;  // that have not been done
};

std::mutex mutex;
std::map<std::string, std::shared_ptr<Clique>> cliques;
int num_ids = 0;

std::vector<char> Read(const Call& call) {
  std::vector<char> bytes(call.bytes);
  const DeviceAccess access(call.in, nullptr);
  std::memcpy(bytes.data(), call.in, call.bytes);
  return bytes;
}

void Add(const std::vector<char>& bytes, std::vector<char>& sum) {
  for (size_t i = 0; i < sum.size(); i += sizeof(float)) {
    float a = 0;
    float b = 0;
    std::memcpy(&a, &sum[i], sizeof(a));
    std::memcpy(&b, &bytes[i], sizeof(b));
    a += b;
    std::memcpy(&sum[i], &a, sizeof(a));
  }
}

// The i-th call of each rank, on its device.
void Execute(const Round& round, size_t i) {
  const int root = round.calls[0][i].root;
  std::vector<char> result =
      Read(round.calls[root == kSum ? 0 : static_cast<size_t>(root)][i]);
  for (size_t r = 1; r < round.calls.size() && root == kSum; ++r) {
    Add(Read(round.calls[r][i]), result);
  }
  for (const std::vector<Call>& calls : round.calls) {
    const DeviceAccess access(calls[i].out, nullptr);
    std::memcpy(calls[i].out, result.data(), result.size());
  }
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  size_t rank = 0;
  int device = 0;
  int num_handed_in = 0;
  int polls_until_ready = 2;
};

namespace {

// Calls between ncclGroupStart and ncclGroupEnd of this thread.
struct Group {
  int depth = 0;
  std::vector<Call> calls;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
thread_local Group group;

ncclResult_t HandIn(ncclComm_t comm, cudaStream_t stream,
                    std::vector<Call> calls) {
  const std::shared_ptr<Clique> clique = comm->clique;
  const int number = comm->num_handed_in++;
  std::shared_ptr<Round> round;
  {
    const std::lock_guard<std::mutex> lock(clique->mutex);
    std::shared_ptr<Round>& found = clique->rounds[number];
    if (found == nullptr) found = std::make_shared<Round>(clique->num_ranks);
    round = found;
    round->calls[comm->rank] = std::move(calls);
  }
  Engine::Get().Queue(
      stream,
      [clique, round, number] {
        if (++round->num_there < clique->num_ranks) return;
        for (size_t i = 0; i < round->calls[0].size(); ++i) Execute(*round, i);
        round->done->pending.clear();
        const std::lock_guard<std::mutex> lock(clique->mutex);
        clique->rounds.erase(number);
      },
      /*is_kernel=*/true);
  Engine::Get().WaitFor(stream, round->done);
  comm->polls_until_ready = 2;
  return ncclInProgress;
}

ncclResult_t Take(ncclComm_t comm, cudaStream_t stream, ncclDataType_t type,
                  const Call& call) {
  if (type != ncclFloat32 || stream->device != comm->device) {
    return ncclInvalidArgument;
  }
  if (group.depth == 0) return HandIn(comm, stream, {call});
  group.calls.push_back(call);
  group.comm = comm;
  group.stream = stream;
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard<std::mutex> lock(mutex);
  *id = {};
  std::memcpy(id->internal, &++num_ids, sizeof(num_ids));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0 || rank >= num_ranks) return ncclInvalidArgument;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& clique = cliques[std::string(id.internal, sizeof(id.internal))];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->num_ranks = static_cast<size_t>(num_ranks);
  *comm = new ncclComm{clique, static_cast<size_t>(rank),
                       telegrad::simt::CurrentDevice()};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->polls_until_ready > 0 ? ncclInProgress : ncclSuccess;
  if (comm->polls_until_ready > 0) --comm->polls_until_ready;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->polls_until_ready = 2;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

// Streams wait no more for what cannot be done without it.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::map<int, std::shared_ptr<Round>> rounds;
  {
    const std::lock_guard<std::mutex> lock(comm->clique->mutex);
    rounds = comm->clique->rounds;
  }
  for (const auto& [number, round] : rounds) Engine::Get().Pass(*round->done);
  return ncclCommDestroy(comm);
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an error of the emulated NCCL";
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group.depth > 0 || group.calls.empty()) return ncclSuccess;
  return HandIn(group.comm, group.stream, std::exchange(group.calls, {}));
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  if (op != ncclSum) return ncclInvalidArgument;
  return Take(comm, stream, type, {in, out, sizeof(float) * count});
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Take(comm, stream, type, {in, out, sizeof(float) * count, root});
}

// No store calls these.
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t,
                               ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return ncclInvalidUsage;
}

ncclResult_t ncclReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                        int, ncclComm_t, cudaStream_t) {
  return ncclInvalidUsage;
}

ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t,
                           ncclComm_t, cudaStream_t) {
  return ncclInvalidUsage;
}

ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t,
                      cudaStream_t) {
  return ncclInvalidUsage;
}

ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t,
                      cudaStream_t) {
  return ncclInvalidUsage;
}
