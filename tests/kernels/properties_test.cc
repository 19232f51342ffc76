#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/kernels/kernel_test.h"

namespace telegrad::kernels::testing {
namespace {

class KernelProperties : public KernelTest {};

// Values on a grid of 2^-6 below 2^10 add without rounding, so nothing may be
// lost: what was sent and what is left is what came in.
TEST_P(KernelProperties, WhatIsSentAndLeftIsWhatCameIn) {
  constexpr size_t kN = 1031;
  constexpr int kSteps = 50;
  constexpr float kThreshold = 0.25f;
  Random random(11);
  Array<float> grad(table(), std::vector<float>(kN));
  Array<float> residual(table(), std::vector<float>(kN));
  Array<float> received(table(), std::vector<float>(kN));
  Array<uint8_t> codes(table(), std::vector<uint8_t>(TwoBitBytes(kN)));
  Array<EncodeStats> stats(table(), {EncodeStats{}});
  std::vector<float> values(kN);
  std::vector<double> sum(kN, 0.0);
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < kN; ++i) {
      values[i] = (static_cast<float>(random.NextBelow(129)) - 64.0f) / 64.0f;
      sum[i] += values[i];
    }
    grad.Fill(values);
    table().two_bit_encode(grad.get(), residual.get(), kN, kThreshold,
                           NonFinite::kZero, codes.get(), stats.get(),
                           Stream{});
    table().two_bit_decode_add(codes.get(), kN, kThreshold, received.get(),
                               Stream{});
    Wait(table());
  }
  const std::vector<float> came = received.values();
  const std::vector<float> stayed = residual.values();
  for (size_t i = 0; i < kN; ++i) {
    ASSERT_EQ(static_cast<double>(came[i]) + stayed[i], sum[i]) << i;
  }
}

TEST_P(KernelProperties, SumsDoNotDependOnTheOrderOfFrames) {
  constexpr size_t kN = 777;
  constexpr uint32_t kFrames = 9;
  std::vector<std::unique_ptr<Array<uint8_t>>> owned;
  std::vector<const uint8_t*> frames;
  for (uint32_t f = 0; f < kFrames; ++f) {
    owned.push_back(std::make_unique<Array<uint8_t>>(
        table(), RandomBytes(TwoBitBytes(kN), f)));
    frames.push_back(owned.back()->get());
  }
  const auto sum = [&] {
    Array<uint8_t> packed(table(),
                          std::vector<uint8_t>(PackedSumBytes(kN, kFrames)));
    table().two_bit_sum_pack(frames.data(), kFrames, kN, packed.get(),
                             Stream{});
    Wait(table());
    return packed.values();
  };
  const std::vector<uint8_t> first = sum();
  std::rotate(frames.begin(), frames.begin() + 4, frames.end());
  std::swap(frames[0], frames[7]);
  EXPECT_EQ(sum(), first);
}

// The sum of decoded frames, added one by one, is the decoded sum: with a
// dyadic threshold all of it is exact.
TEST_P(KernelProperties, DecodedSumIsTheSumOfDecodedFrames) {
  constexpr size_t kN = 1031;
  constexpr uint32_t kFrames = 6;
  std::vector<std::unique_ptr<Array<uint8_t>>> owned;
  std::vector<const uint8_t*> frames;
  Array<float> one_by_one(table(), std::vector<float>(kN));
  for (uint32_t f = 0; f < kFrames; ++f) {
    owned.push_back(std::make_unique<Array<uint8_t>>(
        table(), RandomBytes(TwoBitBytes(kN), f)));
    frames.push_back(owned.back()->get());
    table().two_bit_decode_add(frames.back(), kN, 0.125f, one_by_one.get(),
                               Stream{});
  }
  Array<float> at_once(table(), std::vector<float>(kN));
  table().two_bit_sum_decode(frames.data(), kFrames, kN, 0.125f, at_once.get(),
                             Stream{});
  Wait(table());
  ExpectSameBits(at_once.values(), one_by_one.values());
}

// Workers that agree push the sum to its limit, W units a step, which is also
// the most that a quantum of W takes off again.
TEST_P(KernelProperties, ReencodingAgreeingCodesKeepsTheResidualBounded) {
  constexpr size_t kN = 67;
  constexpr uint32_t kFrames = 3;
  constexpr uint32_t kShift = 2;
  constexpr int32_t kQuantum = 4 << kShift;  // 2^ceil(log2 W) units of t
  constexpr int kSteps = 10000;
  Random random(5);
  std::vector<uint8_t> pushed(TwoBitBytes(kN));
  const Array<uint8_t> frame(table(), pushed);
  const std::vector<const uint8_t*> frames(kFrames, frame.get());
  Array<int32_t> residual(table(), std::vector<int32_t>(kN));
  Array<uint8_t> codes(table(), std::vector<uint8_t>(TwoBitBytes(kN)));
  Array<float> sent(table(), std::vector<float>(kN));
  std::vector<int64_t> came_in(kN, 0);
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < kN; ++i) {
      // Elements lean to one side or the other, some wholly.
      const bool is_positive = random.NextBelow(kN) >= i;
      const int shift = 6 - 2 * static_cast<int>(i % 4);
      uint8_t& byte = pushed[i / 4];
      byte = static_cast<uint8_t>((byte & ~(3 << shift)) |
                                  ((is_positive ? 3 : 2) << shift));
      came_in[i] += (is_positive ? 1 : -1) * int64_t{kFrames << kShift};
    }
    frame.Fill(pushed);
    table().two_bit_reencode(frames.data(), kFrames, kN, residual.get(), kShift,
                             kQuantum, codes.get(), Stream{});
    table().two_bit_decode_add(codes.get(), kN, 1.0f, sent.get(), Stream{});
    Wait(table());
    for (const int32_t units : residual.values()) {
      ASSERT_LT(std::abs(units), kQuantum) << step;
    }
  }
  const std::vector<float> went_out = sent.values();
  const std::vector<int32_t> stayed = residual.values();
  for (size_t i = 0; i < kN; ++i) {
    ASSERT_EQ(static_cast<int64_t>(went_out[i]) * kQuantum + stayed[i],
              came_in[i])
        << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelProperties,
                         ::testing::ValuesIn(Tables()), NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
