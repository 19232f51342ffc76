#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/states.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_part.h"
#include "trainer/checkpoint/cursor.h"
#include "trainer/networks/network.h"

namespace telegrad {

// A checkpoint of W workers for W' of them (--reshard-residuals): which parts a
// worker reads, and what it makes of codecs' states. One thread.
class Resharding {
 public:
  // Takes a manifest that fits but for workers and servers. DataLoss where it
  // says no such numbers.
  static absl::StatusOr<Resharding> Make(const Manifest& manifest, bool drops,
                                         int rank, int num_workers);

  // The part whose weights, statistics and settings this worker gets: rank mod
  // W.
  int own_part() const { return rank_ % num_saved_; }
  // The others that it reads: their residuals are added to its own in the order
  // of ranks (worker i's go to i mod W'), or rank 0 measures what all lose.
  std::vector<int> other_parts() const;
  // The batch of an epoch at which as many samples of it are done.
  int64_t BatchAfter(int64_t batch) const;
  // Makes what an old worker had of all bytes and waiting a new worker's share.
  void Divide(Cursor& cursor) const;

  // In the order of other_parts(), for the calls of Recut.
  void set_others(std::vector<std::unique_ptr<PartReader>> others) {
    others_ = std::move(others);
  }
  // What CodecStates::LoadCodec gets, of this worker's part. All tensors in
  // turn. FailedPrecondition where the part has none.
  absl::StatusOr<std::string> Recut(CodecStates& codecs, Key key,
                                    const Parameter& parameter,
                                    std::string own);
  // Afterwards: a sentence on what became of residuals. `step_per_norm` is the
  // share of the weights' norm by which a plain step changes these, for a sum
  // of gradients of norm 1.
  std::string Describe(double step_per_norm) const;

 private:
  bool drops_ = false;
  int rank_ = 0;
  int num_workers_ = 1;
  int num_saved_ = 1;
  int num_servers_ = 1;  // the saved run's servers
  std::vector<std::unique_ptr<PartReader>> others_;
  std::vector<std::pair<double, std::string>> lost_;  // norm, tensor
};

}  // namespace telegrad
