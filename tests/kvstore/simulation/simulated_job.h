#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kvstore/job/control/timing.h"
#include "tests/kvstore/simulation/faulty_frames.h"
#include "transport/encryption.h"

namespace telegrad::testing {

// What is done to a member, or to the path between two.
struct Blow {
  enum class Kind : uint8_t { kKill, kPause, kCut, kTamper, kReplace };
  Kind kind = Kind::kKill;
  int member = 0;  // by SimulatedJob's numbers
  int other = 0;   // kCut, kTamper: a bit between the two is another one
  Duration at = {};
  Duration time = {};  // kPause, kCut
};

// Short ones, so that a seed sees many ends.
constexpr ControlTiming kQuickTiming = {
    .join = std::chrono::seconds(5),
    .heartbeat = std::chrono::milliseconds(200),
    .dead = std::chrono::seconds(2),
    .teardown = std::chrono::seconds(1)};

// How workers train.
struct Pace {
  Duration least = std::chrono::milliseconds(1);  // a step's own work
  Duration most = std::chrono::milliseconds(30);
  int64_t steps_per_checkpoint = 2;
  Duration save = {};  // how long a checkpoint holds up the step
  Duration load = {};  // until a worker goes on in a new epoch
};

// Workers that are killed one after the other, each replaced by another one.
struct Kills {
  Duration every = {};      // zero: none is
  Duration start = {};      // from a kill until the other one begins to join
  bool are_silent = false;  // nobody hears of it, as of a machine without power
};

// A job and what happens to it: a pure function of the seed.
struct Scenario {
  uint64_t seed = 0;
  int workers = 2;
  int servers = 1;         // members of their own
  bool has_parts = false;  // each worker sums a part, and there are none
  bool is_async = false;   // dist_async, and none of the others
  int64_t max_staleness = -1;
  int hosts = 0;  // of workers, in turn, that sum first; 0: none do
  Encryption encryption = Encryption::kOff;  // others: there is a secret
  bool is_elastic = false;
  std::string codec = "none";
  int64_t steps = 8;
  bool resends = false;    // and the transport loses, repeats, reorders
  std::string fault = {};  // TransportOptions::fault
  double duplicates = 0;   // FrameFaults
  double flips = 0;
  double stale = 0;
  Duration latency = {};  // of bytes, at most
  std::vector<Blow> blows = {};
  Kills kills = {};  // of which nobody's end may come
  Pace pace = {};
  ControlTiming timing = kQuickTiming;
  // Far above what any end takes: deadlines of joins, silence and operations.
  Duration most = std::chrono::seconds(120);
  std::string ledger = {};  // a folder of JobOptions::ledger, which is counted
};

// What does not do its work, to see that the oracles say so.
struct Mutation {
  Blind blind = Blind::kNothing;
  bool loses_residuals = false;  // checkpoints are without them
};

// Members are numbered: 0 the scheduler, then workers, then servers, then a
// worker that comes later.
Scenario DrawScenario(uint64_t seed);
std::string Describe(const Scenario& scenario);

struct Outcome {
  std::vector<std::string> wrong;  // what an oracle says; empty: all is well
  std::string story;               // who ended how, for people
  uint64_t trace = 0;              // VirtualWorld::trace
  Duration passed = {};            // virtual
  Duration trained = {};           // from the first sum to the last
  int64_t num_steps = 0;           // committed by anyone, each once an epoch
  uint64_t num_epochs = 0;
  int num_kills = 0;
  // Steps of epochs, those that were done once more each time: as workers had
  // their sums, and as servers have written them into their ledgers.
  int64_t num_made = 0;
  int64_t num_summed = 0;
};

// Runs it to its end; once in a process, which is of no other use then.
Outcome RunScenario(const Scenario& scenario, const Mutation& mutation);

}  // namespace telegrad::testing
