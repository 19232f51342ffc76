#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kvstore/collective/schedules.h"

// What schedules are made of.
namespace telegrad::collective {

inline int Wrapped(int rank, int world_size) {
  return ((rank % world_size) + world_size) % world_size;
}

inline size_t PieceBytes(const Place& place) {
  return place.chunk_bytes / 64 * 64;
}

// Calls `each(offset, bytes)` for the pieces of `block`.
template <typename Each>
void ForPieces(const Place& place, const Block& block, const Each& each) {
  const size_t piece = PieceBytes(place);
  for (size_t begin = 0; begin < block.bytes; begin += piece) {
    each(block.offset + begin, std::min(piece, block.bytes - begin));
  }
}

// An empty one, of a group in which `place` is one of all ranks.
inline Schedule MakeSchedule(const Place& place, Dtype type = Dtype::kFloat32,
                             ReduceOp op = ReduceOp::kSum) {
  Schedule schedule{.type = type, .op = op};
  schedule.peers.resize(static_cast<size_t>(place.world_size));
  return schedule;
}

struct RingStep {
  const std::byte* send_from = nullptr;  // null: what the step before has kept
  std::byte* place = nullptr;            // where what is received goes
  size_t place_offset = 0;               // where `place` begins among blocks
  Combine combine = Combine::kStore;
};

// In step s each rank sends block first - s to the next rank, and receives
// block first - s - 1, which it sends in the step after. `step_of(s)` gives
// memories to which the blocks' offsets are added. It begins after `start`; the
// mark that comes back has all before it.
template <typename StepOf>
Mark AppendRing(Schedule& schedule, const Place& place, const Blocks& blocks,
                int first, int num_steps, const StepOf& step_of,
                Mark start = {}) {
  const int n = place.world_size;
  const int left = place.In(Wrapped(place.rank - 1, n));
  std::vector<Receive>& receives = schedule.peers[left].receives;
  std::vector<PieceSend>& sends =
      schedule.peers[place.In(Wrapped(place.rank + 1, n))].sends;
  const size_t before = receives.size();
  size_t received_before = before;  // when the step before began
  for (int s = 0; s < num_steps; ++s) {
    const RingStep step = step_of(s);
    size_t received = received_before;
    ForPieces(place, blocks[Wrapped(first - s, n)],
              [&](size_t offset, size_t bytes) {
                PieceSend send{.bytes = bytes, .after = start};
                if (step.send_from != nullptr) {
                  send.from = step.send_from + offset;
                }
                if (s > 0) send.after = {left, ++received};
                sends.push_back(send);
              });
    received_before = receives.size();
    ForPieces(place, blocks[Wrapped(first - s - 1, n)],
              [&](size_t offset, size_t bytes) {
                receives.push_back(
                    {.bytes = bytes,
                     .place = step.place + (offset - step.place_offset),
                     .combine = step.combine,
                     .after = start});
              });
  }
  if (receives.size() == before) return start;
  schedule.is_ordered |= start.peer >= 0;
  return {left, receives.size()};
}

}  // namespace telegrad::collective
