#include "python/c/store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kernels/tool_range.h"
#include "python/c/job.h"
#include "python/c/tensor.h"
#include "topology/plan.h"

using telegrad::Bytes;
using telegrad::CompressionConfig;
using telegrad::Device;
using telegrad::DeviceKind;
using telegrad::Dtype;
using telegrad::Key;
using telegrad::MutexLock;
using telegrad::TensorSpec;
using telegrad::TensorView;
using telegrad::Ticket;
using telegrad::c::TextOf;

namespace {

TensorView ViewOf(const telegrad_tensor& tensor) {
  const auto dtype = static_cast<Dtype>(tensor.dtype);
  const Device device =
      tensor.device < 0 ? Device() : Device{DeviceKind::kCuda, tensor.device};
  return {.bytes = Bytes(
              tensor.data,
              static_cast<size_t>(tensor.num_elems) * telegrad::SizeOf(dtype),
              device),
          .dtype = dtype,
          .num_elems = tensor.num_elems,
          .stream = {reinterpret_cast<void*>(tensor.stream)}};
}

telegrad::Updater UpdaterOf(const telegrad_store_options& given) {
  if (given.updater == nullptr) return nullptr;
  return [call = given.updater, data = given.updater_data](
             Key key, std::span<const float> gradient,
             std::span<float> weight) -> absl::Status {
    const int32_t code = call(data, key, gradient.data(), weight.data(),
                              static_cast<int64_t>(weight.size()));
    if (code == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("it returned ", code));
  };
}

}  // namespace

absl::Status telegrad_store::Create(telegrad_job* job, const char* type,
                                    const telegrad_store_options& given,
                                    std::unique_ptr<telegrad_store>* store) {
  if (given.num_devices < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_devices ", given.num_devices, ": it takes 1 or more"));
  }
  telegrad::WorkerGroup* group = nullptr;
  telegrad::StoreOptions options;
  auto made = std::make_unique<telegrad_store>();
  if (job != nullptr) {
    RETURN_IF_ERROR(job->owner().Check());
    if (job->group() == nullptr) {
      return absl::FailedPreconditionError("a store before the worker joins");
    }
    group = job->group();
    options = job->options();
    made->verdict_ = job->verdict();
    made->in_use_ = job->InUse();
    made->operation_timeout_ = job->options().operation_timeout;
    made->num_threads_ = options.num_threads;
    if (!job->options().server_trace.empty()) {
      made->trace_ = std::make_unique<telegrad::c::StoreTrace>(
          made->timeline_, job->options().server_trace);
    }
  }
  options.num_devices = given.num_devices;
  options.max_staleness = given.max_staleness;
  options.drop_slowest = given.drop_slowest;
  options.updater = UpdaterOf(given);
  options.timeline = &made->timeline_;
  made->num_devices_ = static_cast<size_t>(given.num_devices);
  RETURN_IF_ERROR(telegrad::FindStoreType(TextOf(type, "")).status());
  if (job != nullptr && !job->TakeStorePlace()) {
    return absl::FailedPreconditionError(
        "the job has a store already, and takes one");
  }
  absl::StatusOr<std::unique_ptr<telegrad::KVStore>> kvstore =
      telegrad::MakeKVStore(TextOf(type, ""), options, group);
  if (!kvstore.ok()) {
    if (job != nullptr) job->GiveStorePlaceBack();
    return kvstore.status();
  }
  made->store_ = *std::move(kvstore);
  made->metrics_ = std::make_unique<telegrad::StoreMetrics>(*made->store_);
  *store = std::move(made);
  return absl::OkStatus();
}

absl::Status telegrad_store::SetCompression(
    const telegrad_compression& compression) {
  CompressionConfig config;
  config.type = TextOf(compression.type, "none");
  const bool is_auto = config.type == "auto";
  if (is_auto && !store_->traits().has_workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("a store '", store_->traits().type,
                     "' sends nothing: type 'auto' has no choice there"));
  }
  if (is_auto) {
    RETURN_IF_ERROR(telegrad::ParseAllowedCodecs(
        "allow", TextOf(compression.allow, telegrad::kDefaultAllowed), config));
    config.starts_dense = true;
  } else if (compression.allow != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("allow '", compression.allow, "' is for type 'auto'"));
  } else {
    RETURN_IF_ERROR(telegrad::ParseCodecSpec(config.type).status());
  }
  config.rules = TextOf(compression.rules, "");
  RETURN_IF_ERROR(telegrad::CheckCodecRules(config.rules));
  ASSIGN_OR_RETURN(config.threshold, telegrad::ParseThreshold(TextOf(
                                         compression.threshold, "auto")));
  ASSIGN_OR_RETURN(config.reply,
                   telegrad::ParseReplyMode(TextOf(compression.reply, "auto")));
  ASSIGN_OR_RETURN(config.packing, telegrad::ParsePackingMode(
                                       TextOf(compression.packing, "plain")));
  ASSIGN_OR_RETURN(config.nonfinite, telegrad::ParseNonFinitePolicy(TextOf(
                                         compression.nonfinite, "error")));
  if (compression.batch_size < 0 || compression.min_bytes < 0 ||
      compression.warmup_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size ", compression.batch_size, ", min_bytes ",
                     compression.min_bytes, ", warmup_steps ",
                     compression.warmup_steps, ": none may be negative"));
  }
  config.batch_size = std::max(compression.batch_size, 1);
  config.min_bytes = compression.min_bytes;
  config.warmup_steps = compression.warmup_steps;
  config.has_guard = compression.has_guard != 0;
  ASSIGN_OR_RETURN(config.momentum, telegrad::ParsePushMomentum(
                                        TextOf(compression.momentum, "off")));
  config.momentum_rate = compression.momentum_rate;
  RETURN_IF_ERROR(store_->SetCompression(config));
  auto_compression_.reset();
  if (is_auto) auto_compression_ = config;
  return absl::OkStatus();
}

absl::Status telegrad_store::SetOptimizer(const telegrad_optimizer& optimizer) {
  if (optimizer.kind == TELEGRAD_RESCALE) {
    return store_->SetOptimizer({.result_scale = optimizer.rescale_grad});
  }
  if (optimizer.kind < 0 || optimizer.kind > telegrad::kMaxOptimizerKind) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kind ", optimizer.kind, " is no telegrad_optimizer_kind"));
  }
  RETURN_IF_ERROR(store_->SetOptimizer(
      {.update_on = telegrad::UpdateOn::kServer,
       .kind = static_cast<telegrad::OptimizerKind>(optimizer.kind),
       .sgd = {.learning_rate = optimizer.learning_rate,
               .momentum_rate = optimizer.momentum,
               .weight_decay = optimizer.weight_decay,
               .rescale = optimizer.rescale_grad},
       .adam = {.beta1 = optimizer.beta1,
                .beta2 = optimizer.beta2,
                .epsilon = optimizer.epsilon}}));
  has_optimizer_ = true;
  return absl::OkStatus();
}

std::vector<TensorView> telegrad_store::ViewsOf(const telegrad_tensor* tensors,
                                                const telegrad_rows* rows,
                                                size_t i) const {
  std::vector<TensorView> views;
  for (size_t j = i * num_devices_; j < (i + 1) * num_devices_; ++j) {
    views.push_back(ViewOf(tensors[j]));
    if (rows == nullptr || rows[j].num < 0) continue;
    views.back().rows.emplace(rows[j].rows, static_cast<size_t>(rows[j].num));
  }
  return views;
}

absl::Status telegrad_store::CheckTensors(int64_t num,
                                          const telegrad_tensor* tensors,
                                          const telegrad_rows* rows) const {
  if (num < 1) return absl::OkStatus();
  if (tensors == nullptr) {
    return absl::InvalidArgumentError("an operation without tensors");
  }
  const size_t count = static_cast<size_t>(num) * num_devices_;
  for (size_t j = 0; j < count; ++j) {
    if (rows == nullptr || rows[j].num == -1) {
      RETURN_IF_ERROR(telegrad::c::CheckTensor(tensors[j], /*has_data=*/true));
    } else if (rows[j].num < -1 ||
               (rows[j].num > 0 && rows[j].rows == nullptr)) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows of which there are ", rows[j].num));
    }
  }
  return absl::OkStatus();
}

void telegrad_store::LeaveMomentumOut(const char* name) {
  without_momentum_.insert(TextOf(name, ""));
}

absl::Status telegrad_store::Init(int64_t num, const char* const* names,
                                  const telegrad_tensor* tensors,
                                  const int64_t* row_elems, const float* rates,
                                  bool has_values, uint32_t* keys) {
  if (num < 1 || names == nullptr || tensors == nullptr || keys == nullptr) {
    return absl::InvalidArgumentError("init without tensors, names or keys");
  }
  if (auto_ != nullptr) {
    return absl::FailedPreconditionError(
        "init after a step with type 'auto', which chooses for what is there");
  }
  std::vector<TensorSpec> specs;
  std::vector<TensorView> values;
  for (size_t i = 0; i < static_cast<size_t>(num); ++i) {
    for (size_t device = 0; device < num_devices_; ++device) {
      const telegrad_tensor& tensor = tensors[i * num_devices_ + device];
      RETURN_IF_ERROR(telegrad::c::CheckTensor(tensor, has_values));
      const telegrad_tensor& first = tensors[i * num_devices_];
      if (tensor.num_elems != first.num_elems || tensor.dtype != first.dtype) {
        return absl::InvalidArgumentError(absl::StrCat(
            "tensor ", TextOf(names[i], ""), " has ", first.num_elems,
            " elements of dtype ", first.dtype, " on its first device and ",
            tensor.num_elems, " of ", tensor.dtype, " on another"));
      }
      if (has_values) values.push_back(ViewOf(tensor));
    }
    TensorSpec& spec = specs.emplace_back();
    spec.name = TextOf(names[i], "");
    spec.num_elems = static_cast<size_t>(tensors[i * num_devices_].num_elems);
    spec.has_momentum = without_momentum_.count(spec.name) == 0;
    if (rates != nullptr) spec.rates = {rates[2 * i], rates[2 * i + 1]};
    if (row_elems != nullptr && row_elems[i] != 0) {
      spec.row_elems = static_cast<size_t>(row_elems[i]);
      if (row_elems[i] < 0 || spec.num_elems % spec.row_elems != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor ", spec.name, " of ", spec.num_elems,
                         " elements in rows of ", row_elems[i]));
      }
    }
    for (const TensorView& view : ViewsOf(tensors, nullptr, i)) {
      spec.dtype = view.dtype;
      spec.devices.push_back(view.bytes.device);
    }
  }
  ASSIGN_OR_RETURN(const std::vector<Key> given, store_->Init(specs, values));
  std::copy(given.begin(), given.end(), keys);
  device_ = specs.back().devices.front();
  MutexLock lock(&mutex_);
  last_.resize(last_.size() + specs.size());
  for (const TensorSpec& spec : specs) names_.push_back(spec.name);
  return absl::OkStatus();
}

absl::Status telegrad_store::Run(const Call& call,
                                 const std::function<Ticket(size_t)>& start) {
  const telegrad::kernels::ToolRange range(call.what);
  if (call.num < 1 || call.keys == nullptr) {
    return absl::InvalidArgumentError("an operation without keys");
  }
  if (call.queue != nullptr) RETURN_IF_ERROR(call.queue->owner().Check());
  telegrad::c::Operation operation{
      .tag = call.tag,
      .deadline = telegrad::Clock::now() + operation_timeout_,
      .verdict = verdict_};
  for (size_t i = 0; i < static_cast<size_t>(call.num); ++i) {
    if (trace_ != nullptr) {
      MutexLock lock(&mutex_);
      trace_->BeforeOperation(call.keys[i], store_->group().rank(), names_);
    }
    const telegrad::TimePoint begin = telegrad::Clock::now();
    operation.tickets.push_back(start(i));
    MutexLock lock(&mutex_);
    if (call.keys[i] >= last_.size()) continue;
    last_[call.keys[i]] = operation.tickets.back();
    if (ends_ == nullptr) continue;
    ends_->Await(call.keys[i], call.what, begin, operation.tickets.back());
  }
  if (call.queue == nullptr) return operation.Wait();
  call.queue->Add(std::move(operation));
  return absl::OkStatus();
}

std::string telegrad_store::SetTimeline(bool is_on) {
  MutexLock lock(&mutex_);
  std::string noted = "[]";
  const bool was_on = ends_ != nullptr;
  timeline_.Switch(is_on);
  const uint64_t num_not_awaited = was_on ? ends_->TakeNumLeftOut() : 0;
  if (!is_on) ends_.reset();
  if (was_on) {
    uint64_t num_left_out = 0;
    const auto spans = timeline_.Take(&num_left_out);
    const int rank = store_->group().rank();
    noted = telegrad::ChromeTrace(spans, rank, absl::StrCat("worker", rank),
                                  names_, num_left_out + num_not_awaited);
  } else if (is_on) {
    ends_ = std::make_unique<telegrad::c::OperationEnds>(timeline_);
  }
  return noted;
}

void telegrad_store::Close() {
  std::vector<Ticket> last;
  {
    MutexLock lock(&mutex_);
    last = last_;
  }
  for (const Ticket& ticket : last) ticket.Cancel();
  const int rank = trace_ == nullptr ? 0 : store_->group().rank();
  store_->Close();
  if (trace_ == nullptr || verdict_->Get().has_value()) return;
  MutexLock lock(&mutex_);
  trace_->FinishWell(rank, names_);
}
