#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

// Views of some rows of a tensor, and what they add up to.
namespace telegrad::testing {

constexpr size_t kRows = 50;
constexpr size_t kRowElems = 7;  // chunks of 32 begin and end within rows

inline TensorSpec Table() {
  return {
      .name = "table", .num_elems = kRows * kRowElems, .row_elems = kRowElems};
}

inline std::vector<int64_t> AllRows() {
  std::vector<int64_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// A view and what it is of.
struct RowBuffer {
  RowBuffer(std::vector<int64_t> rows_, float value = 0)
      : rows(std::move(rows_)), memory(4 * kRowElems * rows.size()) {
    std::fill_n(memory.as<float>(), kRowElems * rows.size(), value);
  }
  TensorView view() const {
    return {.bytes = memory.view(),
            .num_elems = static_cast<int64_t>(kRowElems * rows.size()),
            .rows = rows};
  }
  std::vector<int64_t> rows;
  Buffer memory;
};

inline absl::Status PushRows(KVStore& store, Key key, const RowBuffer& rows) {
  const TensorView view = rows.view();
  return store.Push(key, TensorViews(&view, 1), 0).Wait(Soon());
}
inline absl::Status PullRows(KVStore& store, Key key, const RowBuffer& rows) {
  const TensorView view = rows.view();
  return store.Pull(key, TensorViews(&view, 1), 0).Wait(Soon());
}

// What a worker pushes in a step: some rows, out of order, one of them twice.
inline RowBuffer RowGradient(int worker, int step) {
  Random random(static_cast<uint64_t>(10 * worker + step), 5);
  std::vector<int64_t> rows;
  for (int i = 0; i < 9; ++i) {
    rows.push_back(static_cast<int64_t>(random.NextUniform(0, kRows)) %
                   static_cast<int64_t>(kRows));
  }
  rows.push_back(rows[0]);
  RowBuffer grad(rows);
  for (size_t i = 0; i < kRowElems * rows.size(); ++i) {
    grad.memory.as<float>()[i] = GradOf(worker, step, i);
  }
  return grad;
}

inline void AddTo(const RowBuffer& grad, std::vector<float>& sums) {
  for (size_t i = 0; i < grad.rows.size(); ++i) {
    for (size_t j = 0; j < kRowElems; ++j) {
      sums[static_cast<size_t>(grad.rows[i]) * kRowElems + j] +=
          grad.memory.as<float>()[i * kRowElems + j];
    }
  }
}

inline void ExpectRows(const RowBuffer& got,
                       const std::vector<float>& expected) {
  for (size_t i = 0; i < got.rows.size(); ++i) {
    for (size_t j = 0; j < kRowElems; ++j) {
      ASSERT_EQ(got.memory.as<float>()[i * kRowElems + j],
                expected[static_cast<size_t>(got.rows[i]) * kRowElems + j])
          << "row " << got.rows[i];
    }
  }
}

// Two hosts of two workers, of which those of a host sum first.
constexpr int kSharing = 4;
inline ClusterConfig SharingJob(const std::string& store = "dist_sync") {
  ClusterConfig config = Job(kSharing, 2);
  config.hosts = {"a", "a", "b", "b"};
  config.tensors = {{"dense", 33}, Table()};
  config.store = store;
  config.hosts_parts = store == "allreduce";
  if (config.hosts_parts) config.servers = kSharing;
  return config;
}

}  // namespace telegrad::testing
