#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/job/control/fatal_event.h"
#include "kvstore/job/control/membership.h"
#include "tests/kvstore/simulation/reference_sums.h"
#include "tests/kvstore/simulation/simulated_job.h"

namespace telegrad::testing {

// What a checkpoint of all workers has; `texts` by tensor, then rank.
struct SavedState {
  uint64_t epoch = 0;
  int workers = 0;
  int servers = 0;
  OfTensors weights;
  std::vector<std::vector<std::string>> texts;
  OfWorkers residuals;  // the reference's
  bool is_complete = false;
};

// Watches a job from outside and says what must not be. Threads of one
// VirtualWorld, of which one runs at a time.
class JobOracle {
 public:
  explicit JobOracle(const Scenario& scenario);

  // A worker has joined; where it goes on: the step, or 0 for the beginning.
  int64_t OnJoined(const Membership& membership);
  const SavedState& At(int64_t step) { return saved_[step]; }
  void OnCompared();  // a tensor, elsewhere
  // What a worker got for a step.
  void OnStep(uint64_t epoch, int64_t step, size_t tensor, const Values& out);
  // A worker's part of a checkpoint after so many steps; it is whole once
  // OnSaved was called.
  void Save(uint64_t epoch, int64_t step, int rank, const OfTensors& weights,
            std::vector<std::string> texts);
  void OnSaved(uint64_t epoch, int64_t step);

  void OnFatal(const FatalEvent& event);
  // Why a member's life ended, after which it joins again.
  void OnEpochsEnd(const absl::Status& why);
  void OnBlow(const Blow& blow);
  void Say(std::string wrong);
  void OnWrongFrame() { has_wrong_frames_ = true; }
  void OnLeaving();
  void OnEnd(int member, const absl::Status& status, int64_t num_steps);
  bool has_ended(int member) const { return ends_.contains(member); }
  bool is_worker(int member) const {
    return (member > 0 && member <= scenario_.workers) || is_newcomer(member);
  }

  // A worker's weights after the last step, which it did in that epoch.
  void OnWeights(uint64_t epoch, const OfTensors& weights);
  // The newest step that somebody has begun.
  int64_t newest_step() const;

  // Who must have ended, and how, once all that live have had time.
  void JudgeEnd();
  Outcome TakeOutcome();

 private:
  struct Epoch {
    std::vector<int> processes;
    int servers = 0;
    int64_t first = 0;
    int64_t end = 0;  // behind the last step of which anybody had a sum
    ReferenceSums reference;
  };
  struct End {
    absl::Status status;
    int64_t num_steps = 0;
  };
  bool is_newcomer(int member) const {
    return member > scenario_.workers + scenario_.servers;
  }
  // Who has ended by itself, for which its code is judged, is dead. Who has
  // just come answers for a frame that does not fit, whoever sent it.
  bool MayDie(int member) const {
    return struck_.contains(member) || has_ended(member) ||
           (has_wrong_frames_ && is_newcomer(member));
  }
  void OnNamed(int member, const std::string& by);
  void JudgeCode(int member, const End& end);
  void JudgeKill();
  void JudgeLedger();

  const Scenario scenario_;
  const std::vector<size_t> sizes_;
  std::map<uint64_t, Epoch> epochs_;
  std::map<int64_t, SavedState> saved_;
  std::map<int, End> ends_;
  std::set<int> struck_;   // by a blow
  std::set<int> named_;    // as dead, by anyone
  bool has_harm_ = false;  // a blow that may end or change the job
  bool has_wrong_frames_ = false;
  bool has_wrong_bytes_ = false;  // on their way between two members
  bool kill_counts_ = false;      // it came when all ran, and none was leaving
  int num_joined_ = 0;
  Duration first_sum_at_ = {};
  Outcome outcome_;
};

// Elements of the job's tensors.
std::vector<size_t> TensorSizes();

}  // namespace telegrad::testing
