#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "trainer/data/dataset.h"

namespace telegrad {

inline constexpr int kDigitSide = 28;
inline constexpr size_t kDigitPixels = size_t{kDigitSide} * kDigitSide;
inline constexpr size_t kDigitsTrain = 20000;
inline constexpr size_t kDigitsTest = 4000;

enum class Split : uint32_t { kTrain = 0, kTest = 1 };

struct DigitSample {
  std::array<uint8_t, kDigitPixels> pixels;  // rows from the top
  uint8_t label;
};

// Sample `index` of `split`: a pure function of both. Only IEEE additions,
// multiplications, divisions and square roots are used, uncontracted, and none
// of libm: the same bits on every machine.
DigitSample MakeDigit(Split split, size_t index);

DatasetPair MakeDigits();
// The digits in colours on backgrounds, 3 x 32 x 32.
DatasetPair MakeColourDigits();

}  // namespace telegrad
