#include "kvstore/collective/schedules.h"

#include "kvstore/collective/pieces.h"

namespace telegrad::collective {
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

Schedule RingReduceScatter(const Place& place, Dtype type, ReduceOp op,
                           const std::byte* in, std::byte* out,
                           const Blocks& blocks) {
  const int n = place.world_size;
  const size_t own = blocks[place.rank].offset;
  Schedule schedule = MakeSchedule(place, type, op);
  AppendRing(schedule, place, blocks, place.rank - 1, n - 1,
             [in, out, n, own](int s) {
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
  return schedule;
}

Schedule RingAllgather(const Place& place, std::byte* out,
                       const Blocks& blocks) {
  Schedule schedule = MakeSchedule(place);
  AppendRing(schedule, place, blocks, place.rank, place.world_size - 1,
             [out](int) { return RingStep{.send_from = out, .place = out}; });
  return schedule;
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
         .after = {distance > 0 ? left : -1, received}});
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
