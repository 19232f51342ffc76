#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "kvstore/ps/worker/worker.h"

namespace telegrad {

// A single view, which a step keeps.
inline TensorViews OneView(const TensorView& view) {
  return TensorViews(&view, 1);
}

// A tensor with rows of which the workers of a host push some, or all: they add
// them in the host's memory and note there which these are, so that the one
// that pushes hands on no others. Every worker pulls for itself, from where the
// hosts' sums are, since an optimizer may move any row. One operation at a
// time.
class HostRows {
 public:
  using Step = std::function<Ticket()>;  // HostStore's
  struct Stores {
    KVStore* first = nullptr;      // null: this worker is alone
    KVStore* second = nullptr;     // null: another one pushes,
    DistWorker* reader = nullptr;  // then this worker's store that reads
  };
  struct Keys {
    Key own = 0;  // in the second store
    Key first = 0;
    Key notes = 0;  // in the first, as well
  };

  // What the first store has of it besides: how many have pushed each row, and
  // behind them all rows.
  static TensorSpec Notes(const TensorSpec& tensor, size_t key);

  HostRows(const TensorSpec& tensor, const Stores& stores, const Keys& keys,
           bool has_value);

  // What all workers of the host do in a round; `grad` stays.
  std::vector<Step> Push(const TensorView& grad, int priority);
  Step Pull(const TensorView& out, int priority);
  // After a broadcast.
  Step Follow();

 private:
  Ticket Note(const TensorView& grad, int priority);
  Ticket TakeSums(int priority);
  Ticket PushSums(int priority);
  Ticket PushNotes(std::vector<int64_t> rows, int priority);
  TensorView Sums() const;

  const TensorSpec tensor_;
  const Stores stores_;
  const Keys keys_;
  // These belong to the round that runs.
  bool is_whole_ = false;
  std::vector<int64_t> rows_;
  Buffer notes_;
  Buffer sums_;
};

}  // namespace telegrad
