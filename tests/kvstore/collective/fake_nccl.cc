#include "tests/kvstore/collective/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/nccl/nccl_group.h"
#include "kvstore/collective/reduce.h"

namespace {

enum class Kind {
  kReduce,
  kReduceTo,
  kReduceScatter,
  kGather,
  kBroadcast,
  kSend,
  kRecv
};

struct Call {
  Kind kind = Kind::kReduce;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // or root
};

// What the ranks of one communicator hand in; calls of one group are a batch.
struct Clique {
  using Batch = std::vector<Call>;
  size_t num_ranks = 0;
  std::vector<std::map<int, Batch>> waiting;  // by rank, by number of the batch
  int num_done = 0;
};

telegrad::Mutex mutex;
std::map<std::string, std::shared_ptr<Clique>> cliques ABSL_GUARDED_BY(mutex);
int num_ids ABSL_GUARDED_BY(mutex) = 0;

thread_local int group_depth = 0;
thread_local std::vector<Call> grouped;
thread_local ncclComm_t grouped_by = nullptr;

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int num_handed_in = 0;
  int polls_until_ready = 2;
};

struct CUstream_st {
  ncclComm_t used_by = nullptr;
};

namespace telegrad::testing {
namespace {

Dtype TypeOf(ncclDataType_t type) {
  for (int i = 0; i < static_cast<int>(kDtypes.size()); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    if (collective::NcclType(dtype) == type) return dtype;  // uint8, not bool
  }
  return Dtype::kFloat32;
}

ReduceOp OpOf(ncclRedOp_t op) {
  if (op == ncclSum) return ReduceOp::kSum;
  if (op == ncclProd) return ReduceOp::kProduct;
  return op == ncclMin ? ReduceOp::kMin : ReduceOp::kMax;
}

size_t BytesOf(ncclDataType_t type) { return SizeOf(TypeOf(type)); }

void Reduce(const std::vector<Call>& calls, bool scatters) {
  const Call& first = calls[0];
  const size_t bytes = first.count * BytesOf(first.type);
  const size_t blocks = scatters ? calls.size() : 1;
  std::vector<std::byte> all(blocks * bytes);
  std::memcpy(all.data(), first.in, all.size());
  for (size_t rank = 1; rank < calls.size(); ++rank) {
    collective::Reduce(TypeOf(first.type), OpOf(first.op), calls[rank].in,
                       blocks * first.count, all.data());
  }
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    if (first.kind == Kind::kReduceTo && static_cast<int>(rank) != first.peer) {
      continue;
    }
    std::memcpy(calls[rank].out, all.data() + (scatters ? rank * bytes : 0),
                bytes);
  }
}

void Gather(const std::vector<Call>& calls) {
  const size_t bytes = calls[0].count * BytesOf(calls[0].type);
  for (const Call& to : calls) {
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      std::memmove(static_cast<char*>(to.out) + rank * bytes, calls[rank].in,
                   bytes);
    }
  }
}

void Execute(const std::vector<Call>& calls) {
  const Call& first = calls[0];
  const bool scatters = first.kind == Kind::kReduceScatter;
  if (first.kind == Kind::kReduce || first.kind == Kind::kReduceTo ||
      scatters) {
    Reduce(calls, scatters);
  } else if (first.kind == Kind::kGather) {
    Gather(calls);
  } else {
    const Call& root = calls[static_cast<size_t>(first.peer)];
    for (const Call& call : calls) {
      std::memmove(call.out, root.in, call.count * BytesOf(call.type));
    }
  }
}

// A send goes to the receive that names its rank.
void Exchange(const std::vector<Clique::Batch>& batches) {
  for (size_t from = 0; from < batches.size(); ++from) {
    for (const Call& send : batches[from]) {
      if (send.kind != Kind::kSend) continue;
      for (const Call& recv : batches[static_cast<size_t>(send.peer)]) {
        if (recv.kind != Kind::kRecv || recv.peer != static_cast<int>(from)) {
          continue;
        }
        std::memcpy(recv.out, send.in, send.count * BytesOf(send.type));
      }
    }
  }
}

void ExecuteWhatAllHandedIn(Clique& clique)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  std::vector<Clique::Batch> batches;
  for (auto& waiting : clique.waiting) {
    const auto found = waiting.find(clique.num_done);
    if (found == waiting.end()) return;
    batches.push_back(found->second);
  }
  if (batches[0][0].kind == Kind::kSend || batches[0][0].kind == Kind::kRecv) {
    Exchange(batches);
  } else {
    for (size_t i = 0; i < batches[0].size(); ++i) {
      std::vector<Call> calls;
      for (const Clique::Batch& batch : batches) calls.push_back(batch[i]);
      Execute(calls);
    }
  }
  ++clique.num_done;
}

ncclResult_t HandIn(ncclComm_t comm, std::vector<Call> batch) {
  MutexLock lock(&mutex);
  Clique& clique = *comm->clique;
  clique.waiting[static_cast<size_t>(comm->rank)][comm->num_handed_in++] =
      std::move(batch);
  comm->polls_until_ready = 2;
  if (!Faults().never_finishes) ExecuteWhatAllHandedIn(clique);
  return ncclInProgress;
}

ncclResult_t Take(ncclComm_t comm, cudaStream_t stream, const Call& call) {
  if (Faults().refuses_calls == comm->rank) return ncclInvalidUsage;
  stream->used_by = comm;
  if (group_depth == 0) return HandIn(comm, {call});
  grouped.push_back(call);
  grouped_by = comm;
  return ncclSuccess;
}

ncclResult_t GetUniqueId(ncclUniqueId* id) {
  MutexLock lock(&mutex);
  *id = {};
  const std::string text = "fake " + std::to_string(++num_ids);
  std::copy(text.begin(), text.end(), id->internal);
  return ncclSuccess;
}

ncclResult_t Init(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank,
                  ncclConfig_t* config) {
  if (config->blocking != 0 || rank >= num_ranks) return ncclInvalidArgument;
  MutexLock lock(&mutex);
  auto& clique = cliques[std::string(id.internal, sizeof(id.internal))];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->num_ranks = static_cast<size_t>(num_ranks);
  clique->waiting.resize(clique->num_ranks);
  *comm = new ncclComm{.clique = clique, .rank = rank};
  return ncclInProgress;
}

ncclResult_t GetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  MutexLock lock(&mutex);
  *state = ncclSuccess;
  if (Faults().never_connects || comm->polls_until_ready > 0) {
    --comm->polls_until_ready;
    *state = ncclInProgress;
  } else if (Faults().loses_a_peer == comm->rank && comm->num_handed_in > 0) {
    *state = ncclRemoteError;
  }
  return ncclSuccess;
}

ncclResult_t Destroy(ncclComm_t comm) {
  ++Faults().num_destroyed;
  delete comm;
  return ncclSuccess;
}

ncclResult_t Abort(ncclComm_t comm) {
  ++Faults().num_aborted;
  delete comm;
  return ncclSuccess;
}

ncclResult_t GroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  std::vector<Call> batch;
  batch.swap(grouped);
  if (batch.empty()) return ncclSuccess;
  return HandIn(grouped_by, std::move(batch));
}

// Not ready until the communicator is: so nothing may ask before.
cudaError_t StreamQuery(cudaStream_t stream) {
  MutexLock lock(&mutex);
  const ncclComm* const comm = stream->used_by;
  if (comm == nullptr) return cudaSuccess;
  if (comm->polls_until_ready > 0) return cudaErrorInvalidValue;
  return comm->clique->num_done == comm->num_handed_in ? cudaSuccess
                                                       : cudaErrorNotReady;
}

void AddNccl(collective::Library& fake) {
  fake.get_version = [](int* version) {
    *version = Faults().version;
    return ncclSuccess;
  };
  fake.get_unique_id = &GetUniqueId;
  fake.comm_init_rank_config = &Init;
  fake.comm_get_async_error = &GetAsyncError;
  fake.comm_finalize = [](ncclComm_t) { return ncclInProgress; };
  fake.comm_destroy = &Destroy;
  fake.comm_abort = &Abort;
  fake.get_error_string = [](ncclResult_t) { return "the fake's error"; };
  fake.group_start = [] {
    ++group_depth;
    return ncclSuccess;
  };
  fake.group_end = &GroupEnd;
}

void AddCollectives(collective::Library& fake) {
  fake.all_reduce = [](const void* in, void* out, size_t count,
                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                       cudaStream_t stream) {
    return Take(comm, stream, {Kind::kReduce, in, out, count, type, op});
  };
  fake.reduce_scatter = [](const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    return Take(comm, stream, {Kind::kReduceScatter, in, out, count, type, op});
  };
  fake.reduce = [](const void* in, void* out, size_t count, ncclDataType_t type,
                   ncclRedOp_t op, int root, ncclComm_t comm,
                   cudaStream_t stream) {
    return Take(comm, stream,
                {Kind::kReduceTo, in, out, count, type, op, root});
  };
  fake.all_gather = [](const void* in, void* out, size_t count,
                       ncclDataType_t type, ncclComm_t comm,
                       cudaStream_t stream) {
    return Take(comm, stream, {Kind::kGather, in, out, count, type});
  };
  fake.broadcast = [](const void* in, void* out, size_t count,
                      ncclDataType_t type, int root, ncclComm_t comm,
                      cudaStream_t stream) {
    return Take(comm, stream,
                {Kind::kBroadcast, in, out, count, type, ncclSum, root});
  };
  fake.send = [](const void* in, size_t count, ncclDataType_t type, int to,
                 ncclComm_t comm, cudaStream_t stream) {
    return Take(comm, stream,
                {Kind::kSend, in, nullptr, count, type, ncclSum, to});
  };
  fake.recv = [](void* out, size_t count, ncclDataType_t type, int from,
                 ncclComm_t comm, cudaStream_t stream) {
    return Take(comm, stream,
                {Kind::kRecv, nullptr, out, count, type, ncclSum, from});
  };
}

void AddCuda(collective::Library& fake) {
  fake.get_device_count = [](int* count) {
    *count = Faults().num_devices;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  };
  fake.pointer_get_attributes = [](cudaPointerAttributes* attributes,
                                   const void*) {
    *attributes = {};
    attributes->type = Faults().has_only_host_memory
                           ? cudaMemoryTypeUnregistered
                           : cudaMemoryTypeDevice;
    return cudaSuccess;
  };
  fake.stream_create = [](cudaStream_t* stream, unsigned int) {
    ++Faults().num_streams;
    *stream = new CUstream_st;
    return cudaSuccess;
  };
  fake.stream_destroy = [](cudaStream_t stream) {
    --Faults().num_streams;
    delete stream;
    return cudaSuccess;
  };
  fake.stream_query = &StreamQuery;
  fake.get_last_error = [] { return cudaSuccess; };
}

}  // namespace

FakeFaults& Faults() {
  static FakeFaults faults;
  return faults;
}

void ResetFaults() {
  FakeFaults& faults = Faults();
  faults.num_devices = 8;
  faults.version = 22809;
  faults.never_connects = false;
  faults.never_finishes = false;
  faults.has_only_host_memory = false;
  faults.refuses_calls = -1;
  faults.loses_a_peer = -1;
  faults.num_aborted = 0;
  faults.num_destroyed = 0;
  faults.num_streams = 0;
}

collective::Library FakeNccl() {
  collective::Library fake;
  AddNccl(fake);
  AddCollectives(fake);
  AddCuda(fake);
  return fake;
}

}  // namespace telegrad::testing
