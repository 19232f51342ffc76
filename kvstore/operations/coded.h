#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/kvstore.h"
#include "kvstore/operations/devices.h"
#include "kvstore/operations/negotiation.h"
#include "kvstore/operations/queue.h"

namespace telegrad::operations {

// Allreduces with a codec, by a store whose workers sum for each other: each
// name is a key there, whose residuals last from step to step. Run by one
// thread; another one hears what is done, while that one agrees on the next.
class Coded {
 public:
  using Shared = std::shared_ptr<Submission>;
  // Called with one that is done, on either thread; it was started at `begin`.
  using Done = std::function<void(const Shared& mine, TimePoint begin,
                                  const absl::Status& status)>;

  // An operation that takes longer than `timeout` ends with what is missing.
  // Run uses `devices`.
  Coded(std::shared_ptr<KVStore> store, Duration timeout, Devices& devices,
        Done done);
  // After Drain.
  ~Coded();

  // Starts what all ranks have agreed on. The store makes keys of new names,
  // which all ranks do here, when nothing else is under way. An error is one of
  // the store, or of this rank alone.
  absl::Status Run(const std::vector<Response>& batch,
                   const std::vector<Shared>& mine);
  // Waits for what is under way.
  void Drain();

 private:
  // What a name is from its first request on, on all ranks.
  struct Tensor {
    TensorSpec spec;
    Key key = 0;
    int device = kHostMemory;  // where this rank has it
  };
  struct UnderWay {
    Shared mine = {};   // null: this rank has joined
    Shared copy = {};   // in host memory, where the store takes no other
    Buffer zeros = {};  // instead of who has joined
    Ticket ticket = {};
    TimePoint begin = {};
    double factor = 1;  // multiplies the result
  };

  TensorSpec SpecOf(const Request& request) const;
  absl::Status AddKeys(const std::vector<Response>& batch,
                       const std::vector<Shared>& mine,
                       std::vector<absl::Status>* refused);
  absl::Status Start(const Tensor& tensor, const Request& request,
                     const Shared& mine);
  absl::Status StartOnDevice(const Tensor& tensor, const Request& request,
                             UnderWay& begun, TensorView* from, TensorView* to);
  absl::Status Push(const Tensor& tensor, const TensorView& from,
                    const TensorView& to, UnderWay begun);
  absl::Status Multiply(Submission& mine, double factor);
  absl::Status GiveResult(UnderWay& ended);
  void End(UnderWay& ended);
  void HearEnds();
  void EndLate();

  const std::shared_ptr<KVStore> store_;
  const Duration timeout_;
  Devices& devices_;
  Devices devices_of_ends_;  // the other thread's
  const Done done_;
  const bool takes_devices_;  // not where workers of a host sum first
  std::unordered_map<std::string, Tensor> tensors_;  // by the request's name
  uint64_t last_tag_ = 0;
  CompletionQueue ends_;
  Mutex mutex_;
  CondVar ended_;
  // By tag, in the order in which they began.
  std::map<uint64_t, UnderWay> under_way_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace telegrad::operations
