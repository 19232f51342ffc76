#pragma once

#include <array>
#include <future>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvstore/collective/collective.h"

namespace telegrad::testing {

constexpr int kSumRanks = 2;

// What a rank adds: integers, so that sums are exact.
inline float SummandAt(int rank, int round, size_t i) {
  return static_cast<float>((i * 31 + round * 7u + rank * 3u) % 4099);
}

inline absl::Status SumAndCompare(Group& group, int round, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = SummandAt(group.rank(), round, i);
  }
  const absl::Status status = group.Allreduce(
      values.data(), count, Dtype::kFloat32, ReduceOp::kSum, {});
  for (size_t i = 0; status.ok() && i < count; ++i) {
    if (values[i] != SummandAt(0, round, i) + SummandAt(1, round, i)) {
      return absl::DataLossError(
          absl::StrCat("sum ", round, " is wrong at ", i, " of ", count));
    }
  }
  return status;
}

// A group of two ranks of this process that comes, sums `rounds` vectors of
// `count` elements, compares each sum with what it must be, and goes.
inline absl::Status RunSums(const TransportOptions& transport, int rounds,
                            size_t count) {
  std::array<std::promise<std::string>, kSumRanks> addresses;
  std::array<std::shared_future<std::string>, kSumRanks> known;
  for (int i = 0; i < kSumRanks; ++i) known[i] = addresses[i].get_future();
  const auto run = [&](int rank) -> absl::Status {
    GroupOptions options;
    options.transport = transport;
    options.rank = rank;
    options.world_size = kSumRanks;
    const auto group = Group::Make(
        options,
        [&, rank](const std::string& own,
                  TimePoint) -> absl::StatusOr<std::vector<std::string>> {
          addresses[rank].set_value(own);
          return std::vector<std::string>{known[0].get(), known[1].get()};
        });
    absl::Status status = group.status();
    for (int round = 0; status.ok() && round < rounds; ++round) {
      status = SumAndCompare(**group, round, count);
    }
    return status;
  };
  auto other = std::async(std::launch::async, run, 1);
  absl::Status status = run(0);
  status.Update(other.get());
  return status;
}

}  // namespace telegrad::testing
