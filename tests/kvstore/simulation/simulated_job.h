#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/kvstore/simulation/faulty_frames.h"

namespace telegrad::testing {

// What is done to a member, or to the path between two.
struct Blow {
  enum class Kind : uint8_t { kKill, kPause, kCut, kReplace };
  Kind kind = Kind::kKill;
  int member = 0;  // by SimulatedJob's numbers
  int other = 0;   // kCut
  Duration at = {};
  Duration time = {};  // kPause, kCut
};

// A job and what happens to it: a pure function of the seed.
struct Scenario {
  uint64_t seed = 0;
  int workers = 2;
  int servers = 1;         // members of their own
  bool has_parts = false;  // each worker sums a part, and there are none
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
  int64_t num_steps = 0;           // committed by anyone, each once an epoch
  uint64_t num_epochs = 0;
};

// Runs it to its end; once in a process, which is of no other use then.
Outcome RunScenario(const Scenario& scenario, const Mutation& mutation);

}  // namespace telegrad::testing
