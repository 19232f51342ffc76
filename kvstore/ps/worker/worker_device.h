#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/tensor_view.h"
#include "kvstore/engine/device/device_lane.h"
#include "kvstore/ps/worker/gathered_answers.h"
#include "kvstore/ps/worker/worker_tensor.h"

namespace telegrad {

class ChunkPipeline;

// What a worker does with tensors on one device. A thread takes the tensors
// of which the gradients have become ready since it last looked, and the
// answers that have come, queues all of it as one group, by few launches and
// copies, and looks for groups that have passed: the device works meanwhile,
// nobody waits for it. Then chunks go on as those of host tensors do, on the
// pool.
class WorkerDevice {
 public:
  // Unimplemented, with the reason, where there is no such device. `pipeline`
  // outlives it.
  static absl::StatusOr<std::unique_ptr<WorkerDevice>> Make(
      Device device, ChunkPipeline* pipeline);
  // When its jobs have ended.
  ~WorkerDevice();

  DeviceLane& lane() { return *lane_; }
  // The configuration for tensors here: the worker's, on this device, with what
  // the network does with its memory.
  const EngineConfig& Configure(const EngineConfig& worker, CardAccess cards);

  // By the caller of an operation: `grad` and `out`, null where there is none,
  // are ready when what their streams have been given so far has passed.
  std::shared_ptr<WorkerOp> MakeOp(OpKind kind, Key key, const TensorView* grad,
                                   const TensorView* out);
  void Push(WorkerTensor& tensor, const std::shared_ptr<WorkerOp>& op);
  void GiveValue(WorkerTensor& tensor, const std::shared_ptr<WorkerOp>& op);
  // The first scale of a chunk is agreed on: with the last one the tensor is
  // encoded.
  void Agreed(WorkerChunk& chunk);
  // So many answers are to come, each of which Decode gets.
  void Expect(size_t num_answers) { answers_.Expect(num_answers); }
  // Decodes the chunk's answer, which was checked.
  void Decode(WorkerChunk& chunk);

 private:
  enum class Stage : uint8_t {
    kPush,    // wish and encode, or wish alone where a scale is to be agreed on
    kWished,  // waits for the wish alone
    kEncode,
    kEncoded,
    kCopied,  // codes of which the number was not known
    kGive,
    kDecode,
  };
  // A job of the pipeline (CountJob), of a tensor or of one chunk.
  struct Item {
    Stage stage = Stage::kPush;
    WorkerTensor* tensor = nullptr;
    std::shared_ptr<WorkerOp> op = nullptr;
    WorkerChunk* chunk = nullptr;
    BorrowedMemory::Use use = {};  // until it has passed
    bool is_sampled = false;       // its wish has begun

    // Queues the wish of a push, once.
    absl::Status BeginWish();
  };
  struct Group {
    Event event;
    std::vector<Item> items;
    TimePoint since;
    bool encodes = false;
  };

  WorkerDevice(std::unique_ptr<DeviceLane> lane, ChunkPipeline* pipeline);
  void Post(Item item);
  void Run();
  // For something to do; false at the end.
  bool Wait();
  void Wake();
  // Adds what was posted, if anything was, but for gradients that may not be
  // ready: they wait.
  bool TakePosted(std::vector<Item>& items);
  // Adds those that are, a group's worth at most. The wishes of the others that
  // are ready go along, so that all of them are one launch.
  void TakeReady(std::vector<Item>& items);
  bool IsReady(const Item& item, std::vector<Stream>& busy);
  // Queues the items as groups.
  void Queue(std::vector<Item>& items);
  absl::Status Begin(Item& item);
  absl::Status EndDecodes(const Group& group);
  absl::Status BeginEncode(Item& item);
  absl::Status BeginGive(Item& item);
  void FollowOutput(WorkerOp& op);
  // Goes on with groups that have passed.
  void Look();
  void Go(Item& item);
  void CopyCodes(Item& item);
  void HandChunks(Item& item);
  void SendValues(Item& item);
  void Drop(Item& item);
  // With what the device says, else `what`.
  void FailDevice(const char* what);
  void Fail(const absl::Status& why);

  std::unique_ptr<DeviceLane> lane_;
  ChunkPipeline& pipeline_;
  EngineConfig config_;
  // The thread's.
  std::deque<Group> groups_;
  std::vector<Item> waiting_;  // for their gradients
  GatheredAnswers<Item> answers_;
  bool has_more_ = false;   // more gradients are ready
  std::vector<Item> next_;  // what goes on

  Mutex mutex_;
  CondVar changed_;
  std::vector<Item> posted_ ABSL_GUARDED_BY(mutex_);
  bool is_woken_ ABSL_GUARDED_BY(mutex_) = false;  // a group may have passed
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace telegrad
