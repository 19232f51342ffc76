#include "python/c/group.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "kvstore/collective/collective.h"
#include "kvstore/group_options.h"
#include "kvstore/ticket_state.h"
#include "python/c/job.h"
#include "python/c/tensor.h"

using telegrad::Dtype;
using telegrad::MutexLock;
using telegrad::ReduceOp;
using telegrad::c::Give;

// A group of the job's workers. Thread-safe: calls wait for each other; what is
// started is done in that order.
struct telegrad_group {
 public:
  static absl::Status Create(telegrad_job* job,
                             std::unique_ptr<telegrad_group>* group);

  int rank() const { return rank_; }
  int size() const { return size_; }

  absl::Status Allreduce(const telegrad_tensor* data, int32_t op,
                         const char* algorithm);
  absl::Status Broadcast(const telegrad_tensor* data, int32_t root);
  absl::Status Allgather(const telegrad_tensor* in, const telegrad_tensor* out,
                         const uint64_t* counts);
  absl::Status ReduceScatter(const telegrad_tensor* in,
                             const telegrad_tensor* out, const uint64_t* counts,
                             int32_t op);
  absl::Status Alltoall(const telegrad_tensor* in, const uint64_t* sends,
                        const telegrad_tensor* out, const uint64_t* receives);
  absl::Status Barrier();
  absl::Status Split(const int32_t* ranks, int32_t num_ranks,
                     std::unique_ptr<telegrad_group>* part);
  absl::Status SetTimeout(double timeout_s);
  absl::Status Send(const telegrad_tensor* data, int32_t to, uint32_t tag);
  absl::Status Recv(const telegrad_tensor* data, int32_t from, uint32_t tag,
                    int32_t* sender);
  // What Run does, by the lane.
  telegrad::Ticket Start(int32_t operation, const telegrad_tensor* in,
                         const telegrad_tensor* out, int32_t number);

  const telegrad::c::Owner& owner() const { return owner_; }
  std::shared_ptr<telegrad::c::Verdict> verdict() const { return verdict_; }

 private:
  void Set(std::shared_ptr<telegrad::c::Verdict> verdict,
           std::shared_ptr<const bool> in_use,
           std::unique_ptr<telegrad::Group> group);
  absl::Status Run(int32_t operation, const telegrad_tensor* in,
                   const telegrad_tensor* out, int32_t number);

  telegrad::c::Owner owner_;
  std::shared_ptr<const bool> in_use_;  // of the job
  std::shared_ptr<telegrad::c::Verdict> verdict_;
  int rank_ = 0;
  int size_ = 1;
  telegrad::Group* courier_ = nullptr;  // group_, for calls from any thread
  telegrad::Mutex mutex_;
  std::unique_ptr<telegrad::Group> group_ ABSL_GUARDED_BY(mutex_);
  telegrad::Mutex lane_mutex_;
  // One thread for what was started; it ends before the group.
  std::unique_ptr<telegrad::ThreadPool> lane_ ABSL_GUARDED_BY(lane_mutex_);
};

// An operation that a group has started.
struct telegrad_work {
  telegrad::c::Owner owner;
  std::shared_ptr<telegrad::c::Verdict> verdict;
  telegrad::Ticket ticket;
};

namespace {

absl::Status CheckHostTensor(const telegrad_tensor* tensor) {
  if (tensor == nullptr) return absl::InvalidArgumentError("tensor is null");
  return telegrad::c::CheckHostTensor(*tensor, "collectives");
}

absl::Status CheckOp(int32_t op) {
  if (op >= TELEGRAD_SUM && op <= TELEGRAD_PRODUCT) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("op ", op, " is no telegrad_reduce_op"));
}

size_t CountOf(const telegrad_tensor* tensor) {
  return static_cast<size_t>(tensor->num_elems);
}

Dtype TypeOf(const telegrad_tensor* tensor) {
  return static_cast<Dtype>(tensor->dtype);
}

// Tensors in host memory of one type.
absl::Status CheckPair(const telegrad_tensor* in, const telegrad_tensor* out) {
  RETURN_IF_ERROR(CheckHostTensor(in));
  RETURN_IF_ERROR(CheckHostTensor(out));
  if (in->dtype == out->dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("from ", telegrad::ToString(TypeOf(in)), " into ",
                   telegrad::ToString(TypeOf(out)), ": one type"));
}

// `what` names the tensor.
absl::Status CheckElems(const char* what, const telegrad_tensor* tensor,
                        uint64_t expected) {
  if (CountOf(tensor) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " of ", tensor->num_elems, " elements: it takes ", expected));
}

// By rank; all of `tensor` where `counts` is null, which is for blocks of one
// size.
absl::StatusOr<std::vector<size_t>> CountsOf(const char* what,
                                             const telegrad_tensor* tensor,
                                             const uint64_t* counts, int n) {
  const auto num = static_cast<size_t>(n);
  if (counts == nullptr) {
    const size_t each = CountOf(tensor) / num;
    RETURN_IF_ERROR(CheckElems(what, tensor, each * num));
    return std::vector<size_t>(num, each);
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < num; ++i) {
    if (counts[i] > CountOf(tensor)) sum = UINT64_MAX;
    sum = std::max(sum, sum + counts[i]);  // stays at the largest
  }
  RETURN_IF_ERROR(CheckElems(what, tensor, sum));
  return std::vector<size_t>(counts, counts + num);
}

// Once for a job: what its plan has is not done.
void SayForced(const telegrad::GroupOptions& options) {
  if (options.rank != 0 || options.sums.empty() ||
      options.allreduce == telegrad::CollectiveAlgorithm::kAuto) {
    return;
  }
  telegrad::LogWarning("sums: TELEGRAD_ALLREDUCE has ",
                       ToString(options.allreduce),
                       " for all sizes; the plan had ", ToText(options.sums));
}

}  // namespace

absl::StatusOr<std::unique_ptr<telegrad::Group>> telegrad::c::ConnectGroup(
    telegrad_job* job, bool sends, GroupOptions* made_by) {
  if (job == nullptr) return absl::InvalidArgumentError("job is null");
  RETURN_IF_ERROR(job->owner().Check());
  WorkerGroup* const workers = job->group();
  if (workers == nullptr) {
    return absl::FailedPreconditionError("a group before the worker joins");
  }
  GroupOptions options = GroupOptionsOf(*workers);
  options.sends = sends;
  options.allreduce = job->allreduce();
  if (made_by != nullptr) *made_by = options;
  const int number = job->NextGroup();
  if (number == 0) SayForced(options);
  const std::string name = absl::StrCat("group ", number);
  absl::StatusOr<std::unique_ptr<Group>> connected =
      Group::Make(options, [&](const std::string& mine, auto) {
        return workers->Gather(name, mine);
      });
  absl::Status status = connected.status();
  // Who is connected may do something else, and others would wait for it.
  if (status.ok()) status = (*connected)->Barrier();
  if (status.ok()) return connected;
  // The others wait for us, unless the job goes on without one who died.
  if (!job->AwaitsEpoch()) workers->Fail(status);
  return status;
}

absl::Status telegrad_group::Create(telegrad_job* job,
                                    std::unique_ptr<telegrad_group>* group) {
  ASSIGN_OR_RETURN(std::unique_ptr<telegrad::Group> connected,
                   telegrad::c::ConnectGroup(job, /*sends=*/true));
  *group = std::make_unique<telegrad_group>();
  (*group)->Set(job->verdict(), job->InUse(), std::move(connected));
  return absl::OkStatus();
}

void telegrad_group::Set(std::shared_ptr<telegrad::c::Verdict> verdict,
                         std::shared_ptr<const bool> in_use,
                         std::unique_ptr<telegrad::Group> group) {
  verdict_ = std::move(verdict);
  in_use_ = std::move(in_use);
  rank_ = group->rank();
  size_ = group->world_size();
  courier_ = group.get();
  MutexLock lock(&mutex_);
  group_ = std::move(group);
}

absl::Status telegrad_group::Allreduce(const telegrad_tensor* data, int32_t op,
                                       const char* algorithm) {
  RETURN_IF_ERROR(CheckHostTensor(data));
  RETURN_IF_ERROR(CheckOp(op));
  telegrad::CollectiveSettings settings;
  if (algorithm != nullptr) {
    ASSIGN_OR_RETURN(settings.algorithm,
                     telegrad::ParseCollectiveAlgorithm(algorithm));
  }
  MutexLock lock(&mutex_);
  return group_->Allreduce(data->data, CountOf(data), TypeOf(data),
                           static_cast<ReduceOp>(op), settings);
}

absl::Status telegrad_group::Broadcast(const telegrad_tensor* data,
                                       int32_t root) {
  RETURN_IF_ERROR(CheckHostTensor(data));
  if (root < 0 || root >= size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", root, " of ", size_, " workers"));
  }
  MutexLock lock(&mutex_);
  return group_->Broadcast(data->data, CountOf(data), TypeOf(data), root);
}

absl::Status telegrad_group::Allgather(const telegrad_tensor* in,
                                       const telegrad_tensor* out,
                                       const uint64_t* counts) {
  RETURN_IF_ERROR(CheckPair(in, out));
  if (counts == nullptr) {
    RETURN_IF_ERROR(CheckElems("allgather's output", out, CountOf(in) * size_));
    MutexLock lock(&mutex_);
    return group_->Allgather(in->data, out->data, CountOf(in), TypeOf(in));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> blocks,
                   CountsOf("allgather's output", out, counts, size_));
  RETURN_IF_ERROR(CheckElems("allgather's input", in, blocks[rank_]));
  MutexLock lock(&mutex_);
  return group_->Allgatherv(in->data, out->data, blocks, TypeOf(in));
}

absl::Status telegrad_group::ReduceScatter(const telegrad_tensor* in,
                                           const telegrad_tensor* out,
                                           const uint64_t* counts, int32_t op) {
  RETURN_IF_ERROR(CheckPair(in, out));
  RETURN_IF_ERROR(CheckOp(op));
  ASSIGN_OR_RETURN(const std::vector<size_t> blocks,
                   CountsOf("reduce_scatter's input", in, counts, size_));
  RETURN_IF_ERROR(CheckElems("reduce_scatter's output", out, blocks[rank_]));
  const auto reduce = static_cast<ReduceOp>(op);
  MutexLock lock(&mutex_);
  if (counts == nullptr) {
    return group_->ReduceScatter(in->data, out->data, CountOf(out), TypeOf(in),
                                 reduce);
  }
  return group_->ReduceScatterv(in->data, out->data, blocks, TypeOf(in),
                                reduce);
}

absl::Status telegrad_group::Alltoall(const telegrad_tensor* in,
                                      const uint64_t* sends,
                                      const telegrad_tensor* out,
                                      const uint64_t* receives) {
  RETURN_IF_ERROR(CheckPair(in, out));
  if ((sends == nullptr) != (receives == nullptr)) {
    return absl::InvalidArgumentError("alltoall: counts of one side alone");
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> to,
                   CountsOf("alltoall's input", in, sends, size_));
  ASSIGN_OR_RETURN(const std::vector<size_t> from,
                   CountsOf("alltoall's output", out, receives, size_));
  if (sends == nullptr) {
    RETURN_IF_ERROR(CheckElems("alltoall's output", out, CountOf(in)));
  }
  MutexLock lock(&mutex_);
  if (sends == nullptr) {
    return group_->Alltoall(in->data, out->data, to[0], TypeOf(in));
  }
  return group_->Alltoallv(in->data, to, out->data, from, TypeOf(in));
}

absl::Status telegrad_group::Barrier() {
  MutexLock lock(&mutex_);
  return group_->Barrier();
}

absl::Status telegrad_group::Split(const int32_t* ranks, int32_t num_ranks,
                                   std::unique_ptr<telegrad_group>* part) {
  if (ranks == nullptr || num_ranks < 1) {
    return absl::InvalidArgumentError("split: no ranks");
  }
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(std::unique_ptr<telegrad::Group> split,
                   group_->Split({ranks, static_cast<size_t>(num_ranks)}));
  if (split == nullptr) return absl::OkStatus();
  *part = std::make_unique<telegrad_group>();
  (*part)->Set(verdict_, in_use_, std::move(split));
  return absl::OkStatus();
}

absl::Status telegrad_group::SetTimeout(double timeout_s) {
  if (!(timeout_s > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a timeout of ", timeout_s, " s"));
  }
  MutexLock lock(&mutex_);
  group_->set_timeout(telegrad::FromSeconds(timeout_s));
  return absl::OkStatus();
}

absl::Status telegrad_group::Send(const telegrad_tensor* data, int32_t to,
                                  uint32_t tag) {
  RETURN_IF_ERROR(CheckHostTensor(data));
  return courier_->Send(data->data, CountOf(data), TypeOf(data), to, tag);
}

absl::Status telegrad_group::Recv(const telegrad_tensor* data, int32_t from,
                                  uint32_t tag, int32_t* sender) {
  RETURN_IF_ERROR(CheckHostTensor(data));
  ASSIGN_OR_RETURN(const int rank, courier_->Receive(data->data, CountOf(data),
                                                     TypeOf(data), from, tag));
  if (sender != nullptr) *sender = rank;
  return absl::OkStatus();
}

absl::Status telegrad_group::Run(int32_t operation, const telegrad_tensor* in,
                                 const telegrad_tensor* out, int32_t number) {
  switch (operation) {
    case TELEGRAD_ALLREDUCE:
      return Allreduce(in, number, nullptr);
    case TELEGRAD_ALLGATHER:
      return Allgather(in, out, nullptr);
    case TELEGRAD_BROADCAST:
      return Broadcast(in, number);
    case TELEGRAD_REDUCE_SCATTER:
      return ReduceScatter(in, out, nullptr, number);
    case TELEGRAD_ALLTOALL:
      return Alltoall(in, nullptr, out, nullptr);
    case TELEGRAD_BARRIER:
      return Barrier();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("operation ", operation,
                       " is no telegrad_operation that a group can start"));
  }
}

telegrad::Ticket telegrad_group::Start(int32_t operation,
                                       const telegrad_tensor* in,
                                       const telegrad_tensor* out,
                                       int32_t number) {
  const auto copy_of = [](const telegrad_tensor* tensor) {
    return tensor == nullptr ? std::nullopt : std::optional(*tensor);
  };
  const auto pointer_to = [](const std::optional<telegrad_tensor>& tensor) {
    return tensor.has_value() ? &*tensor : nullptr;
  };
  auto state = std::make_shared<telegrad::Ticket::State>();
  // What the lane drops has ended, too; the first end counts.
  const std::shared_ptr<telegrad::Ticket::State> last_use(
      state.get(), [state](auto*) {
        state->Finish(absl::CancelledError(
            "the group was freed before the operation began"));
      });
  MutexLock lock(&lane_mutex_);
  if (lane_ == nullptr) lane_ = std::make_unique<telegrad::ThreadPool>(1);
  lane_->Post(0, [this, last_use, operation, number, pointer_to,
                  from = copy_of(in), to = copy_of(out)] {
    last_use->Finish(Run(operation, pointer_to(from), pointer_to(to), number));
  });
  return telegrad::Ticket(state);
}

namespace {

// `call` of a group that may be used here.
template <typename Call>
int32_t OfGroup(telegrad_group* group, telegrad_status* status, Call call) {
  if (group == nullptr) {
    return Give(absl::InvalidArgumentError("group is null"), status);
  }
  const auto verdict = group->verdict();  // the call may outlive its group
  absl::Status result = group->owner().Check();
  if (result.ok()) result = call();
  return Give(result, verdict.get(), status);
}

}  // namespace

extern "C" {

int32_t telegrad_group_create(telegrad_job* job, telegrad_group** group,
                              telegrad_status* status) {
  if (group == nullptr) {
    return Give(absl::InvalidArgumentError("group is null"), status);
  }
  std::unique_ptr<telegrad_group> made;
  const absl::Status result = telegrad_group::Create(job, &made);
  if (result.ok()) *group = made.release();
  return Give(result, job == nullptr ? nullptr : job->verdict().get(), status);
}

int32_t telegrad_group_allreduce(telegrad_group* group,
                                 const telegrad_tensor* data, int32_t op,
                                 telegrad_status* status) {
  return telegrad_group_allreduce_by(group, data, op, nullptr, status);
}

int32_t telegrad_group_allreduce_by(telegrad_group* group,
                                    const telegrad_tensor* data, int32_t op,
                                    const char* algorithm,
                                    telegrad_status* status) {
  return OfGroup(group, status,
                 [&] { return group->Allreduce(data, op, algorithm); });
}

int32_t telegrad_group_broadcast(telegrad_group* group,
                                 const telegrad_tensor* data, int32_t root,
                                 telegrad_status* status) {
  return OfGroup(group, status, [&] { return group->Broadcast(data, root); });
}

int32_t telegrad_group_allgather(telegrad_group* group,
                                 const telegrad_tensor* in,
                                 const telegrad_tensor* out,
                                 telegrad_status* status) {
  return OfGroup(group, status,
                 [&] { return group->Allgather(in, out, nullptr); });
}

int32_t telegrad_group_allgatherv(telegrad_group* group,
                                  const telegrad_tensor* in,
                                  const telegrad_tensor* out,
                                  const uint64_t* counts,
                                  telegrad_status* status) {
  if (counts == nullptr) {
    return Give(absl::InvalidArgumentError("counts is null"), status);
  }
  return OfGroup(group, status,
                 [&] { return group->Allgather(in, out, counts); });
}

int32_t telegrad_group_reduce_scatter(telegrad_group* group,
                                      const telegrad_tensor* in,
                                      const telegrad_tensor* out,
                                      const uint64_t* counts, int32_t op,
                                      telegrad_status* status) {
  return OfGroup(group, status,
                 [&] { return group->ReduceScatter(in, out, counts, op); });
}

int32_t telegrad_group_alltoallv(telegrad_group* group,
                                 const telegrad_tensor* in,
                                 const uint64_t* send_counts,
                                 const telegrad_tensor* out,
                                 const uint64_t* recv_counts,
                                 telegrad_status* status) {
  return OfGroup(group, status, [&] {
    return group->Alltoall(in, send_counts, out, recv_counts);
  });
}

int32_t telegrad_group_barrier(telegrad_group* group, telegrad_status* status) {
  return OfGroup(group, status, [&] { return group->Barrier(); });
}

int32_t telegrad_group_split(telegrad_group* group, const int32_t* ranks,
                             int32_t num_ranks, telegrad_group** part,
                             telegrad_status* status) {
  if (part == nullptr) {
    return Give(absl::InvalidArgumentError("part is null"), status);
  }
  std::unique_ptr<telegrad_group> made;
  const int32_t code = OfGroup(
      group, status, [&] { return group->Split(ranks, num_ranks, &made); });
  *part = made.release();
  return code;
}

int32_t telegrad_group_set_timeout(telegrad_group* group, double timeout_s,
                                   telegrad_status* status) {
  return OfGroup(group, status, [&] { return group->SetTimeout(timeout_s); });
}

int32_t telegrad_group_send(telegrad_group* group, const telegrad_tensor* data,
                            int32_t to, uint32_t tag, telegrad_status* status) {
  return OfGroup(group, status, [&] { return group->Send(data, to, tag); });
}

int32_t telegrad_group_recv(telegrad_group* group, const telegrad_tensor* data,
                            int32_t from, uint32_t tag, int32_t* sender,
                            telegrad_status* status) {
  return OfGroup(group, status,
                 [&] { return group->Recv(data, from, tag, sender); });
}

int32_t telegrad_group_start(telegrad_group* group, int32_t operation,
                             const telegrad_tensor* in,
                             const telegrad_tensor* out, int32_t number,
                             telegrad_work** work, telegrad_status* status) {
  if (work == nullptr) {
    return Give(absl::InvalidArgumentError("work is null"), status);
  }
  return OfGroup(group, status, [&] {
    *work = new telegrad_work{
        {}, group->verdict(), group->Start(operation, in, out, number)};
    return absl::OkStatus();
  });
}

int32_t telegrad_work_wait(telegrad_work* work, double timeout_s,
                           telegrad_status* status) {
  if (work == nullptr) {
    return Give(absl::InvalidArgumentError("work is null"), status);
  }
  if (const absl::Status forked = work->owner.Check(); !forked.ok()) {
    return Give(forked, status);
  }
  const telegrad::TimePoint deadline = telegrad::c::After(timeout_s);
  if (!work->ticket.WaitUntil(deadline)) return TELEGRAD_PENDING;
  return Give(work->ticket.Wait(deadline), work->verdict.get(), status);
}

void telegrad_work_free(telegrad_work* work) {
  if (work != nullptr && work->owner.is_here()) delete work;
}

int32_t telegrad_group_rank(const telegrad_group* group) {
  return group == nullptr ? -1 : group->rank();
}

int32_t telegrad_group_size(const telegrad_group* group) {
  return group == nullptr ? 0 : group->size();
}

void telegrad_group_free(telegrad_group* group) {
  if (group != nullptr && group->owner().is_here()) delete group;
}

}  // extern "C"
