#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kvstore/collective/collective.h"
#include "kvstore/job/path/data_path.h"
#include "python/c/job.h"
#include "python/c/tensor.h"

using telegrad::Dtype;
using telegrad::MutexLock;
using telegrad::ReduceOp;
using telegrad::c::Give;

// A group of the job's workers. Thread-safe: calls wait for each other.
struct telegrad_group {
 public:
  static absl::Status Create(telegrad_job* job,
                             std::unique_ptr<telegrad_group>* group);

  absl::Status Allreduce(const telegrad_tensor* data, int32_t op);
  absl::Status Broadcast(const telegrad_tensor* data, int32_t root);
  absl::Status Allgather(const telegrad_tensor* in, const telegrad_tensor* out);

  const telegrad::c::Owner& owner() const { return owner_; }
  const telegrad::c::Verdict* verdict() const { return verdict_.get(); }

 private:
  telegrad::c::Owner owner_;
  std::shared_ptr<telegrad::c::Verdict> verdict_;
  telegrad::Mutex mutex_;
  std::unique_ptr<telegrad::Group> group_ ABSL_GUARDED_BY(mutex_);
};

namespace {

absl::Status CheckHostTensor(const telegrad_tensor* tensor) {
  if (tensor == nullptr) return absl::InvalidArgumentError("tensor is null");
  RETURN_IF_ERROR(telegrad::c::CheckTensor(*tensor, /*has_data=*/true));
  if (tensor->num_elems == 0) {
    return absl::InvalidArgumentError("a collective of no elements");
  }
  if (tensor->device >= 0) {
    return absl::UnimplementedError(
        absl::StrCat("a tensor of GPU ", tensor->device,
                     ": collectives are of host memory; copy it first"));
  }
  const size_t size = telegrad::SizeOf(static_cast<Dtype>(tensor->dtype));
  if (reinterpret_cast<uintptr_t>(tensor->data) % size == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a tensor at an address that is no multiple of ", size));
}

size_t CountOf(const telegrad_tensor* tensor) {
  return static_cast<size_t>(tensor->num_elems);
}

Dtype TypeOf(const telegrad_tensor* tensor) {
  return static_cast<Dtype>(tensor->dtype);
}

}  // namespace

absl::Status telegrad_group::Create(telegrad_job* job,
                                    std::unique_ptr<telegrad_group>* group) {
  if (job == nullptr) return absl::InvalidArgumentError("job is null");
  RETURN_IF_ERROR(job->owner().Check());
  telegrad::WorkerGroup* const workers = job->group();
  if (workers == nullptr) {
    return absl::FailedPreconditionError("a group before the worker joins");
  }
  auto made = std::make_unique<telegrad_group>();
  made->verdict_ = job->verdict();
  telegrad::GroupOptions options;
  options.transport = workers->data_path().transport;
  options.rank = workers->rank();
  options.world_size = workers->num_workers();
  options.timeout = workers->options().operation_timeout;
  const std::string name = absl::StrCat("group ", job->NextGroup());
  absl::StatusOr<std::unique_ptr<telegrad::Group>> connected =
      telegrad::Group::Make(options, [&](const std::string& mine, auto) {
        return workers->Gather(name, mine);
      });
  absl::Status status = connected.status();
  // Who is connected may do something else, and others would wait for it.
  if (status.ok()) status = (*connected)->Barrier();
  if (!status.ok()) {
    workers->Fail(status);  // the others wait for us
    return status;
  }
  {
    MutexLock lock(&made->mutex_);
    made->group_ = *std::move(connected);
  }
  *group = std::move(made);
  return absl::OkStatus();
}

absl::Status telegrad_group::Allreduce(const telegrad_tensor* data,
                                       int32_t op) {
  RETURN_IF_ERROR(CheckHostTensor(data));
  if (op < TELEGRAD_SUM || op > TELEGRAD_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("op ", op, " is no telegrad_reduce_op"));
  }
  MutexLock lock(&mutex_);
  return group_->Allreduce(data->data, CountOf(data), TypeOf(data),
                           static_cast<ReduceOp>(op));
}

absl::Status telegrad_group::Broadcast(const telegrad_tensor* data,
                                       int32_t root) {
  RETURN_IF_ERROR(CheckHostTensor(data));
  MutexLock lock(&mutex_);
  if (root < 0 || root >= group_->world_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", root, " of ", group_->world_size(), " workers"));
  }
  return group_->Broadcast(data->data, CountOf(data), TypeOf(data), root);
}

absl::Status telegrad_group::Allgather(const telegrad_tensor* in,
                                       const telegrad_tensor* out) {
  RETURN_IF_ERROR(CheckHostTensor(in));
  RETURN_IF_ERROR(CheckHostTensor(out));
  MutexLock lock(&mutex_);
  if (out->dtype != in->dtype ||
      out->num_elems != in->num_elems * group_->world_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "allgather of ", in->num_elems, " elements of type ", in->dtype,
        " into ", out->num_elems, " of type ", out->dtype, ": for ",
        group_->world_size(), " workers it takes ",
        in->num_elems * group_->world_size(), " of the same type"));
  }
  return group_->Allgather(in->data, out->data, CountOf(in), TypeOf(in));
}

namespace {

// `call` of a group that may be used here.
template <typename Call>
int32_t OfGroup(telegrad_group* group, telegrad_status* status, Call call) {
  if (group == nullptr) {
    return Give(absl::InvalidArgumentError("group is null"), status);
  }
  absl::Status result = group->owner().Check();
  if (result.ok()) result = call();
  return Give(result, group->verdict(), status);
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
  return OfGroup(group, status, [&] { return group->Allreduce(data, op); });
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
  return OfGroup(group, status, [&] { return group->Allgather(in, out); });
}

void telegrad_group_free(telegrad_group* group) {
  if (group != nullptr && group->owner().is_here()) delete group;
}

}  // extern "C"
