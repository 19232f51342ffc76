#include "kernels/prefetch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include "kernels/dispatch.h"

namespace telegrad::kernels {
namespace {

TEST(Prefetch, ChoosesOneOfItsDistances) {
  ChoosePrefetchBytes(CpuKernels().two_bit_encode);
  EXPECT_LE(PrefetchBytes(), 65536u);
  EXPECT_EQ(PrefetchBytes() % 512, 0u);
}

TEST(Streaming, ChoosesLargeArraysOrNone) {
  ChooseStreamingBytes(CpuKernels().two_bit_decode);
  if (StreamingBytes() == std::numeric_limits<size_t>::max()) return;
  EXPECT_GE(StreamingBytes(), size_t{1} << 20);
}

TEST(Streaming, TakesWhatTheEnvironmentSays) {
  const size_t chosen = StreamingBytes();
  ASSERT_EQ(setenv("TELEGRAD_STREAMING", "4096", 1), 0);
  ChooseStreamingBytes(CpuKernels().two_bit_decode);
  EXPECT_EQ(StreamingBytes(), 4096u);
  unsetenv("TELEGRAD_STREAMING");
  SetStreamingBytes(chosen);
}

TEST(Prefetch, ChangesNoResult) {
  const size_t chosen = PrefetchBytes();
  const size_t n = 4099;
  std::vector<float> grad(n);
  for (size_t i = 0; i < n; ++i) {
    grad[i] = static_cast<float>(i % 9) * 0.25f - 1.0f;
  }
  std::vector<float> expected(n, 0.25f);
  std::vector<uint8_t> expected_codes(TwoBitBytes(n));
  EncodeStats stats;
  ReferenceKernels().two_bit_encode(grad.data(), expected.data(), n, 0.5f,
                                    NonFinite::kZero, expected_codes.data(),
                                    &stats, {});
  for (const size_t ahead : {0, 64, 2048, 65536}) {
    SetPrefetchBytes(ahead);
    std::vector<float> residual(n, 0.25f);
    std::vector<uint8_t> codes(TwoBitBytes(n));
    CpuKernels().two_bit_encode(grad.data(), residual.data(), n, 0.5f,
                                NonFinite::kZero, codes.data(), &stats, {});
    EXPECT_EQ(residual, expected) << ahead;
    EXPECT_EQ(codes, expected_codes) << ahead;
  }
  SetPrefetchBytes(chosen);
}

}  // namespace
}  // namespace telegrad::kernels
