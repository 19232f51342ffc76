#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kvstore/operations/operations.h"
#include "tests/kvstore/collective/collective_ranks.h"

namespace telegrad::testing {

using operations::Kind;
using operations::Op;
using operations::Operations;
using operations::Submission;

template <typename T>
constexpr Dtype kDtypeOf = Dtype::kFloat32;
template <>
inline constexpr Dtype kDtypeOf<double> = Dtype::kFloat64;
template <>
inline constexpr Dtype kDtypeOf<int32_t> = Dtype::kInt32;
template <>
inline constexpr Dtype kDtypeOf<int64_t> = Dtype::kInt64;
template <>
inline constexpr Dtype kDtypeOf<uint8_t> = Dtype::kUint8;

// A request of `values`, one row each; the result is the library's.
template <typename T>
std::shared_ptr<Submission> Want(Kind kind, const std::string& name,
                                 const std::vector<T>& values) {
  auto wanted = std::make_shared<Submission>();
  wanted->request.kind = kind;
  wanted->request.name = name;
  wanted->request.dtype = kDtypeOf<T>;
  wanted->request.shape = {static_cast<int64_t>(values.size())};
  wanted->in = values.data();
  return wanted;
}

inline absl::Status WaitFor(Operations& operations, int64_t handle) {
  bool is_done = false;
  const absl::Status status = operations.queue().Wait(
      handle, Clock::now() + std::chrono::seconds(30), &is_done);
  if (!is_done) return absl::DeadlineExceededError("the test's 30 s are over");
  return status;
}

// Of one that is submitted and ends well.
template <typename T>
std::vector<T> ResultOf(Operations& operations, int64_t handle) {
  EXPECT_THAT(WaitFor(operations, handle), IsOk());
  auto result = operations.queue().Result(handle);
  EXPECT_THAT(result, IsOk());
  if (!result.ok()) return {};
  const T* const data = static_cast<const T*>((*result)->result);
  std::vector<T> values(data, data + (*result)->num_elems);
  EXPECT_THAT(operations.queue().Release(handle), IsOk());
  return values;
}

inline absl::Status ErrorOf(Operations& operations,
                            std::shared_ptr<Submission> wanted) {
  const auto handle = operations.Submit(std::move(wanted));
  return handle.ok() ? WaitFor(operations, *handle) : handle.status();
}

template <typename T>
std::vector<T> Do(Operations& operations, std::shared_ptr<Submission> wanted) {
  const auto handle = operations.Submit(std::move(wanted));
  EXPECT_THAT(handle, IsOk());
  return handle.ok() ? ResultOf<T>(operations, *handle) : std::vector<T>();
}

// Runs `body` on each rank's thread. `lost` is a rank that meets the others,
// and is gone.
inline void RunOperations(int ranks,
                          const std::function<void(Operations&)>& body,
                          const operations::Options& options = {},
                          int lost = -1) {
  Meeting meeting(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions mine = InprocOptions(ranks);
      mine.rank = rank;
      auto group = Group::Make(mine, meeting.ExchangeOf(rank));
      ASSERT_THAT(group, IsOk());
      if (rank == lost) {  // after it has told its options
        const int64_t told[] = {64 << 20, 1024};
        std::vector<int64_t> all(2 * static_cast<size_t>(ranks));
        EXPECT_THAT((*group)->Allgather(told, all.data(), 2, Dtype::kInt64),
                    IsOk());
        return;
      }
      auto operations = Operations::Make(*std::move(group), options);
      ASSERT_THAT(operations, IsOk());
      body(**operations);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace telegrad::testing
