#include "kvstore/local/local_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/codec/floats.h"
#include "kvstore/engine/rows/row_codec.h"
#include "kvstore/engine/rows/rows.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/local/merge_places.h"
#include "kvstore/optimizer.h"
#include "kvstore/timeline.h"

namespace telegrad {
namespace {

// A push of rows as their codec gives it, into all elements of the tensor. What
// is not finite stays, for the policy to find, unless it propagates.
absl::Status AddRowsByCodec(const CompressionConfig& compression,
                            const TensorCodec& codec, const TensorView& view,
                            uint64_t step, uint64_t source, float* whole) {
  const TensorSpec& spec = codec.spec();
  const std::vector<uint64_t> sorted = SortedRows(*view.rows);
  const Buffer values = AddRows(spec, view, sorted);
  for (const ChunkCodec& each : codec.chunks()) {
    const Chunk& chunk = each.chunk();
    const EncodeParams params = ParamsOfRows(compression, chunk, step, source);
    const Buffer rows =
        PackRows(chunk, spec.row_elems, sorted, values.as<float>());
    ASSIGN_OR_RETURN(const Buffer encoded,
                     EncodeRows(*codec.row_codec(), chunk, spec.row_elems,
                                rows.view(), params));
    ASSIGN_OR_RETURN(
        const Buffer decoded,
        DecodeRows(*codec.row_codec(), chunk, spec.row_elems, encoded.view()));
    if (params.nonfinite == NonFinite::kZero) {
      const RowRange range = RowsIn(chunk, spec.row_elems, sorted);
      const size_t head = RowIdBytes(range.end - range.begin) / 4;
      for (size_t i = head; i < head + range.num_elems; ++i) {
        const float value = rows.as<float>()[i];
        if (!std::isfinite(value)) decoded.as<float>()[i] = value;
      }
    }
    RETURN_IF_ERROR(
        SpreadRows(chunk, spec.row_elems, decoded.view(), whole + chunk.begin));
  }
  return absl::OkStatus();
}

}  // namespace

LocalStore::LocalStore(const StoreOptions& options, const StoreTraits& traits,
                       WorkerGroup* group, int num_places)
    : options_(options),
      traits_(traits),
      header_bytes_(options.emulated_servers > 0 ? kFrameHeaderBytes : 0),
      own_group_(group == nullptr ? MakeSoloGroup() : nullptr),
      group_(group == nullptr ? own_group_.get() : group),
      loads_(static_cast<size_t>(num_places)) {
  config_.num_contributors = options.num_devices;
  config_.buffers = &buffers_;
  // With no threads the caller does all.
  const int threads = (options.num_threads + num_places - 1) / num_places;
  for (int i = 0; i < num_places; ++i) {
    places_.push_back(std::make_unique<ThreadPool>(threads));
  }
  group_->OnFailure([this](const absl::Status& why) {
    MutexLock lock(&mutex_);
    if (failure_.ok()) failure_ = why;
  });
}

LocalStore::~LocalStore() {
  Close();
  group_->OnFailure(nullptr);
}

absl::Status LocalStore::SetCompression(const CompressionConfig& config) {
  if (planner_.has_value()) {
    return absl::FailedPreconditionError("SetCompression after Init");
  }
  if (options_.updater != nullptr && config.reply == ReplyMode::kReencode) {
    return absl::InvalidArgumentError(
        "reply mode reencode beside an updater: weights are given dense");
  }
  config_.compression = config;
  // With an updater weights are given back, and no gradient.
  if (options_.updater != nullptr) {
    config_.compression.reply = ReplyMode::kDense;
  }
  // No link asks for fewer bytes.
  config_.compression.packing = ChoosePacking(config.packing, 0);
  return absl::OkStatus();
}

absl::Status LocalStore::SetOptimizer(const OptimizerConfig& config) {
  if (options_.updater != nullptr && config.update_on == UpdateOn::kServer) {
    return absl::InvalidArgumentError(
        "an optimizer in a store with an updater: it has one of them");
  }
  MutexLock lock(&mutex_);
  if (planner_.has_value()) {
    RETURN_IF_ERROR(CheckOptimizerChange(config_.optimizer, config));
    for (const auto& tensor : tensors_) {
      if (tensor->active == nullptr) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "SetOptimizer within a round of tensor ", tensor->spec.name));
    }
  }
  config_.optimizer = config;
  return absl::OkStatus();
}

absl::Status LocalStore::CheckInit(std::span<const TensorSpec> tensors,
                                   TensorViews values) const {
  RETURN_IF_ERROR(CheckTensors(tensors));
  RETURN_IF_ERROR(CheckPlaces(tensors, options_.num_devices));
  RETURN_IF_ERROR(CheckChunkElems(options_.chunk_elems));
  RETURN_IF_ERROR(CheckConfig(config_.compression, config_.optimizer, tensors));
  for (const TensorSpec& tensor : tensors) {
    if (key_of_.contains(tensor.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("Init of tensor ", tensor.name, ", which is there"));
    }
  }
  if (options_.updater != nullptr && values.empty()) {
    return absl::InvalidArgumentError(
        "an updater (StoreOptions::updater) needs initial values");
  }
  return CheckValues(tensors, values, options_.num_devices, config_.optimizer);
}

absl::StatusOr<std::vector<Key>> LocalStore::Init(
    std::span<const TensorSpec> tensors, TensorViews values) {
  RETURN_IF_ERROR(CheckInit(tensors, values));
  if (!planner_.has_value()) {
    config_.scratch_bytes = 4 * options_.chunk_elems;
    ASSIGN_OR_RETURN(planner_, ShardPlanner::Make(
                                   std::max(1, options_.emulated_servers),
                                   options_.chunk_elems, config_.compression));
  }
  const auto num_devices = static_cast<size_t>(options_.num_devices);
  const std::vector<size_t> places = DealOut(tensors, loads_);
  std::vector<Key> keys;
  for (size_t i = 0; i < tensors.size(); ++i) {
    RETURN_IF_ERROR(AddTensor(tensors[i], places[i]));
    keys.push_back(key_of_[tensors[i].name]);
    if (values.empty()) continue;
    const TensorViews own = values.subspan(i * num_devices, num_devices);
    RETURN_IF_ERROR(Broadcast(keys.back(), 0, own, 0).Wait(TimePoint::max()));
  }
  return keys;
}

absl::Status LocalStore::AddTensor(const TensorSpec& spec, size_t place) {
  ASSIGN_OR_RETURN(const TensorLayout layout, planner_->Add(spec));
  auto tensor = std::make_unique<Tensor>();
  tensor->spec = spec;
  tensor->place = places_[place].get();
  for (int device = 0; device < options_.num_devices; ++device) {
    const Device on = PlaceOf(spec, static_cast<size_t>(device));
    ASSIGN_OR_RETURN(const EngineConfig* config, devices_.Find(on, config_));
    ASSIGN_OR_RETURN(tensor->codecs.emplace_back(),
                     TensorCodec::Make(spec, layout, *config));
    TensorCodec* const made = tensor->codecs.back().get();
    RETURN_IF_ERROR(TensorCodec::Place({&made, 1}));
    tensor->is_on_device |= config->lane != nullptr;
  }
  if (tensor->is_on_device && device_pool_ == nullptr) {
    device_pool_ = std::make_unique<ThreadPool>(1);
  }
  for (const Chunk& chunk : layout.chunks) {
    ASSIGN_OR_RETURN(ChunkSum sum, ChunkSum::Make(layout, chunk, config_));
    tensor->sums.push_back(std::move(sum));
  }
  tensor->results.resize(layout.chunks.size());
  MutexLock lock(&mutex_);
  const auto key = static_cast<Key>(tensors_.size());
  if (options_.updater != nullptr) {
    tensor->weights =
        std::make_unique<UpdatedWeights>(options_.updater, key, spec);
  }
  key_of_[spec.name] = key;
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

Ticket LocalStore::PushPull(Key key, TensorViews grads, TensorViews outs,
                            int priority) {
  return Start(key, {true, true}, grads, outs, priority);
}

Ticket LocalStore::Push(Key key, TensorViews grads, int priority) {
  if (HasRows(grads)) return OnRows(key, {true, false}, grads, priority);
  return Start(key, {true, false}, grads, {}, priority);
}

Ticket LocalStore::Pull(Key key, TensorViews outs, int priority) {
  if (HasRows(outs)) return OnRows(key, {false, true}, outs, priority);
  return Start(key, {false, true}, {}, outs, priority);
}

// By whole tensors in between: nothing leaves the process.
Ticket LocalStore::OnRows(Key key, Halves halves, TensorViews views,
                          int priority) {
  const Tensor* tensor = nullptr;
  uint64_t step = 0;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = CheckKey(key, tensors_.size());
    if (!status.ok()) return FinishedTicket(status);
    tensor = tensors_[key].get();
    step = tensor->rounds;
  }
  const TensorSpec& spec = tensor->spec;
  absl::Status status = CheckRowViews(spec, views, options_.num_devices);
  const auto whole = std::make_shared<std::vector<Buffer>>();
  std::vector<TensorView> dense;
  for (size_t i = 0; status.ok() && i < views.size(); ++i) {
    float* const floats = whole->emplace_back(4 * spec.num_elems).as<float>();
    dense.push_back(FloatTensor(whole->back().view()));
    if (!halves.push) continue;
    const TensorCodec& codec = *tensor->codecs[i];
    if (codec.row_codec().has_value()) {
      status =
          AddRowsByCodec(config_.compression, codec, views[i], step, i, floats);
    } else {
      AddRows(spec, views[i], floats);
    }
  }
  if (!status.ok()) return FinishedTicket(status);
  if (halves.push) return Start(key, halves, dense, {}, priority, whole);
  const absl::Status pulled =
      Start(key, halves, {}, dense, priority, whole)
          .Wait(Clock::now() + group_->options().operation_timeout);
  for (size_t i = 0; pulled.ok() && i < views.size(); ++i) {
    GiveRows(spec, (*whole)[i].as<float>(), views[i]);
  }
  return FinishedTicket(pulled);
}

Ticket LocalStore::Start(Key key, Halves halves, TensorViews grads,
                         TensorViews outs, int priority,
                         std::shared_ptr<std::vector<Buffer>> memory) {
  Tensor* tensor = nullptr;
  std::shared_ptr<Op> op;
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return FinishedTicket(failure_);
    absl::Status status = CheckKey(key, tensors_.size());
    if (!status.ok()) return FinishedTicket(status);
    tensor = tensors_[key].get();
    if (halves.push) {
      status = CheckViews(tensor->spec, grads, options_.num_devices);
    }
    if (halves.pull) {
      status.Update(CheckViews(tensor->spec, outs, options_.num_devices));
    }
    status.Update(CheckTurn(tensor->spec, !halves.push && !tensor->has_value,
                            tensor->active != nullptr));
    if (!status.ok()) return FinishedTicket(status);
    if (tensor->spec.num_elems == 0) {
      tensor->rounds += halves.push ? 1 : 0;
      tensor->has_value = true;
      return FinishedTicket(absl::OkStatus());
    }
    op = std::make_shared<Op>();
    op->key = key;
    op->halves = halves;
    op->priority = priority;
    op->memory = std::move(memory);
    op->loan = std::make_unique<LocalLoan>(tensor->codecs, grads, outs);
    op->chunks_left = tensor->is_on_device ? 1 : tensor->sums.size();
    op->ticket = std::make_shared<Ticket::State>();
    op->ticket->describe = [name = tensor->spec.name, step = tensor->rounds] {
      return absl::StrCat("operation on tensor ", name, ", step ", step,
                          ", did not end in time");
    };
    op->ticket->release = [this, weak = std::weak_ptr(op)] {
      const auto live = weak.lock();
      if (live == nullptr) return;
      // Uses end with the kernels that run.
      AwaitRelease(*group_, live->ticket, [&](TimePoint deadline) {
        return live->loan->Release(deadline);
      });
    };
    tensor->active = op;
    ++num_ops_;
  }
  ThreadPool& pool = tensor->is_on_device ? *device_pool_ : *tensor->place;
  // Without threads it runs here.
  pool.Post(priority, [this, tensor, op] {
    tensor->is_on_device ? RunOnDevices(*tensor, op) : Begin(*tensor, op);
  });
  return Ticket(op->ticket);
}

void LocalStore::RunOnDevices(Tensor& tensor, const std::shared_ptr<Op>& op) {
  const LocalLoan::Uses uses = op->loan->Begin();
  absl::Status status = failure();
  op->loan->Follow();
  if (status.ok() && op->halves.push) {
    status = PushOnDevices(tensor, *op, uses);
  }
  if (status.ok() && op->halves.push && tensor.weights != nullptr) {
    op->updated = tensor.weights->Step(tensor.sums, tensor.results);
  }
  const bool pulls = op->halves.pull && op->updated.ok();
  for (size_t i = 0; status.ok() && pulls && i < tensor.sums.size(); ++i) {
    status = PullChunk(tensor, i, uses);
  }
  if (status.ok() && pulls) {
    status = LocalDevices::Decode(tensor.codecs, tensor.results, uses);
  }
  op->loan->End(uses);
  if (!status.ok()) group_->Fail(status);
  Finish(tensor, op);
}

absl::Status LocalStore::PushOnDevices(
    Tensor& tensor, Op& op, std::span<const BorrowedMemory::Use> uses) {
  ASSIGN_OR_RETURN(op.wishes, LocalDevices::Wishes(tensor.codecs, uses));
  for (ChunkSum& sum : tensor.sums) {
    RETURN_IF_ERROR(LocalDevices::AgreeFirst(tensor.codecs, op.wishes, sum));
  }
  RETURN_IF_ERROR(
      LocalDevices::Encode(tensor.codecs, tensor.sums[0].step(), uses));
  for (size_t i = 0; i < tensor.sums.size(); ++i) {
    RETURN_IF_ERROR(PushChunk(tensor, op, i, uses));
  }
  return absl::OkStatus();
}

// Before any chunk: scales are proposed from whole tensors.
void LocalStore::Begin(Tensor& tensor, const std::shared_ptr<Op>& op) {
  if (op->halves.push) {
    const LocalLoan::Uses uses = op->loan->Begin();
    for (size_t i = 0; i < tensor.codecs.size(); ++i) {
      op->wishes.push_back(tensor.codecs[i]->Wish(uses[i].in));
    }
    op->loan->End(uses);
  }
  for (size_t chunk = 0; chunk < tensor.sums.size(); ++chunk) {
    tensor.place->Post(op->priority, [this, &tensor, op, chunk] {
      RunChunk(tensor, op, chunk);
    });
  }
}

void LocalStore::RunChunk(Tensor& tensor, const std::shared_ptr<Op>& op,
                          size_t chunk) {
  const LocalLoan::Uses uses = op->loan->Begin();
  absl::Status status = failure();
  TimePoint begin = Clock::now();
  const auto note = [&](const char* what) {
    NoteSpan(options_.timeline, op->key, static_cast<uint32_t>(chunk), what,
             std::exchange(begin, Clock::now()));
  };
  if (status.ok() && op->halves.push) {
    status =
        LocalDevices::AgreeFirst(tensor.codecs, op->wishes, tensor.sums[chunk]);
  }
  if (status.ok() && op->halves.push) {
    status = PushChunk(tensor, *op, chunk, uses);
    note("encode and sum");
  }
  const bool has_step = op->halves.push && tensor.weights != nullptr;
  if (status.ok() && op->halves.pull && !has_step) {
    status = PullChunk(tensor, chunk, uses);
    note("decode");
  }
  op->loan->End(uses);
  if (!status.ok()) group_->Fail(status);
  if (op->chunks_left.fetch_sub(1) != 1) return;
  if (has_step) StepAndPull(tensor, *op);
  Finish(tensor, op);
}

// Steps the weights of a store with an updater, when all chunks of a push are
// summed.
void LocalStore::StepAndPull(Tensor& tensor, Op& op) {
  if (!failure().ok()) return;
  op.updated = tensor.weights->Step(tensor.sums, tensor.results);
  if (!op.halves.pull || !op.updated.ok()) return;
  const LocalLoan::Uses uses = op.loan->Begin();
  absl::Status status;
  for (size_t i = 0; status.ok() && i < tensor.sums.size(); ++i) {
    status = PullChunk(tensor, i, uses);
  }
  op.loan->End(uses);
  if (!status.ok()) group_->Fail(status);
}

absl::Status LocalStore::PushChunk(Tensor& tensor, const Op& op, size_t index,
                                   std::span<const BorrowedMemory::Use> uses) {
  ChunkSum& sum = tensor.sums[index];
  const Chunk& chunk = sum.chunk();
  const uint64_t step = sum.step();
  std::vector<ConstBytes> payloads;
  for (size_t i = 0; i < uses.size(); ++i) {
    ChunkCodec& codec = tensor.codecs[i]->chunks()[index];
    const PushRecord record = codec.Push(step, op.wishes[i]);
    EncodedChunk encoded;
    if (tensor.codecs[i]->lane() != nullptr) {
      encoded = tensor.codecs[i]->on_device(index).EndEncode();
    } else {
      ASSIGN_OR_RETURN(
          encoded,
          codec.Encode(step, i, PartOf(uses[i].in, chunk, codec.dtype())));
    }
    if (encoded.num_nonfinite > 0) {
      tensor.codecs[i]->CountNonFinite(encoded.num_nonfinite);
      if (encoded.is_refused) {
        return NonFiniteError(absl::StrCat("device/", i), static_cast<int>(i),
                              tensor.spec, step, uses[i].in,
                              tensor.codecs[i]->lane(), chunk, encoded);
      }
      num_nonfinite_ += static_cast<int64_t>(encoded.num_nonfinite);
    }
    payloads.push_back(encoded.payload);
    sum.Note(record.wish);
    push_raw_bytes_ += static_cast<int64_t>(4 * chunk.num_elems);
    push_wire_bytes_ +=
        static_cast<int64_t>(header_bytes_ + encoded.payload.size);
  }
  ASSIGN_OR_RETURN(tensor.results[index], sum.Sum(payloads, nullptr, {}));
  sum.Finish(tensor.results[index].record);
  if (tensor.weights != nullptr) {
    tensor.weights->TakeSum(chunk, tensor.results[index].payload);
  }
  for (const auto& codec : tensor.codecs) {
    codec->chunks()[index].Agree(tensor.results[index].record.agreed);
  }
  return absl::OkStatus();
}

absl::Status LocalStore::PullChunk(Tensor& tensor, size_t index,
                                   std::span<const BorrowedMemory::Use> uses) {
  const Chunk& chunk = tensor.sums[index].chunk();
  const ChunkResult& result = tensor.results[index];
  for (size_t i = 0; i < uses.size(); ++i) {
    ChunkCodec& codec = tensor.codecs[i]->chunks()[index];
    if (tensor.codecs[i]->lane() == nullptr) {
      RETURN_IF_ERROR(codec.Decode(result.record, result.payload,
                                   PartOf(uses[i].out, chunk, codec.dtype())));
    }
    pull_raw_bytes_ += static_cast<int64_t>(codec.value_bytes());
    pull_wire_bytes_ +=
        static_cast<int64_t>(header_bytes_ + result.payload.size);
  }
  return absl::OkStatus();
}

void LocalStore::Finish(Tensor& tensor, const std::shared_ptr<Op>& op) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = failure_;
    status.Update(op->updated);
    if (op->halves.push) {
      ++tensor.rounds;
      tensor.has_value = true;
    }
    tensor.active = nullptr;
  }
  op->ticket->Finish(status);
  MutexLock lock(&mutex_);
  if (--num_ops_ == 0) ops_changed_.NotifyAll();
}

Ticket LocalStore::Broadcast(Key key, int root, TensorViews values, int) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return FinishedTicket(failure_);
  absl::Status status = CheckRoot(root, 1);
  status.Update(CheckKey(key, tensors_.size()));
  if (!status.ok()) return FinishedTicket(status);
  Tensor& tensor = *tensors_[key];
  status = CheckViews(tensor.spec, values, options_.num_devices);
  status.Update(
      CheckTurn(tensor.spec, /*lacks_value=*/false, tensor.active != nullptr));
  if (!status.ok()) return FinishedTicket(status);
  if (tensor.spec.num_elems == 0) {
    tensor.has_value = true;
    return FinishedTicket(absl::OkStatus());
  }
  const Buffer value(4 * tensor.spec.num_elems);
  const absl::Status spread =
      devices_.Spread(tensor.spec.dtype, values, value.view());
  if (!spread.ok()) return FinishedTicket(spread);
  tensor.has_value = true;
  if (tensor.weights != nullptr) {
    tensor.weights->Set(value.view(), tensor.sums, tensor.results);
    return FinishedTicket(absl::OkStatus());
  }
  for (size_t i = 0; i < tensor.sums.size(); ++i) {
    const Chunk& chunk = tensor.sums[i].chunk();
    const Bytes part = PartOf(value.view(), chunk, Dtype::kFloat32);
    std::shared_ptr<Buffer> copy = buffers_.Get(part.size);
    std::memcpy(copy->data(), part.data, part.size);
    tensor.results[i] = {.buffer = copy, .payload = copy->view()};
    tensor.sums[i].SetValue(std::move(copy));
  }
  return FinishedTicket(absl::OkStatus());
}

StoreStats LocalStore::stats() const {
  return {.push_raw_bytes = push_raw_bytes_,
          .push_wire_bytes = push_wire_bytes_,
          .pull_raw_bytes = pull_raw_bytes_,
          .pull_wire_bytes = pull_wire_bytes_,
          .num_nonfinite = num_nonfinite_,
          .to_device_bytes = devices_.up_bytes(),
          .from_device_bytes = devices_.down_bytes()};
}

absl::Status LocalStore::SetCodec(Key key, int codec) {
  MutexLock lock(&mutex_);
  if (key >= tensors_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", key, " of a store with ", tensors_.size(), " tensors"));
  }
  for (const auto& each : tensors_[key]->codecs) {
    RETURN_IF_ERROR(each->SetCodec(codec));
  }
  return absl::OkStatus();
}

std::vector<TensorReport> LocalStore::Report() const {
  MutexLock lock(&mutex_);
  std::vector<TensorReport> reports;
  for (const auto& tensor : tensors_) {
    reports.push_back(tensor->codecs[0]->Report(tensor->rounds));
  }
  return reports;
}

absl::Status LocalStore::failure() const {
  MutexLock lock(&mutex_);
  return failure_;
}

void LocalStore::Close() {
  {
    MutexLock lock(&mutex_);
    if (is_closed_) return;
    is_closed_ = true;
    if (failure_.ok()) {
      failure_ = absl::FailedPreconditionError("the store is closed");
    }
    // Chunks that have not begun end at once.
    while (num_ops_ > 0) {
      ops_changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
    }
  }
  group_->Leave();
}

}  // namespace telegrad
