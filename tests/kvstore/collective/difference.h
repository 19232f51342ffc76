#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/collective/collective.h"

namespace telegrad::testing {

inline absl::Status Sum(Group& group, float* data, size_t count,
                        CollectiveSettings settings = {}) {
  return group.Allreduce(data, count, Dtype::kFloat32, ReduceOp::kSum,
                         settings);
}

// A call in which rank 0 and all others disagree.
struct Difference {
  const char* test_name;
  std::function<absl::Status(Group&, float*)> first;   // rank 0's
  std::function<absl::Status(Group&, float*)> others;  // all others'
  const char* first_says;                              // in every error
  const char* others_say;
};

inline void PrintTo(const Difference& difference, std::ostream* out) {
  *out << difference.test_name;
}

// Those that each kind of group finds, on 100 floats, and `own`.
inline std::vector<Difference> WithCommon(std::vector<Difference> own) {
  constexpr Dtype kFloat = Dtype::kFloat32;
  const std::vector<Difference> common = {
      {"Count", [](Group& g, float* d) { return Sum(g, d, 99); },
       [](Group& g, float* d) { return Sum(g, d, 100); }, "of 99 float32",
       "of 100 float32"},
      {"Nothing", [](Group& g, float* d) { return Sum(g, d, 0); },
       [](Group& g, float* d) { return Sum(g, d, 100); }, "of 0 ", "of 100 "},
      {"Tag", [](Group& g, float* d) { return Sum(g, d, 100, {.tag = 6}); },
       [](Group& g, float* d) { return Sum(g, d, 100, {.tag = 7}); }, "tag 6",
       "tag 7"},
      {"Type",
       [](Group& g, float* d) {
         return g.Allreduce(d, 100, Dtype::kInt32, ReduceOp::kSum);
       },
       [](Group& g, float* d) { return Sum(g, d, 100); }, "int32", "float32"},
      {"ReduceOp",
       [](Group& g, float* d) {
         return g.Allreduce(d, 100, kFloat, ReduceOp::kMax);
       },
       [](Group& g, float* d) { return Sum(g, d, 100); }, "max", "sum"},
      {"Operation", [](Group& g, float*) { return g.Barrier(); },
       [](Group& g, float* d) { return Sum(g, d, 100); }, "barrier",
       "allreduce"},
      {"Root",
       [](Group& g, float* d) { return g.Broadcast(d, 100, kFloat, 1); },
       [](Group& g, float* d) { return g.Broadcast(d, 100, kFloat, 0); },
       "root 1", "root 0"},
  };
  own.insert(own.end(), common.begin(), common.end());
  return own;
}

}  // namespace telegrad::testing
