#include "topology/sums.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "kvstore/collective/pieces.h"
#include "kvstore/collective/schedules.h"

// The schedules of allreduce. A sum that comes back into memory from which a
// part of it was sent has passed through the receiver of that part, which is
// done with it.
namespace telegrad::collective {
namespace {

Mark AppendRingSum(Schedule& schedule, const Place& place,
                   const Reduction& reduction, Mark start) {
  const int n = place.world_size;
  return AppendRing(
      schedule, place, Divide(reduction.count, SizeOf(reduction.type), n),
      place.rank, 2 * n - 2,
      [data = reduction.data, n](int s) {
        return RingStep{
            .send_from = data,
            .place = data,
            .combine = s < n - 1 ? Combine::kReduce : Combine::kStore};
      },
      start);
}

Place InTreePieces(Place place, size_t bytes) {
  place.chunk_bytes = TreePieceBytes(place.chunk_bytes, bytes);
  return place;
}

Mark AppendTree(Schedule& schedule, const Place& in_chunks,
                const Reduction& reduction, Mark start) {
  const Block whole{.bytes = reduction.count * SizeOf(reduction.type)};
  const Place place = InTreePieces(in_chunks, whole.bytes);
  const int first_child = 2 * place.rank + 1;
  const int last_child = std::min(first_child + 1, place.world_size - 1);
  Mark end = start;
  ForPieces(place, whole, [&](size_t offset, size_t bytes) {
    std::byte* const data = reduction.data + offset;
    const auto receive = [&](int from, Combine combine, Mark after) {
      std::vector<Receive>& receives = schedule.peers[from].receives;
      receives.push_back(
          {.bytes = bytes, .place = data, .combine = combine, .after = after});
      schedule.is_ordered |= after.peer >= 0;
      return Mark{from, receives.size()};
    };
    end = start;
    for (int child = first_child; child <= last_child; ++child) {
      end = receive(place.In(child), Combine::kReduce, end);
    }
    if (place.rank > 0) {
      const int parent = place.In((place.rank - 1) / 2);
      schedule.peers[parent].sends.push_back(
          {.bytes = bytes, .from = data, .after = end});
      end = receive(parent, Combine::kStore, end);
    }
    for (int child = first_child; child <= last_child; ++child) {
      schedule.peers[place.In(child)].sends.push_back(
          {.bytes = bytes, .from = data, .after = end});
    }
  });
  return end;
}

// A power of two ranks takes part; rank v keeps after `level` halvings what its
// lowest bits say: 0 the first half, 1 the second.
class Halving {
 public:
  Halving(Schedule& schedule, const Place& place, const Reduction& reduction,
          Mark start)
      : schedule_(schedule),
        place_(place),
        data_(reduction.data),
        power_(static_cast<int>(
            std::bit_floor(static_cast<unsigned>(place.world_size)))),
        extra_(place.world_size - power_),
        levels_(std::bit_width(static_cast<unsigned>(power_)) - 1),
        blocks_(Divide(reduction.count, SizeOf(reduction.type), power_)),
        latest_(start) {}

  Mark Append() {
    const bool is_folded = place_.rank < 2 * extra_;
    const int own = is_folded ? place_.rank / 2 : place_.rank - extra_;
    if (is_folded && place_.rank % 2 == 0) {
      const int odd = place_.In(place_.rank + 1);
      ForPieces(place_, Region(own, 0), [&](size_t offset, size_t bytes) {
        Send(odd, {{offset, bytes}, latest_});
      });
      Store(odd, PiecesOf(own, 0));
      return latest_;
    }
    const int even = is_folded ? place_.In(place_.rank - 1) : -1;
    if (is_folded) Sum(even, Region(own, 0));
    for (int level = 0; level < levels_; ++level) Halve(own, level);
    std::vector<Piece> known = PiecesOf(own, levels_);
    for (Piece& piece : known) piece.after = latest_;
    for (int level = levels_; level > 0; --level) Double(own, level, &known);
    if (is_folded) SendAll(even, own, 0, &known);
    return latest_;
  }

 private:
  struct Piece {
    Block block;
    Mark after = {};
  };

  int RankOf(int v) const {
    return place_.In(v < extra_ ? 2 * v + 1 : v + extra_);
  }

  Block Region(int v, int level) const {
    int first = 0, end = power_;
    for (int bit = 0; bit < level; ++bit) {
      const int middle = (first + end) / 2;
      ((v >> bit & 1) == 0 ? end : first) = middle;
    }
    const size_t offset = blocks_[first].offset;
    const Block& last = blocks_[end - 1];
    return {.offset = offset, .bytes = last.offset + last.bytes - offset};
  }

  bool IsOnePiece(int v, int level) const {
    return Region(v, level).bytes <= PieceBytes(place_);
  }

  // As rank v sends its region: in one, else as it came to know it.
  std::vector<Piece> PiecesOf(int v, int level) const {
    std::vector<Piece> pieces;
    if (level == levels_ || IsOnePiece(v, level)) {
      ForPieces(place_, Region(v, level), [&](size_t offset, size_t bytes) {
        pieces.push_back({.block = {offset, bytes}});
      });
      return pieces;
    }
    pieces = PiecesOf(v, level + 1);
    const std::vector<Piece> others = PiecesOf(v ^ (1 << level), level + 1);
    pieces.insert(pieces.end(), others.begin(), others.end());
    return pieces;
  }

  void Send(int to, const Piece& piece) {
    schedule_.peers[to].sends.push_back({.bytes = piece.block.bytes,
                                         .from = data_ + piece.block.offset,
                                         .after = piece.after});
  }
  Mark Receive(int from, const Block& block, Combine combine, Mark after) {
    auto& receives = schedule_.peers[from].receives;
    receives.push_back({.bytes = block.bytes,
                        .place = data_ + block.offset,
                        .combine = combine,
                        .after = after});
    schedule_.is_ordered |= after.peer >= 0;
    return {from, receives.size()};
  }

  // When all until `end` was summed by the halving before.
  Mark SummedUntil(size_t end) const {
    if (summed_by_ < 0) return latest_;
    const size_t piece = PieceBytes(place_);
    return {summed_by_,
            summed_before_ + (end - summed_.offset + piece - 1) / piece};
  }

  void Sum(int from, const Block& region) {
    const size_t before = schedule_.peers[from].receives.size();
    Mark last = latest_;
    ForPieces(place_, region, [&](size_t offset, size_t bytes) {
      last = Receive(from, {offset, bytes}, Combine::kReduce,
                     SummedUntil(offset + bytes));
    });
    latest_ = last;
    if (region.bytes == 0) return;
    summed_by_ = from;
    summed_before_ = before;
    summed_ = region;
  }

  void Halve(int own, int level) {
    const int other = own ^ (1 << level);
    ForPieces(
        place_, Region(other, level + 1), [&](size_t offset, size_t bytes) {
          Send(RankOf(other), {{offset, bytes}, SummedUntil(offset + bytes)});
        });
    Sum(RankOf(other), Region(own, level + 1));
  }

  std::vector<Piece> Store(int from, std::vector<Piece> pieces) {
    Mark last = latest_;
    for (Piece& piece : pieces) {
      piece.after = last = Receive(from, piece.block, Combine::kStore, latest_);
    }
    latest_ = last;
    return pieces;
  }

  // `known` becomes what was sent.
  void SendAll(int to, int own, int level, std::vector<Piece>* known) {
    if (IsOnePiece(own, level)) {
      *known = PiecesOf(own, level);
      for (Piece& piece : *known) piece.after = latest_;
    }
    for (const Piece& piece : *known) Send(to, piece);
  }

  void Double(int own, int level, std::vector<Piece>* known) {
    const int other = own ^ (1 << (level - 1));
    SendAll(RankOf(other), own, level, known);
    const std::vector<Piece> came =
        Store(RankOf(other), PiecesOf(other, level));
    known->insert(known->end(), came.begin(), came.end());
  }

  Schedule& schedule_;
  const Place& place_;
  std::byte* const data_;
  const int power_;
  const int extra_;  // so many of the first ranks give theirs to the next
  const int levels_;
  const Blocks blocks_;
  Mark latest_;
  // The last that was summed, and how many pieces came from there before.
  int summed_by_ = -1;
  size_t summed_before_ = 0;
  Block summed_ = {};
};

Mark Append(Across how, Schedule& schedule, const Place& place,
            const Reduction& reduction, Mark start) {
  switch (how) {
    case Across::kRing:
      return AppendRingSum(schedule, place, reduction, start);
    case Across::kHalvingDoubling:
      return Halving(schedule, place, reduction, start).Append();
    case Across::kTree:
      return AppendTree(schedule, place, reduction, start);
  }
  return start;
}

Schedule Make(Across how, const Place& place, const Reduction& reduction) {
  Schedule schedule = MakeSchedule(place, reduction.type, reduction.op);
  Append(how, schedule, place, reduction, {});
  return schedule;
}

}  // namespace

Schedule RingAllreduce(const Place& place, const Reduction& reduction) {
  return Make(Across::kRing, place, reduction);
}

Schedule HalvingDoubling(const Place& place, const Reduction& reduction) {
  return Make(Across::kHalvingDoubling, place, reduction);
}

Schedule TreeAllreduce(const Place& place, const Reduction& reduction) {
  return Make(Across::kTree, place, reduction);
}

Schedule TwoLevelAllreduce(const Place& place, const Reduction& reduction,
                           std::span<const int> host_of, Across across) {
  std::map<int, std::vector<int>> hosts;
  for (int rank = 0; rank < place.world_size; ++rank) {
    hosts[host_of[rank]].push_back(rank);
  }
  size_t num_parts = hosts.begin()->second.size();
  for (const auto& [host, ranks] : hosts) {
    num_parts = std::min(num_parts, ranks.size());
  }
  const std::vector<int>& here = hosts[host_of[place.rank]];
  const auto self = static_cast<size_t>(
      std::find(here.begin(), here.end(), place.rank) - here.begin());
  const auto n = static_cast<int>(here.size());
  const Place within{.rank = static_cast<int>(self),
                     .world_size = n,
                     .chunk_bytes = place.chunk_bytes,
                     .ranks = here};
  Blocks parts = Divide(reduction.count, SizeOf(reduction.type),
                        static_cast<int>(num_parts));
  const Block end{.offset = reduction.count * SizeOf(reduction.type)};
  parts.resize(here.size(), end);
  Schedule schedule = MakeSchedule(place, reduction.type, reduction.op);
  const RingStep sum{.send_from = reduction.data,
                     .place = reduction.data,
                     .combine = Combine::kReduce};
  Mark mark = AppendRing(schedule, within, parts, within.rank - 1, n - 1,
                         [&](int) { return sum; });
  if (self < num_parts) {
    Place between{.world_size = static_cast<int>(hosts.size()),
                  .chunk_bytes = place.chunk_bytes};
    for (const auto& [host, ranks] : hosts) {
      if (host == host_of[place.rank]) {
        between.rank = static_cast<int>(between.ranks.size());
      }
      between.ranks.push_back(ranks[self]);
    }
    mark = Append(across, schedule, between,
                  {.type = reduction.type,
                   .op = reduction.op,
                   .data = reduction.data + parts[self].offset,
                   .count = parts[self].bytes / SizeOf(reduction.type)},
                  mark);
  }
  RingStep share = sum;
  share.combine = Combine::kStore;
  AppendRing(
      schedule, within, parts, within.rank, n - 1, [&](int) { return share; },
      mark);
  return schedule;
}

Schedule TreeBroadcast(const Place& in_chunks, std::byte* data, size_t bytes,
                       int root) {
  const Place place = InTreePieces(in_chunks, bytes);
  const int n = place.world_size;
  const int self = Wrapped(place.rank - root, n);
  Schedule schedule = MakeSchedule(place);
  const int parent = Wrapped((self - 1) / 2 + root, n);
  size_t received = 0;
  ForPieces(place, {.bytes = bytes}, [&](size_t offset, size_t size) {
    if (self > 0) {
      schedule.peers[parent].receives.push_back(
          {.bytes = size, .place = data + offset});
      ++received;
    }
    for (int child = 2 * self + 1; child < std::min(2 * self + 3, n); ++child) {
      schedule.peers[Wrapped(child + root, n)].sends.push_back(
          {.bytes = size,
           .from = data + offset,
           .after = {self > 0 ? parent : -1, received}});
    }
  });
  return schedule;
}

}  // namespace telegrad::collective
