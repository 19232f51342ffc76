// That what we compare ourselves with computes what we compute.
#include "perf/peers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/dispatch.h"

namespace telegrad::perf {
namespace {

constexpr float kThreshold = 0.5f;
const size_t kSizes[] = {1, 15, 16, 17, 63, 64, 257, 4096, 9001};

std::vector<float> Normal(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(n);
  for (float& value : values) value = random.NextNormal();
  return values;
}

TEST(Peers, MxnetSendsAndKeepsWhatOurEncoderDoes) {
  for (const size_t n : kSizes) {
    const std::vector<float> grad = Normal(n, n);
    std::vector<float> ours = Normal(n, n + 1);
    std::vector<float> theirs = ours;
    std::vector<uint8_t> our_codes(kernels::TwoBitBytes(n), 0xFF);
    std::vector<uint8_t> their_codes(kernels::TwoBitBytes(n), 0x55);
    kernels::EncodeStats stats;
    kernels::ReferenceKernels().two_bit_encode(
        grad.data(), ours.data(), n, kThreshold, kernels::NonFinite::kPropagate,
        our_codes.data(), &stats, {});
    MxnetQuantize(grad.data(), theirs.data(), n, kThreshold,
                  their_codes.data());
    EXPECT_EQ(their_codes, our_codes) << n;
    EXPECT_EQ(theirs, ours) << n;
  }
}

TEST(Peers, MxnetDecodesAndMergesAsWe) {
  for (const size_t n : kSizes) {
    std::vector<uint8_t> codes(kernels::TwoBitBytes(n));
    const std::vector<float> grad = Normal(n, n);
    std::vector<float> residual(n, 0.0f);
    MxnetQuantize(grad.data(), residual.data(), n, kThreshold, codes.data());
    std::vector<float> ours = Normal(n, 3);
    std::vector<float> theirs = ours;
    std::vector<float> in_cache = ours;
    std::vector<float> temporary(n);
    kernels::ReferenceKernels().two_bit_decode_add(codes.data(), n, kThreshold,
                                                   ours.data(), {});
    MxnetMerge(codes.data(), n, kThreshold, temporary.data(), theirs.data());
    MxnetMergeInCache(codes.data(), n, kThreshold, in_cache.data());
    EXPECT_EQ(theirs, ours) << n;
    EXPECT_EQ(in_cache, ours) << n;
  }
}

TEST(Peers, MxnetSendsAndDecodesSignsAsWe) {
  for (const size_t n : kSizes) {
    const std::vector<float> grad = Normal(n, n);
    std::vector<float> ours = Normal(n, n + 1);
    std::vector<float> theirs = ours;
    std::vector<uint8_t> our_payload(kernels::OneBitBytes(n), 0xFF);
    std::vector<uint8_t> their_codes(kernels::SignBytes(n), 0x55);
    kernels::EncodeStats stats;
    kernels::ReferenceKernels().sign.one_bit_encode(
        grad.data(), ours.data(), n, kThreshold, 1.0f,
        kernels::NonFinite::kPropagate, our_payload.data(), &stats, {});
    MxnetQuantizeOneBit(grad.data(), theirs.data(), n, kThreshold,
                        their_codes.data());
    EXPECT_EQ(theirs, ours) << n;
    EXPECT_TRUE(
        std::equal(their_codes.begin(), their_codes.end(), our_payload.begin()))
        << n;
    std::vector<float> our_signs(n);
    std::vector<float> their_signs(n);
    kernels::ReferenceKernels().sign.one_bit_decode(our_payload.data(), n,
                                                    our_signs.data(), {});
    MxnetDequantizeOneBit(their_codes.data(), n, their_signs.data());
    EXPECT_EQ(their_signs, our_signs) << n;
  }
}

TEST(Peers, HeapSendsTheLargestOnce) {
  const size_t n = 9001;
  const size_t k = 90;
  const std::vector<float> grad = Normal(n, 1);
  std::vector<float> residual(n, 0.0f);
  std::vector<uint32_t> indices(k);
  std::vector<float> values(k);
  ASSERT_EQ(BytepsTopK(grad.data(), residual.data(), n, k, indices.data(),
                       values.data()),
            k);
  float least_sent = INFINITY;
  for (size_t i = 0; i < k; ++i) {
    EXPECT_EQ(values[i], grad[indices[i]]);
    EXPECT_EQ(residual[indices[i]], 0.0f);
    least_sent = std::min(least_sent, std::fabs(values[i]));
  }
  std::sort(indices.begin(), indices.end());
  EXPECT_EQ(std::adjacent_find(indices.begin(), indices.end()), indices.end());
  for (const float kept : residual) EXPECT_LE(std::fabs(kept), least_sent);
}

}  // namespace
}  // namespace telegrad::perf
