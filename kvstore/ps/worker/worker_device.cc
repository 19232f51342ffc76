#include "kvstore/ps/worker/worker_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/short_slices.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kvstore/engine/codec/floats.h"
#include "kvstore/ps/worker/chunk_pipeline.h"

namespace telegrad {
namespace {

using State = kernels::DeviceQueue::State;

// A device that has passed something says so; in case it does not.
constexpr Duration kLookPause = std::chrono::milliseconds(1);
constexpr Duration kIdlePause = std::chrono::seconds(1);
// What takes longer never ends.
constexpr Duration kFaultGrace = std::chrono::seconds(60);
// Groups of encodings that are under way; meanwhile the next one gathers.
constexpr size_t kMostEncoding = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerDevice>> WorkerDevice::Make(
    Device device, ChunkPipeline* pipeline) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceLane> lane, DeviceLane::Make(device));
  return std::unique_ptr<WorkerDevice>(
      new WorkerDevice(std::move(lane), pipeline));
}

WorkerDevice::WorkerDevice(std::unique_ptr<DeviceLane> lane,
                           ChunkPipeline* pipeline)
    : lane_(std::move(lane)),
      pipeline_(*pipeline),
      thread_(StartThread([this] { Run(); })) {}

WorkerDevice::~WorkerDevice() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  lane_.reset();  // its streams call back until then
}

const EngineConfig& WorkerDevice::Configure(const EngineConfig& worker,
                                            CardAccess cards) {
  if (config_.lane == nullptr) {
    config_ = worker;
    config_.lane = lane_.get();
    config_.cards = cards;
    config_.buffers = &lane_->host_buffers();
  }
  return config_;
}

std::shared_ptr<WorkerOp> WorkerDevice::MakeOp(OpKind kind, Key key,
                                               const TensorView* grad,
                                               const TensorView* out) {
  const Event ready = lane_->TakeEvent();
  const Event out_ready = lane_->TakeEvent();
  const Stream stream = grad != nullptr ? grad->stream : Stream{};
  if (grad != nullptr) lane_->Record(ready, stream);
  if (out != nullptr) lane_->Record(out_ready, out->stream);
  auto op = std::make_shared<WorkerOp>(
      kind, key, grad != nullptr ? ConstBytes(grad->bytes) : ConstBytes(),
      out != nullptr ? out->bytes : Bytes(), lane_.get(), ready);
  op->stream = stream;
  op->out_ready = out_ready;
  op->result = lane_->TakeEvent();
  return op;
}

void WorkerDevice::Push(WorkerTensor& tensor,
                        const std::shared_ptr<WorkerOp>& op) {
  op->num_to_agree = tensor.chunks.size();
  Post({.stage = Stage::kPush, .tensor = &tensor, .op = op});
}

void WorkerDevice::GiveValue(WorkerTensor& tensor,
                             const std::shared_ptr<WorkerOp>& op) {
  Post({.stage = Stage::kGive, .tensor = &tensor, .op = op});
}

void WorkerDevice::Agreed(WorkerChunk& chunk) {
  if (chunk.op->num_to_agree.fetch_sub(1) != 1) return;
  Post({.stage = Stage::kEncode, .tensor = chunk.tensor, .op = chunk.op});
}

void WorkerDevice::Decode(WorkerChunk& chunk) {
  Post({.stage = Stage::kDecode,
        .tensor = chunk.tensor,
        .op = chunk.op,
        .chunk = &chunk});
}

void WorkerDevice::Post(Item item) {
  if (!pipeline_.CountJob()) return;
  {
    MutexLock lock(&mutex_);
    posted_.push_back(std::move(item));
  }
  changed_.NotifyAll();
}

void WorkerDevice::Run() {
  const ShortSlices slices;
  const kernels::DeviceScope scope(lane_->device());
  std::vector<Item> items;
  while (true) {
    if (!Wait()) return;
    Look();
    // What was posted before anything that is ready goes along with it.
    do TakeReady(items);
    while (TakePosted(items));
    answers_.MoveTo(items, pipeline_.options(), pipeline_.failure().is_set());
    items.insert(items.end(), std::make_move_iterator(next_.begin()),
                 std::make_move_iterator(next_.end()));
    next_.clear();
    if (!items.empty()) Queue(items);
    items.clear();
  }
}

bool WorkerDevice::TakePosted(std::vector<Item>& items) {
  std::vector<Item> posted;
  {
    MutexLock lock(&mutex_);
    posted.swap(posted_);
  }
  for (Item& item : posted) {
    if (item.stage == Stage::kDecode) {
      const size_t num_elems = item.chunk->plan().num_elems;
      answers_.Add(std::move(item), num_elems);
      continue;
    }
    if (item.stage != Stage::kPush && item.stage != Stage::kGive) {
      items.push_back(std::move(item));
      continue;
    }
    lane_->Notify([](void* self) { static_cast<WorkerDevice*>(self)->Wake(); },
                  this, item.op->ready);
    waiting_.push_back(std::move(item));
  }
  return !posted.empty();
}

// In the order of a stream one that is not ready has none behind it that is.
// One that never will be ends the job.
bool WorkerDevice::IsReady(const Item& item, std::vector<Stream>& busy) {
  const Stream stream = item.op->stream;
  for (const Stream each : busy) {
    if (each.handle == stream.handle) return false;
  }
  const State state = lane_->Poll(item.op->ready);
  if (state == State::kFailed) FailDevice("a gradient is never ready");
  if (state != State::kRunning) return true;
  busy.push_back(stream);
  return false;
}

void WorkerDevice::TakeReady(std::vector<Item>& items) {
  const auto num_encoding = static_cast<size_t>(
      std::count_if(groups_.begin(), groups_.end(),
                    [](const Group& group) { return group.encodes; }));
  const size_t most_elems = pipeline_.options().device_group_elems;
  has_more_ = false;
  if (num_encoding >= kMostEncoding && !pipeline_.failure().is_set()) return;
  std::vector<Stream> busy;
  size_t num_elems = 0;
  for (const Item& item : items) {
    if (item.stage == Stage::kPush) num_elems += item.tensor->spec().num_elems;
  }
  for (Item& item : waiting_) {
    if (!pipeline_.failure().is_set()) {
      if (!IsReady(item, busy)) continue;
      if (num_elems >= most_elems) {
        has_more_ = true;
        if (item.stage != Stage::kPush) continue;
        const absl::Status status = item.BeginWish();
        if (!status.ok()) Fail(status);
        continue;
      }
    }
    num_elems += item.tensor->spec().num_elems;
    items.push_back(std::move(item));
  }
  std::erase_if(waiting_, [](const Item& item) { return item.op == nullptr; });
}

void WorkerDevice::Wake() {
  {
    MutexLock lock(&mutex_);
    is_woken_ = true;
  }
  changed_.NotifyAll();
}

bool WorkerDevice::Wait() {
  const bool is_idle = groups_.empty() && waiting_.empty() && answers_.empty();
  const TimePoint until = Clock::now() + (is_idle ? kIdlePause : kLookPause);
  MutexLock lock(&mutex_);
  while (posted_.empty() && !is_woken_ && !is_stopping_ && !has_more_ &&
         Clock::now() < until) {
    changed_.WaitUntil(&mutex_, until);
  }
  is_woken_ = false;
  return !is_stopping_;
}

// What is to be encoded, and copies up; then what they are for.
void WorkerDevice::Queue(std::vector<Item>& items) {
  Group decoded;
  Group others;
  absl::Status status;
  for (Item& item : items) {
    if (pipeline_.failure().is_set() || !status.ok()) {
      Drop(item);
      continue;
    }
    // Where it fails, some of it may have been queued.
    status = Begin(item);
    Group& group = item.stage == Stage::kDecode ? decoded : others;
    group.items.push_back(std::move(item));
  }
  lane_->Launch();
  lane_->EndUp();
  if (!decoded.items.empty()) status.Update(EndDecodes(decoded));
  const DeviceLane::Events events = lane_->Submit();
  status.Update(lane_->status());
  decoded.event = events.kernels;
  others.event = events.copies;
  decoded.since = others.since = Clock::now();
  others.encodes = true;
  for (Group* group : {&decoded, &others}) {
    if (group->items.empty()) {
      lane_->Return(group->event);
    } else {
      groups_.push_back(std::move(*group));
    }
  }
  if (!status.ok()) Fail(status);
  lane_->Notify([](void* self) { static_cast<WorkerDevice*>(self)->Wake(); },
                this);
}

absl::Status WorkerDevice::EndDecodes(const Group& group) {
  absl::Status status;
  for (const Item& item : group.items) {
    WorkerChunk& chunk = *item.chunk;
    status.Update(chunk.on_device().EndDecode(
        chunk.record, chunk.reply_payload.size,
        PartOf(chunk.memory.out, chunk.plan(), chunk.codec->dtype())));
  }
  lane_->Launch();
  for (const Item& item : group.items) {
    if (item.op->answers_left.fetch_sub(1) != 1) continue;
    lane_->Record(item.op->result, lane_->stream());
    item.op->ticket->Queued();
  }
  return status;
}

absl::Status WorkerDevice::Item::BeginWish() {
  if (std::exchange(is_sampled, true)) return absl::OkStatus();
  use = op->memory.Begin();
  return tensor->codec->BeginWish(use.in);
}

absl::Status WorkerDevice::Begin(Item& item) {
  WorkerTensor& tensor = *item.tensor;
  switch (item.stage) {
    case Stage::kPush:
      RETURN_IF_ERROR(item.BeginWish());
      tensor.codec->CopyWish();
      if (tensor.codec->chunks()[0].NeedsScale(item.op->step)) {
        item.stage = Stage::kWished;
        return absl::OkStatus();
      }
      return BeginEncode(item);
    case Stage::kEncode:
      return BeginEncode(item);
    case Stage::kGive:
      return BeginGive(item);
    case Stage::kDecode: {
      WorkerChunk& chunk = *item.chunk;
      FollowOutput(*item.op);
      return chunk.on_device().BeginDecode(
          chunk.record, chunk.reply_payload,
          PartOf(chunk.memory.out, chunk.plan(), chunk.codec->dtype()));
    }
    case Stage::kCopied:
    case Stage::kWished:
    case Stage::kEncoded:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

// Once for an operation.
void WorkerDevice::FollowOutput(WorkerOp& op) {
  if (std::exchange(op.follows_output, true)) return;
  lane_->Follow(op.out_ready);
}

absl::Status WorkerDevice::BeginEncode(Item& item) {
  const bool has_wish = item.stage == Stage::kEncode;
  item.stage = Stage::kEncoded;
  item.op->has_wish = has_wish;
  for (const auto& chunk : item.tensor->chunks) {
    chunk->memory = item.op->memory.Begin();
    RETURN_IF_ERROR(chunk->on_device().BeginEncode(
        item.op->step, static_cast<uint64_t>(pipeline_.group().rank()),
        PartOf(chunk->memory.in, chunk->plan(), chunk->codec->dtype())));
  }
  return absl::OkStatus();
}

absl::Status WorkerDevice::BeginGive(Item& item) {
  item.use = item.op->memory.Begin();
  for (const auto& chunk : item.tensor->chunks) {
    chunk->value = lane_->host_buffers().Get(chunk->codec->value_bytes());
    RETURN_IF_ERROR(chunk->on_device().CopyValue(
        PartOf(item.use.in, chunk->plan(), chunk->codec->dtype()),
        chunk->value->view()));
  }
  return absl::OkStatus();
}

void WorkerDevice::Look() {
  for (size_t i = 0; i < groups_.size();) {
    Group& group = groups_[i];
    State state = lane_->Poll(group.event);
    if (state == State::kRunning && Clock::now() < group.since + kFaultGrace) {
      ++i;
      continue;
    }
    if (state != State::kPassed) {
      FailDevice(state == State::kRunning ? "what was queued does not end"
                                          : "what was queued failed");
    }
    lane_->Return(group.event);
    std::vector<Item> items = std::move(group.items);
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i));
    for (Item& item : items) {
      item.op->memory.End(std::exchange(item.use.is_borrowed, false));
      pipeline_.failure().is_set() ? Drop(item) : Go(item);
    }
  }
}

// What comes after the device's part.
void WorkerDevice::Go(Item& item) {
  WorkerTensor& tensor = *item.tensor;
  switch (item.stage) {
    case Stage::kWished:
      item.op->wish = tensor.codec->EndWish();
      for (const auto& chunk : tensor.chunks) {
        pipeline_.SendFrame(*chunk, FrameType::kPropose, {},
                            ChunkPhase::kProposing);
      }
      break;
    case Stage::kEncoded:
      if (!item.op->has_wish) item.op->wish = tensor.codec->EndWish();
      return CopyCodes(item);
    case Stage::kCopied:
      HandChunks(item);
      break;
    case Stage::kGive:
      SendValues(item);
      break;
    case Stage::kDecode:
      item.op = nullptr;  // the ticket may end
      pipeline_.FinishChunk(*item.chunk);
      break;
    case Stage::kPush:
    case Stage::kEncode:
      break;
  }
  pipeline_.EndJob();
}

// The codes of which the number was not known are one more group.
void WorkerDevice::CopyCodes(Item& item) {
  bool has_copies = false;
  for (const auto& chunk : item.tensor->chunks) {
    const absl::StatusOr<bool> copies = chunk->on_device().CopyCodes();
    if (!copies.ok()) {
      Fail(copies.status());
      return Drop(item);
    }
    has_copies |= *copies;
  }
  item.stage = Stage::kCopied;
  if (has_copies) {
    next_.push_back(std::move(item));
  } else {
    Go(item);
  }
}

void WorkerDevice::HandChunks(Item& item) {
  for (const auto& chunk : item.tensor->chunks) {
    chunk->is_begun = true;
    pipeline_.PostChunk(*chunk);
  }
}

void WorkerDevice::SendValues(Item& item) {
  for (const auto& chunk : item.tensor->chunks) {
    chunk->memory = {};
    pipeline_.SendFrame(*chunk, FrameType::kInit, chunk->value->view(),
                        ChunkPhase::kSent);
  }
}

// After a failure: nothing goes on.
void WorkerDevice::Drop(Item& item) {
  item.op->memory.End(std::exchange(item.use.is_borrowed, false));
  item.op = nullptr;
  pipeline_.EndJob();
}

void WorkerDevice::FailDevice(const char* what) {
  const absl::Status why = lane_->status();
  Fail(why.ok() ? DeviceFault(what) : why);
}

void WorkerDevice::Fail(const absl::Status& why) {
  pipeline_.failure().FailJob(WithExitCode(
      ExitCodeOf(why),
      absl::Status(why.code(), absl::StrCat(ToString(pipeline_.group().id()),
                                            ": ", why.message()))));
}

}  // namespace telegrad
