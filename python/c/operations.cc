#include "kvstore/operations/operations.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/collective/collective.h"
#include "python/c/group.h"
#include "python/c/job.h"
#include "python/c/store.h"
#include "python/c/tensor.h"

namespace ops = telegrad::operations;
using telegrad::Dtype;
using telegrad::c::Give;

// A job's asynchronous operations. Thread-safe.
struct telegrad_operations {
  telegrad::c::Owner owner;
  std::shared_ptr<telegrad::c::Verdict> verdict;
  std::shared_ptr<const bool> in_use;  // of the job
  std::unique_ptr<ops::Operations> operations;
};

namespace {

absl::StatusOr<ops::Options> OptionsOf(
    const telegrad_operations_options* given) {
  telegrad_operations_options known;
  telegrad_operations_options_init(&known, sizeof(known));
  RETURN_IF_ERROR(telegrad::c::TakeKnown(given, &known));
  if (!(known.cycle_s >= 0 && known.stall_warning_s >= 0 &&
        known.stall_deadline_s >= 0)) {
    return absl::InvalidArgumentError(
        "cycle_s, stall_warning_s and stall_deadline_s must be at least 0");
  }
  ops::Options options;
  options.fusion_bytes = known.fusion_bytes;
  options.cache_capacity = known.cache_capacity;
  options.cycle = telegrad::FromSeconds(known.cycle_s);
  options.stall_warning = telegrad::FromSeconds(known.stall_warning_s);
  options.stall_deadline = telegrad::FromSeconds(known.stall_deadline_s);
  options.timeline = telegrad::c::TextOf(known.timeline, "");
  options.marks_cycles = known.marks_cycles != 0;
  options.tuning = {.is_on = known.autotune != 0,
                    .log = telegrad::c::TextOf(known.autotune_log, ""),
                    .warmup_samples = known.autotune_warmup,
                    .steps_per_sample = known.autotune_steps};
  return options;
}

// Of a tensor that may have no data.
absl::Status CopyArrays(const telegrad_operation_request& request,
                        ops::Request* to) {
  if (request.num_dims < 0 ||
      request.num_dims > static_cast<int32_t>(ops::kMaxDims) ||
      request.num_splits < 0 ||
      request.num_splits > static_cast<int32_t>(ops::kMaxSplits)) {
    return absl::InvalidArgumentError(absl::StrCat(
        request.num_dims, " dimensions and ", request.num_splits,
        " splits; at most ", ops::kMaxDims, " and ", ops::kMaxSplits));
  }
  if (request.shape == nullptr) {
    to->shape = {request.in.num_elems};
  } else {
    to->shape.assign(request.shape, request.shape + request.num_dims);
  }
  if (request.splits != nullptr) {
    to->splits.assign(request.splits, request.splits + request.num_splits);
  }
  return absl::OkStatus();
}

// Elements of the result where they are known before it is there; else -1.
int64_t ResultElems(const ops::Request& request, int64_t in_elems) {
  const bool keeps = request.kind == ops::Kind::kAllreduce ||
                     request.kind == ops::Kind::kBroadcast;
  return keeps ? in_elems : -1;
}

// In host memory aligned to its type.
absl::Status CheckArray(const telegrad_tensor& tensor) {
  return tensor.device < 0
             ? telegrad::c::CheckHostTensor(tensor, "operations")
             : telegrad::c::CheckTensor(tensor, /*has_data=*/true);
}

absl::Status FillTensors(const telegrad_operation_request& request,
                         ops::Submission* to) {
  RETURN_IF_ERROR(CheckArray(request.in));
  to->request.dtype = static_cast<Dtype>(request.in.dtype);
  to->request.device = std::max(request.in.device, ops::kHostMemory);
  to->stream = {reinterpret_cast<void*>(request.in.stream)};
  const std::vector<int64_t>& shape = to->request.shape;
  RETURN_IF_ERROR(ops::CheckShape(shape));
  const int64_t elems = ops::NumElems(shape);
  if (elems != request.in.num_elems) {
    return absl::InvalidArgumentError(absl::StrCat("a shape of ", elems,
                                                   " elements for a tensor of ",
                                                   request.in.num_elems));
  }
  to->in = request.in.data;
  if (request.out.data == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckArray(request.out));
  if (request.out.device != request.in.device) {
    return absl::InvalidArgumentError(
        absl::StrCat("out on device ", request.out.device, " and in on ",
                     request.in.device, ": both are where the result is"));
  }
  const int64_t wanted = ResultElems(to->request, elems);
  if (request.out.dtype != request.in.dtype ||
      (wanted >= 0 && request.out.num_elems != wanted)) {
    return absl::InvalidArgumentError(
        absl::StrCat("out of ", request.out.num_elems, " elements of type ",
                     request.out.dtype, " for a result of ", wanted,
                     " of type ", request.in.dtype));
  }
  to->out = request.out.data;
  to->out_elems = static_cast<size_t>(request.out.num_elems);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Submit(telegrad_operations* operations,
                               const telegrad_operation_request* given) {
  telegrad_operation_request known;
  telegrad_operation_request_init(&known, sizeof(known));
  RETURN_IF_ERROR(telegrad::c::TakeKnown(given, &known));
  if (known.operation < TELEGRAD_ALLREDUCE || known.operation > TELEGRAD_JOIN) {
    return absl::InvalidArgumentError(absl::StrCat(
        "operation ", known.operation, " is no telegrad_operation"));
  }
  if (known.op < TELEGRAD_SUM || known.op > TELEGRAD_ADASUM) {
    return absl::InvalidArgumentError(
        absl::StrCat("op ", known.op, " is none of an operation"));
  }
  auto submission = std::make_shared<ops::Submission>();
  ops::Request& request = submission->request;
  request.kind = static_cast<ops::Kind>(known.operation);
  request.op = static_cast<ops::Op>(known.op);
  request.set = known.process_set;
  request.root = known.root;
  request.group = known.group;
  request.group_size = known.group_size;
  request.prescale = known.prescale;
  request.postscale = known.postscale;
  request.name = telegrad::c::TextOf(known.name, "");
  request.codec = telegrad::c::TextOf(known.codec, "");
  if (request.codec == "none") request.codec.clear();
  RETURN_IF_ERROR(CopyArrays(known, &request));
  if (known.operation < TELEGRAD_BARRIER) {
    RETURN_IF_ERROR(FillTensors(known, submission.get()));
  }
  return operations->operations->Submit(std::move(submission));
}

absl::Status Create(telegrad_job* job, const telegrad_operations_options* given,
                    std::unique_ptr<telegrad_operations>* operations) {
  ASSIGN_OR_RETURN(ops::Options options, OptionsOf(given));
  ASSIGN_OR_RETURN(
      std::unique_ptr<telegrad::Group> world,
      telegrad::c::ConnectGroup(job, /*sends=*/false, &options.device_group));
  options.timeout = job->options().operation_timeout;
  auto made = std::make_unique<telegrad_operations>();
  made->verdict = job->verdict();
  made->in_use = job->InUse();
  ASSIGN_OR_RETURN(made->operations,
                   ops::Operations::Make(std::move(world), options));
  *operations = std::move(made);
  return absl::OkStatus();
}

// `call` of operations that may be used here.
template <typename Call>
int32_t OfOperations(telegrad_operations* operations, telegrad_status* status,
                     Call call) {
  if (operations == nullptr) {
    return Give(absl::InvalidArgumentError("operations is null"), status);
  }
  absl::Status result = operations->owner.Check();
  if (result.ok()) result = call(*operations->operations);
  return Give(result, operations->verdict.get(), status);
}

absl::Status GiveResult(ops::Operations& operations, int64_t handle,
                        const void** data, int64_t* num_elems, int64_t* rows) {
  ASSIGN_OR_RETURN(const auto submission, operations.queue().Result(handle));
  if (data != nullptr) *data = submission->result;
  if (num_elems != nullptr) *num_elems = submission->num_elems;
  if (rows != nullptr) {
    std::copy(submission->rows.begin(), submission->rows.end(), rows);
  }
  return absl::OkStatus();
}

}  // namespace

extern "C" {

void telegrad_operations_options_init(telegrad_operations_options* options,
                                      uint64_t size) {
  telegrad_operations_options standard = {};
  standard.cache_capacity = 1024;
  standard.fusion_bytes = int64_t{64} << 20;
  standard.cycle_s = 0.001;
  standard.stall_warning_s = 60;
  standard.autotune_warmup = 3;
  standard.autotune_steps = 10;
  telegrad::c::SetKnown(standard, size, options);
}

void telegrad_operation_request_init(telegrad_operation_request* request,
                                     uint64_t size) {
  telegrad_operation_request standard = {};
  standard.in.device = standard.out.device = -1;
  standard.prescale = standard.postscale = 1;
  telegrad::c::SetKnown(standard, size, request);
}

int32_t telegrad_operations_create(telegrad_job* job,
                                   const telegrad_operations_options* options,
                                   telegrad_operations** operations,
                                   telegrad_status* status) {
  if (operations == nullptr) {
    return Give(absl::InvalidArgumentError("operations is null"), status);
  }
  std::unique_ptr<telegrad_operations> made;
  const absl::Status result = Create(job, options, &made);
  if (result.ok()) *operations = made.release();
  return Give(result, job == nullptr ? nullptr : job->verdict().get(), status);
}

int32_t telegrad_operations_use_store(telegrad_operations* operations,
                                      telegrad_store* store,
                                      telegrad_status* status) {
  return OfOperations(operations, status, [&](auto& mine) -> absl::Status {
    if (store == nullptr) return absl::InvalidArgumentError("store is null");
    RETURN_IF_ERROR(store->owner().Check());
    // The caller's, which outlives these.
    return mine.UseStore(std::shared_ptr<telegrad::KVStore>(
        &store->store(), [](telegrad::KVStore*) {}));
  });
}

int32_t telegrad_operations_submit(telegrad_operations* operations,
                                   const telegrad_operation_request* request,
                                   int64_t* handle, telegrad_status* status) {
  return OfOperations(operations, status, [&](auto&) -> absl::Status {
    if (request == nullptr || handle == nullptr) {
      return absl::InvalidArgumentError("request or handle is null");
    }
    ASSIGN_OR_RETURN(*handle, Submit(operations, request));
    return absl::OkStatus();
  });
}

int32_t telegrad_operations_poll(telegrad_operations* operations,
                                 int64_t handle, int32_t* done,
                                 telegrad_status* status) {
  return OfOperations(operations, status, [&](auto& mine) -> absl::Status {
    if (done == nullptr) return absl::InvalidArgumentError("done is null");
    ASSIGN_OR_RETURN(*done, mine.queue().Poll(handle));
    return absl::OkStatus();
  });
}

int32_t telegrad_operations_wait(telegrad_operations* operations,
                                 int64_t handle, double timeout_s,
                                 telegrad_status* status) {
  bool is_done = true;
  const int32_t code = OfOperations(operations, status, [&](auto& mine) {
    return mine.queue().Wait(
        handle, telegrad::c::After(timeout_s < 0 ? 1e9 : timeout_s), &is_done);
  });
  return is_done || code != TELEGRAD_OK ? code : TELEGRAD_PENDING;
}

int32_t telegrad_operations_result(telegrad_operations* operations,
                                   int64_t handle, const void** data,
                                   int64_t* num_elems, int64_t* rows,
                                   telegrad_status* status) {
  return OfOperations(operations, status, [&](auto& mine) {
    return GiveResult(mine, handle, data, num_elems, rows);
  });
}

int32_t telegrad_operations_release(telegrad_operations* operations,
                                    int64_t handle, telegrad_status* status) {
  return OfOperations(operations, status,
                      [&](auto& mine) { return mine.queue().Release(handle); });
}

int32_t telegrad_operations_cancel(telegrad_operations* operations,
                                   int64_t handle, telegrad_status* status) {
  return OfOperations(operations, status,
                      [&](auto& mine) { return mine.queue().Cancel(handle); });
}

int32_t telegrad_operations_start_timeline(telegrad_operations* operations,
                                           const char* path,
                                           int32_t marks_cycles,
                                           telegrad_status* status) {
  return OfOperations(operations, status, [&](auto& mine) {
    return mine.StartTimeline(telegrad::c::TextOf(path, ""), marks_cycles != 0);
  });
}

int32_t telegrad_operations_stop_timeline(telegrad_operations* operations,
                                          telegrad_status* status) {
  return OfOperations(operations, status,
                      [&](auto& mine) { return mine.StopTimeline(); });
}

int32_t telegrad_operations_add_process_set(telegrad_operations* operations,
                                            const int32_t* ranks,
                                            int32_t num_ranks, int32_t* id,
                                            telegrad_status* status) {
  return OfOperations(operations, status, [&](auto& mine) -> absl::Status {
    if (ranks == nullptr || num_ranks < 1 || id == nullptr) {
      return absl::InvalidArgumentError("a process set without ranks or id");
    }
    ASSIGN_OR_RETURN(
        *id, mine.AddProcessSet(std::vector<int>(ranks, ranks + num_ranks)));
    return absl::OkStatus();
  });
}

int32_t telegrad_operations_remove_process_set(telegrad_operations* operations,
                                               int32_t id,
                                               telegrad_status* status) {
  return OfOperations(operations, status,
                      [&](auto& mine) { return mine.RemoveProcessSet(id); });
}

void telegrad_operations_free(telegrad_operations* operations) {
  if (operations != nullptr && operations->owner.is_here()) delete operations;
}

}  // extern "C"
