#include "kvstore/collective/schedules.h"

#include <algorithm>

namespace telegrad::collective {
namespace {

int Wrapped(int rank, int world_size) {
  return ((rank % world_size) + world_size) % world_size;
}

// Calls `each(offset, bytes)` for the pieces of `block`.
template <typename Each>
void ForPieces(const Place& place, const Block& block, const Each& each) {
  const size_t piece = place.chunk_bytes / 64 * 64;
  for (size_t begin = 0; begin < block.bytes; begin += piece) {
    each(block.offset + begin, std::min(piece, block.bytes - begin));
  }
}

Schedule MakeSchedule(const Place& place) {
  Schedule schedule;
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
// memories to which the blocks' offsets are added.
template <typename StepOf>
Schedule Ring(const Place& place, const Blocks& blocks, int first,
              int num_steps, const StepOf& step_of) {
  Schedule schedule = MakeSchedule(place);
  const int n = place.world_size;
  const int left = Wrapped(place.rank - 1, n);
  std::vector<Receive>& receives = schedule.peers[left].receives;
  std::vector<PieceSend>& sends =
      schedule.peers[Wrapped(place.rank + 1, n)].sends;
  size_t received_before = 0;  // when the step before began
  for (int s = 0; s < num_steps; ++s) {
    const RingStep step = step_of(s);
    size_t received = received_before;
    ForPieces(place, blocks[Wrapped(first - s, n)],
              [&](size_t offset, size_t bytes) {
                PieceSend send{.bytes = bytes};
                if (step.send_from != nullptr) {
                  send.from = step.send_from + offset;
                }
                if (s > 0) {
                  send.after_peer = left;
                  send.after_count = ++received;
                }
                sends.push_back(send);
              });
    received_before = receives.size();
    ForPieces(place, blocks[Wrapped(first - s - 1, n)],
              [&](size_t offset, size_t bytes) {
                receives.push_back(
                    {.bytes = bytes,
                     .place = step.place + (offset - step.place_offset),
                     .combine = step.combine});
              });
  }
  return schedule;
}

}  // namespace

Blocks Divide(size_t count, size_t elem_bytes, int parts) {
  const auto n = static_cast<size_t>(parts);
  std::vector<size_t> bytes(n);
  for (size_t i = 0; i < n; ++i) {
    bytes[i] = (count / n + (i < count % n ? 1 : 0)) * elem_bytes;
  }
  return Concatenate(bytes);
}

Blocks Concatenate(const std::vector<size_t>& bytes) {
  Blocks blocks;
  size_t offset = 0;
  for (const size_t size : bytes) {
    blocks.push_back({.offset = offset, .bytes = size});
    offset += size;
  }
  return blocks;
}

// A sum that comes back into memory from which a part of it was sent has
// passed through the receiver of that part, which is done with it.
Schedule RingAllreduce(const Place& place, Dtype type, ReduceOp op,
                       std::byte* data, const Blocks& blocks) {
  const int n = place.world_size;
  Schedule schedule =
      Ring(place, blocks, place.rank, 2 * n - 2, [data, n](int s) {
        return RingStep{
            .send_from = data,
            .place = data,
            .combine = s < n - 1 ? Combine::kReduce : Combine::kStore};
      });
  schedule.type = type;
  schedule.op = op;
  return schedule;
}

Schedule RingReduceScatter(const Place& place, Dtype type, ReduceOp op,
                           const std::byte* in, std::byte* out,
                           const Blocks& blocks) {
  const int n = place.world_size;
  const size_t own = blocks[place.rank].offset;
  Schedule schedule =
      Ring(place, blocks, place.rank - 1, n - 1, [in, out, n, own](int s) {
        RingStep step{.send_from = s == 0 ? in : nullptr};
        if (s == n - 2) {
          step.place = out;
          step.place_offset = own;
          step.combine = Combine::kReduce;
        } else {
          // Only read.
          step.place = const_cast<std::byte*>(in);
          step.combine = Combine::kKeep;
        }
        return step;
      });
  schedule.type = type;
  schedule.op = op;
  return schedule;
}

Schedule RingAllgather(const Place& place, std::byte* out,
                       const Blocks& blocks) {
  return Ring(place, blocks, place.rank, place.world_size - 1,
              [out](int) { return RingStep{.send_from = out, .place = out}; });
}

Schedule DirectAllgather(const Place& place, std::byte* out,
                         const Blocks& blocks) {
  Schedule schedule = MakeSchedule(place);
  for (int peer = 0; peer < place.world_size; ++peer) {
    if (peer == place.rank) continue;
    ForPieces(place, blocks[place.rank], [&](size_t offset, size_t bytes) {
      schedule.peers[peer].sends.push_back(
          {.bytes = bytes, .from = out + offset});
    });
    ForPieces(place, blocks[peer], [&](size_t offset, size_t bytes) {
      schedule.peers[peer].receives.push_back(
          {.bytes = bytes, .place = out + offset});
    });
  }
  return schedule;
}

Schedule ChainBroadcast(const Place& place, std::byte* data, size_t bytes,
                        int root) {
  Schedule schedule = MakeSchedule(place);
  const int n = place.world_size;
  const int distance = Wrapped(place.rank - root, n);
  const int left = Wrapped(place.rank - 1, n);
  const int right = Wrapped(place.rank + 1, n);
  size_t received = 0;
  ForPieces(place, {.bytes = bytes}, [&](size_t offset, size_t size) {
    if (distance > 0) {
      schedule.peers[left].receives.push_back(
          {.bytes = size, .place = data + offset});
      ++received;
    }
    if (distance == n - 1) return;
    schedule.peers[right].sends.push_back(
        {.bytes = size,
         .from = data + offset,
         .after_peer = distance > 0 ? left : -1,
         .after_count = received});
  });
  return schedule;
}

Schedule PairwiseAlltoall(const Place& place, const std::byte* in,
                          const Blocks& sends, std::byte* out,
                          const Blocks& receives) {
  Schedule schedule = MakeSchedule(place);
  for (int peer = 0; peer < place.world_size; ++peer) {
    if (peer == place.rank) continue;
    ForPieces(place, sends[peer], [&](size_t offset, size_t bytes) {
      schedule.peers[peer].sends.push_back(
          {.bytes = bytes, .from = in + offset});
    });
    ForPieces(place, receives[peer], [&](size_t offset, size_t bytes) {
      schedule.peers[peer].receives.push_back(
          {.bytes = bytes, .place = out + offset});
    });
  }
  return schedule;
}

}  // namespace telegrad::collective
