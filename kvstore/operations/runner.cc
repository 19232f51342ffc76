#include "kvstore/operations/runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/operations/adasum.h"
#include "kvstore/operations/scale.h"

namespace telegrad::operations {
namespace {

// In the words of Horovod's timeline.
constexpr const char* kNegotiate = "NEGOTIATE";
constexpr const char* kQueue = "QUEUE";
constexpr const char* kCycle = "CYCLE";
constexpr const char* kMemcpyIn = "MEMCPY_IN_FUSION_BUFFER";
constexpr const char* kMemcpyOut = "MEMCPY_OUT_FUSION_BUFFER";
constexpr const char* kMemcpyToHost = "MEMCPY_IN_HOST_BUFFER";
constexpr const char* kMemcpyFromHost = "MEMCPY_OUT_HOST_BUFFER";

const char* TransferOf(Kind kind) {
  constexpr const char* kNames[] = {"ALLREDUCE",     "ALLGATHER", "BROADCAST",
                                    "REDUCESCATTER", "ALLTOALL",  "BARRIER",
                                    "JOIN"};
  return kind <= Kind::kJoin ? kNames[static_cast<size_t>(kind)]
                             : "PROCESS_SET";
}

size_t ElemsOf(const Request& request) {
  return static_cast<size_t>(NumElems(request.shape));
}

ReduceOp ReductionOf(Op op) {
  return op == Op::kAverage ? ReduceOp::kSum : static_cast<ReduceOp>(op);
}

size_t SumOf(const std::vector<size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

// How one ends that has run.
absl::Status StatusOf(const Submission& mine) {
  if (mine.out == nullptr || mine.result == mine.out ||
      mine.request.kind > Kind::kAlltoall) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      ToString(mine.request.kind), " \"", mine.request.name, "\": out has ",
      mine.out_elems, " elements, the result ", mine.num_elems));
}

// Whether a group of GPUs does it, where there is one: not what their kernels
// cannot multiply.
bool GoesByGroup(const Request& request) {
  if (request.op == Op::kAdasum) return false;
  const bool is_multiplied = request.prescale != 1 || request.postscale != 1 ||
                             request.op == Op::kAverage;
  return !is_multiplied || DevicePlace::Multiplies(request.dtype);
}

// A process set's group counts ranks by their places in it.
absl::Status InSet(const std::vector<int>& ranks, const absl::Status& error) {
  absl::Status named(error.code(),
                     absl::StrCat("process set of ", RanksText(ranks),
                                  ", counted from 0 here: ", error.message()));
  error.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    named.SetPayload(type, payload);
  });
  return named;
}

// A join's and a process set's result.
absl::Status PlaceNumber(int64_t value, Submission& mine) {
  ASSIGN_OR_RETURN(mine.kept, Buffer::Create(sizeof(value)));
  std::memcpy(mine.kept.data(), &value, sizeof(value));
  mine.result = mine.kept.data();
  mine.num_elems = 1;
  return absl::OkStatus();
}

}  // namespace

Runner::Runner(std::unique_ptr<Group> world, Queue& queue, Devices& devices,
               DeviceGroups groups)
    : queue_(queue),
      devices_(devices),
      rank_(world->rank()),
      groups_(std::move(groups)) {
  ProcessSet& all = sets_[0];
  all.member = static_cast<size_t>(rank_);
  all.ranks.resize(static_cast<size_t>(world->world_size()));
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  all.group = std::move(world);
}

void Runner::Note(const std::vector<Shared>& mine, const char* what,
                  TimePoint begin) {
  if (!timeline_.is_on()) return;
  const TimePoint now = Clock::now();
  MutexLock lock(&mutex_);
  for (const Shared& submission : mine) {
    if (submission == nullptr) continue;
    const std::string& name = submission->request.name;
    const auto key =
        keys_.try_emplace(name, static_cast<Key>(names_.size())).first;
    if (key->second == names_.size()) names_.push_back(name);
    const bool is_queue = what == kQueue;
    if (is_queue) {
      timeline_.Note({key->second, Timeline::kWhole, kNegotiate,
                      submission->submitted, submission->decided});
    }
    timeline_.Note({key->second, Timeline::kWhole, what,
                    is_queue ? submission->decided : begin, now});
  }
}

void Runner::NoteCycle(TimePoint begin) {
  NoteSpan(&timeline_, Timeline::kNoKey, Timeline::kWhole, kCycle, begin);
}

std::string Runner::Trace() {
  uint64_t num_left_out = 0;
  const std::vector<Timeline::Span> spans = timeline_.Take(&num_left_out);
  MutexLock lock(&mutex_);
  return ChromeTrace(spans, rank_, absl::StrCat("operations of rank ", rank_),
                     names_, num_left_out);
}

absl::Status Runner::UseStore(std::shared_ptr<KVStore> store,
                              Duration timeout) {
  if (has_store()) {
    return absl::FailedPreconditionError("operations have a store already");
  }
  made_coded_ = std::make_unique<Coded>(
      std::move(store), timeout, devices_,
      [this](const Shared& mine, TimePoint begin, const absl::Status& status) {
        FinishCoded(mine, begin, status);
      });
  coded_ = made_coded_.get();
  return absl::OkStatus();
}

void Runner::FinishCoded(const Shared& mine, TimePoint begin,
                         const absl::Status& status) {
  Note({mine}, TransferOf(mine->request.kind), begin);
  queue_.Finish({mine}, [&](const Submission& one) {
    return status.ok() ? StatusOf(one) : status;
  });
}

void Runner::Drain() {
  if (has_store()) coded_.load()->Drain();
}

absl::Status Runner::Run(const std::vector<Response>& batch,
                         TimePoint decided) {
  const Request& request = batch.front().agreed->any();
  std::vector<int64_t> handles;
  handles.reserve(batch.size());
  for (const Response& response : batch) handles.push_back(response.handle);
  const std::vector<Shared> mine = queue_.Find(handles);
  for (const Shared& submission : mine) {
    if (submission != nullptr) submission->decided = decided;
  }
  Note(mine, kQueue, {});
  ProcessSet& set = sets_.at(request.set);
  const absl::Status ran = RunBatch(set, batch, mine);
  if (!ran.ok()) return request.set == 0 ? ran : InSet(set.ranks, ran);
  if (!request.codec.empty()) return absl::OkStatus();  // it goes on
  queue_.Finish(mine, &StatusOf);
  return absl::OkStatus();
}

absl::Status Runner::RunBatch(ProcessSet& set,
                              const std::vector<Response>& batch,
                              const std::vector<Shared>& mine) {
  const Request& request = batch.front().agreed->any();
  if (!request.codec.empty()) {
    Coded* const coded = coded_;
    if (coded != nullptr) return coded->Run(batch, mine);
    return absl::FailedPreconditionError(
        absl::StrCat("codec ", request.codec, " after a join without a store"));
  }
  if (IsOnDevice(request) && request.kind <= Kind::kAlltoall) {
    return RunOnDevices(set, batch, mine);
  }
  HostPlace place(*set.group, fusion_);
  return RunIn(place, set, batch, mine);
}

// All members decide alike: by what they all know of the requests, and have
// agreed on about their GPUs. Who has joined has no array.
absl::Status Runner::RunOnDevices(ProcessSet& set, const Batch& batch,
                                  const Own& mine) {
  const Request& request = batch.front().agreed->any();
  std::vector<int> devices;
  for (const auto& each : batch.front().agreed->requests) {
    if (each == nullptr) return RunThroughHost(set, batch, mine);
    devices.push_back(each->device);
  }
  Group* group = nullptr;
  if (GoesByGroup(request)) {
    ASSIGN_OR_RETURN(group, groups_.Find(request.set, *set.group, devices));
  }
  if (group == nullptr) return RunThroughHost(set, batch, mine);
  ASSIGN_OR_RETURN(DevicePlace* const place,
                   devices_.Find(devices[set.member]));
  place->Use(group);
  for (const Shared& each : mine) place->Follow(*each);
  const absl::Status ran = RunIn(*place, set, batch, mine);
  return ran.ok() ? place->Finish() : ran;
}

absl::Status Runner::RunThroughHost(ProcessSet& set, const Batch& batch,
                                    const Own& mine) {
  HostPlace host(*set.group, fusion_);
  const auto own = std::find_if(mine.begin(), mine.end(), [](const auto& each) {
    return each != nullptr;
  });
  if (own == mine.end()) return RunIn(host, set, batch, mine);
  ASSIGN_OR_RETURN(DevicePlace* const place,
                   devices_.Find((*own)->request.device));
  TimePoint begin = Clock::now();
  ASSIGN_OR_RETURN(const Own copies, place->CopyDown(mine));
  Note(mine, kMemcpyToHost, begin);
  RETURN_IF_ERROR(RunIn(host, set, batch, copies));
  begin = Clock::now();
  RETURN_IF_ERROR(place->CopyUp(copies, mine));
  Note(mine, kMemcpyFromHost, begin);
  return absl::OkStatus();
}

absl::Status Runner::RunIn(Place& place, ProcessSet& set, const Batch& batch,
                           const Own& mine) {
  const Request& request = batch.front().agreed->any();
  if (request.kind == Kind::kAllreduce && request.op != Op::kAdasum) {
    return Allreduce(place, set, batch, mine);
  }
  if (batch.size() > 1) return GatherFused(place, set, batch, mine);
  const TimePoint begin = Clock::now();
  RETURN_IF_ERROR(RunOne(place, set, batch.front(), mine.front().get()));
  Note(mine, TransferOf(request.kind), begin);
  return absl::OkStatus();
}

absl::Status Runner::RunOne(Place& place, ProcessSet& set,
                            const Response& response, Submission* mine) {
  const Agreed& agreed = *response.agreed;
  const Request& request = agreed.any();
  switch (request.kind) {
    case Kind::kAllreduce:
      return RunAdasum(place, request, mine);
    case Kind::kJoin:
      return mine == nullptr ? absl::OkStatus()
                             : PlaceNumber(response.value, *mine);
    case Kind::kAddSet:
      return AddSet(response, mine);
    case Kind::kRemoveSet:
      if (response.value > 0) {
        groups_.Forget(static_cast<int>(response.value));
        sets_.erase(static_cast<int>(response.value));
      }
      return absl::OkStatus();
    case Kind::kBarrier:
    case Kind::kExpire:
      return absl::OkStatus();
    default:
      break;
  }
  if (mine == nullptr) return absl::InternalError("a request that nobody made");
  switch (request.kind) {
    case Kind::kAllgather:
      return Allgather(place, agreed, mine);
    case Kind::kBroadcast:
      return Broadcast(place, set, request, mine);
    case Kind::kReduceScatter:
      return ReduceScatter(place, set, request, mine);
    default:
      return Alltoall(place, set, agreed, mine);
  }
}

absl::Status Runner::Reduce(Place& place, const ProcessSet& set,
                            const Request& request, size_t count,
                            std::byte* data) {
  place.Multiply(request.dtype, request.prescale, count, data);
  if (count > 0) {
    ASSIGN_OR_RETURN(Group* const group, place.Ready());
    RETURN_IF_ERROR(
        group->Allreduce(data, count, request.dtype, ReductionOf(request.op)));
  }
  const double members =
      request.op == Op::kAverage ? static_cast<double>(set.ranks.size()) : 1;
  place.Multiply(request.dtype, request.postscale / members, count, data);
  return absl::OkStatus();
}

absl::Status Runner::Allreduce(Place& place, ProcessSet& set,
                               const Batch& batch, const Own& mine) {
  Submission* const only = batch.size() == 1 ? mine.front().get() : nullptr;
  if (only == nullptr) return ReduceFused(place, set, batch, mine);
  const size_t count = ElemsOf(only->request);
  ASSIGN_OR_RETURN(std::byte* const out, place.ResultOf(*only, count));
  place.Copy(only->in, count * SizeOf(only->request.dtype), out);
  const TimePoint begin = Clock::now();
  RETURN_IF_ERROR(Reduce(place, set, only->request, count, out));
  Note(mine, TransferOf(Kind::kAllreduce), begin);
  return absl::OkStatus();
}

absl::Status Runner::ReduceFused(Place& place, ProcessSet& set,
                                 const Batch& batch, const Own& mine) {
  const Request& request = batch.front().agreed->any();
  const size_t size = SizeOf(request.dtype);
  size_t count = 0;
  for (const Response& response : batch) {
    count += ElemsOf(response.agreed->any());
  }
  ASSIGN_OR_RETURN(std::byte* const all, place.Reserve(count * size));
  TimePoint begin = Clock::now();
  std::byte* at = all;
  for (size_t i = 0; i < batch.size(); ++i) {
    const size_t bytes = ElemsOf(batch[i].agreed->any()) * size;
    if (mine[i] != nullptr) {
      place.Copy(mine[i]->in, bytes, at);
    } else if (bytes > 0) {
      std::memset(at, 0, bytes);  // it has joined: host memory
    }
    at += bytes;
  }
  Note(mine, kMemcpyIn, begin);
  begin = Clock::now();
  RETURN_IF_ERROR(Reduce(place, set, request, count, all));
  Note(mine, TransferOf(Kind::kAllreduce), begin);
  begin = Clock::now();
  at = all;
  for (size_t i = 0; i < batch.size(); ++i) {
    const size_t elems = ElemsOf(batch[i].agreed->any());
    if (mine[i] != nullptr) {
      ASSIGN_OR_RETURN(std::byte* const out, place.ResultOf(*mine[i], elems));
      place.Copy(at, elems * size, out);
    }
    at += elems * size;
  }
  Note(mine, kMemcpyOut, begin);
  return absl::OkStatus();
}

absl::Status Runner::RunAdasum(Place& place, const Request& request,
                               Submission* mine) {
  if (mine == nullptr) return absl::InternalError("adasum after a join");
  const size_t count = ElemsOf(request);
  ASSIGN_OR_RETURN(std::byte* const out, place.ResultOf(*mine, count));
  if (count == 0) return absl::OkStatus();
  place.Copy(mine->in, count * SizeOf(request.dtype), out);
  place.Multiply(request.dtype, request.prescale, count, out);
  ASSIGN_OR_RETURN(Group* const group, place.Ready());
  RETURN_IF_ERROR(Adasum(*group, request.dtype, count, out));
  place.Multiply(request.dtype, request.postscale, count, out);
  return absl::OkStatus();
}

absl::Status Runner::Allgather(Place& place, const Agreed& agreed,
                               Submission* mine) {
  std::vector<size_t> counts;
  for (const auto& request : agreed.requests) {
    mine->rows.push_back(request->shape[0]);
    counts.push_back(ElemsOf(*request));
  }
  const size_t total = SumOf(counts);
  ASSIGN_OR_RETURN(std::byte* const out, place.ResultOf(*mine, total));
  if (total == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(Group* const group, place.Ready());
  return group->Allgatherv(mine->in, out, counts, mine->request.dtype);
}

// The fused allgather's blocks are each rank's tensors, one behind the other.
absl::Status Runner::GatherFused(Place& place, ProcessSet& set,
                                 const Batch& batch, const Own& mine) {
  const auto bytes_of = [&](size_t tensor, size_t member) {
    const Request& request = *batch[tensor].agreed->requests[member];
    return ElemsOf(request) * SizeOf(request.dtype);
  };
  std::vector<size_t> bytes(set.ranks.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    if (mine[i] == nullptr) {
      return absl::InternalError("a request that nobody made");
    }
    for (size_t m = 0; m < bytes.size(); ++m) bytes[m] += bytes_of(i, m);
  }
  const auto self = bytes.begin() + static_cast<std::ptrdiff_t>(set.member);
  ASSIGN_OR_RETURN(std::byte* const all, place.Reserve(SumOf(bytes)));
  TimePoint begin = Clock::now();
  std::byte* const own = all + std::accumulate(bytes.begin(), self, size_t{0});
  std::byte* at = own;
  for (size_t i = 0; i < batch.size(); ++i) {
    place.Copy(mine[i]->in, bytes_of(i, set.member), at);
    at += bytes_of(i, set.member);
  }
  Note(mine, kMemcpyIn, begin);
  begin = Clock::now();
  if (SumOf(bytes) > 0) {
    ASSIGN_OR_RETURN(Group* const group, place.Ready());
    RETURN_IF_ERROR(group->Allgatherv(own, all, bytes, Dtype::kUint8));
  }
  Note(mine, TransferOf(Kind::kAllgather), begin);
  begin = Clock::now();
  std::vector<std::byte*> outs;
  for (size_t i = 0; i < batch.size(); ++i) {
    size_t elems = 0;
    for (const auto& request : batch[i].agreed->requests) {
      mine[i]->rows.push_back(request->shape[0]);
      elems += ElemsOf(*request);
    }
    ASSIGN_OR_RETURN(std::byte* const out, place.ResultOf(*mine[i], elems));
    outs.push_back(out);
  }
  const std::byte* from = all;
  for (size_t m = 0; m < bytes.size(); ++m) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const size_t part = bytes_of(i, m);
      place.Copy(from, part, outs[i]);
      from += part;
      outs[i] += part;
    }
  }
  Note(mine, kMemcpyOut, begin);
  return absl::OkStatus();
}

absl::Status Runner::Broadcast(Place& place, ProcessSet& set,
                               const Request& request, Submission* mine) {
  const size_t count = ElemsOf(request);
  ASSIGN_OR_RETURN(std::byte* const out, place.ResultOf(*mine, count));
  if (count == 0) return absl::OkStatus();
  const auto root = static_cast<size_t>(
      std::find(set.ranks.begin(), set.ranks.end(), request.root) -
      set.ranks.begin());
  if (root == set.member) {
    place.Copy(mine->in, count * SizeOf(request.dtype), out);
  }
  ASSIGN_OR_RETURN(Group* const group, place.Ready());
  return group->Broadcast(out, count, request.dtype, static_cast<int>(root));
}

absl::Status Runner::ReduceScatter(Place& place, ProcessSet& set,
                                   const Request& request, Submission* mine) {
  std::vector<size_t> counts;
  const auto members = static_cast<int64_t>(set.ranks.size());
  for (int64_t i = 0; i < members; ++i) {
    counts.push_back(static_cast<size_t>(RowsOf(request.shape[0], members, i) *
                                         RowElems(request.shape)));
  }
  const size_t count = counts[set.member];
  ASSIGN_OR_RETURN(std::byte* const out, place.ResultOf(*mine, count));
  const size_t total = SumOf(counts);
  if (total == 0) return absl::OkStatus();
  const void* in = mine->in;
  Buffer scaled;
  if (request.prescale != 1) {
    const size_t bytes = total * SizeOf(request.dtype);
    ASSIGN_OR_RETURN(scaled, place.Make(bytes));
    place.Copy(in, bytes, scaled.data());
    place.Multiply(request.dtype, request.prescale, total, scaled.data());
    in = scaled.data();
  }
  ASSIGN_OR_RETURN(Group* const group, place.Ready());
  RETURN_IF_ERROR(group->ReduceScatterv(in, out, counts, request.dtype,
                                        ReductionOf(request.op)));
  place.Multiply(request.dtype,
                 request.op == Op::kAverage
                     ? request.postscale / static_cast<double>(members)
                     : request.postscale,
                 count, out);
  return absl::OkStatus();
}

absl::Status Runner::Alltoall(Place& place, ProcessSet& set,
                              const Agreed& agreed, Submission* mine) {
  const auto row = static_cast<size_t>(RowElems(mine->request.shape));
  std::vector<size_t> sends, receives;
  for (size_t i = 0; i < set.ranks.size(); ++i) {
    sends.push_back(static_cast<size_t>(mine->request.splits[i]) * row);
    mine->rows.push_back(agreed.requests[i]->splits[set.member]);
    receives.push_back(static_cast<size_t>(mine->rows.back()) * row);
  }
  ASSIGN_OR_RETURN(std::byte* const out,
                   place.ResultOf(*mine, SumOf(receives)));
  ASSIGN_OR_RETURN(Group* const group, place.Ready());
  return group->Alltoallv(mine->in, sends, out, receives, mine->request.dtype);
}

absl::Status Runner::AddSet(const Response& response, Submission* mine) {
  const std::vector<int64_t>& splits = response.agreed->any().splits;
  ProcessSet added;
  added.ranks.assign(splits.begin(), splits.end());
  added.member = static_cast<size_t>(
      std::find(added.ranks.begin(), added.ranks.end(), world().rank()) -
      added.ranks.begin());
  ASSIGN_OR_RETURN(added.group, world().Split(added.ranks));
  sets_[static_cast<int>(response.value)] = std::move(added);
  return mine == nullptr ? absl::OkStatus()
                         : PlaceNumber(response.value, *mine);
}

}  // namespace telegrad::operations
