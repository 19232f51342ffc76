#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

// Work of emulated devices, which runs when somebody waits or asks for it, in
// an order that a seed chooses and that only streams and events constrain.
namespace telegrad::simt {

struct EventState {
  explicit EventState(int of_device) : device(of_device) {}
  const int device;
  uint64_t last = 0;  // record
  bool is_captured = false;
  bool is_promised = false;    // passed by somebody else than a stream
  std::set<uint64_t> pending;  // records that have not been passed
  std::chrono::steady_clock::time_point passed;
};

struct Work {
  std::function<void()> run;
  bool is_host_call = false;
  // Nothing of the stream runs before this record of it has been passed.
  std::shared_ptr<EventState> after = nullptr;
  uint64_t record = 0;
  bool is_kernel = false;
};

}  // namespace telegrad::simt

struct SimtStream {
  explicit SimtStream(int of_device) : device(of_device) {}
  const int device;
  std::deque<telegrad::simt::Work> work;
  bool is_busy = false;  // with a call on the host, or held
};

namespace telegrad::simt {

using StreamState = ::SimtStream;

// Thread-safe; kernels and copies run one at a time.
class Engine {
 public:
  static Engine& Get();

  StreamState* MakeStream(int device);
  void Hold(StreamState* stream, bool is_held);
  void HoldKernels(bool are_held);
  void RunAll();
  void EndStream(StreamState* stream);  // after its work
  StreamState* DefaultStream(int device);

  void Queue(StreamState* stream, std::function<void()> run,
             bool is_kernel = false);
  void QueueHostCall(StreamState* stream, std::function<void()> run);
  void Record(StreamState* stream, const std::shared_ptr<EventState>& event);
  void WaitFor(StreamState* stream, const std::shared_ptr<EventState>& event);

  // An event that is promised has been passed.
  void Pass(EventState& event);

  // Runs something, then says whether the last record has been passed, or all
  // work of the stream is done.
  bool Poll(EventState& event);
  bool Poll(const StreamState* stream);
  void Finish(const StreamState* stream);
  void Finish(const EventState& event);
  void FinishDevice(int device);

  void SetOrder(uint64_t seed);

 private:
  using Lock = std::unique_lock<std::mutex>;

  Engine();
  void Push(StreamState* stream, Work work, Lock& lock);
  bool IsBlocked(const StreamState& stream) const;
  bool RunOne(Lock& lock);  // false: nothing can run now
  bool RunSome(Lock& lock, const std::function<bool()>& is_over);
  void RunUntil(Lock& lock, const std::function<bool()>& is_over);
  uint64_t Random(uint64_t below);
  bool HasHostCalls() const;
  void RunForHostCalls();  // a thread's

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<StreamState>> streams_;
  std::vector<StreamState*> default_streams_;
  uint64_t seed_ = 1;
  uint64_t state_ = 1;
  bool has_thread_ = false;
  bool holds_kernels_ = false;
};

}  // namespace telegrad::simt
