#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "kvstore/collective/choose.h"
#include "kvstore/collective/collective.h"
#include "tests/kvstore/collective/collective_ranks.h"

// The collectives' conformance: each over every transport that there is.
namespace telegrad::testing {

using Algorithm = CollectiveAlgorithm;
using collective::AlgorithmsOf;
using collective::Operation;

struct Setting {
  const char* test_name;
  const char* transport;
  const char* tls;
  int ranks;
};

inline void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.test_name;
}

// 0 and 1, fewer than ranks, primes, around a piece (1024 floats) and several.
constexpr size_t kCounts[] = {0, 1, 3, 7, 1021, 1024, 1025, 10007, 40961};

// Small, so that sums are exact in every type and order.
inline int ValueAt(int rank, size_t i) {
  return static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3) % 11) - 4;
}

inline std::vector<float> Floats(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(ValueAt(rank, i));
  }
  return values;
}

inline int SumAt(int ranks, size_t i) {
  int sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += ValueAt(rank, i);
  return sum;
}

class Collective : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    class Deaf : public TransportHandler {
      void OnAccept(EndpointId) override {}
      absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes, size_t) override {
        return Bytes();
      }
      void OnMessage(EndpointId, ConstBytes, Bytes) override {}
      void OnClosed(EndpointId, const absl::Status&) override {}
    } deaf;
    const auto made = MakeTransport(Options().transport, &deaf);
    if (absl::IsNotFound(made.status())) GTEST_SKIP() << made.status();
  }

  static GroupOptions Options() {
    GroupOptions options;
    options.transport.name = GetParam().transport;
    options.transport.tls = GetParam().tls;
    options.world_size = GetParam().ranks;
    options.chunk_bytes = 4096;
    options.timeout = std::chrono::seconds(30);
    return options;
  }
};

}  // namespace telegrad::testing
