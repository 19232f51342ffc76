#include <algorithm>
#include <array>

#include "base/random.h"
#include "trainer/data/digits.h"
#include "trainer/data/sampling.h"

namespace telegrad {
namespace {

// A change of anything below changes the data: bump the version in
// docs/data.md, and the checksums of tests/trainer/data/digits_test.cc.
constexpr uint64_t kSeed = 0x6469673372676231;  // "dig3rgb1"
constexpr int kSide = 32;
constexpr size_t kPlane = size_t{kSide} * kSide;
// Levels of 255, in one channel at least.
constexpr float kLeastContrast = 90.0f;

using Colour = std::array<float, 3>;

Colour RandomColour(Random& random) {
  Colour colour;
  for (float& level : colour) level = random.NextUniform(0, 255);
  return colour;
}

// Ink that differs from both ends of the background.
Colour InkOn(const Colour& from, const Colour& to, Random& random) {
  for (;;) {
    const Colour ink = RandomColour(random);
    for (size_t channel = 0; channel < 3; ++channel) {
      const float low = std::min(from[channel], to[channel]);
      const float high = std::max(from[channel], to[channel]);
      if (ink[channel] < low - kLeastContrast ||
          ink[channel] > high + kLeastContrast) {
        return ink;
      }
    }
    if (random.NextUniform() < 0.05f) {  // none may be left between them
      return {from[0] < 128 ? 255.0f : 0.0f, from[1] < 128 ? 255.0f : 0.0f,
              from[2] < 128 ? 255.0f : 0.0f};
    }
  }
}

// Lays the digit over a background that runs from one colour to another.
void Paint(const DigitSample& digit, Random& random, uint8_t* pixels) {
  const Colour from = RandomColour(random);
  const Colour to = RandomColour(random);
  const Colour ink = InkOn(from, to, random);
  const float slope = random.NextUniform();  // share of rows against columns
  const auto row0 = static_cast<int>(random.NextBelow(kSide - kDigitSide + 1));
  const auto col0 = static_cast<int>(random.NextBelow(kSide - kDigitSide + 1));
  for (int row = 0; row < kSide; ++row) {
    for (int col = 0; col < kSide; ++col) {
      const float share = (slope * static_cast<float>(row) +
                           (1 - slope) * static_cast<float>(col)) /
                          (kSide - 1);
      const int r = row - row0;
      const int c = col - col0;
      const bool is_digit =
          r >= 0 && r < kDigitSide && c >= 0 && c < kDigitSide;
      const float cover =
          is_digit
              ? static_cast<float>(
                    digit.pixels[static_cast<size_t>(r * kDigitSide + c)]) /
                    255.0f
              : 0.0f;
      const auto at = static_cast<size_t>(row * kSide + col);
      for (size_t channel = 0; channel < 3; ++channel) {
        const float ground =
            from[channel] + share * (to[channel] - from[channel]);
        pixels[channel * kPlane + at] = static_cast<uint8_t>(
            ground + cover * (ink[channel] - ground) + 0.5f);
      }
    }
  }
}

Dataset MakeSplit(Split split, size_t count) {
  Dataset dataset;
  dataset.name = "digits:rgb32";
  dataset.channels = 3;
  dataset.rows = dataset.cols = kSide;
  dataset.pixels.resize(count * 3 * kPlane);
  dataset.labels.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const DigitSample digit = MakeDigit(split, i);
    Random random(kSeed, uint64_t{static_cast<uint32_t>(split)} << 32 | i);
    Paint(digit, random, dataset.pixels.data() + i * 3 * kPlane);
    dataset.labels[i] = digit.label;
  }
  return dataset;
}

}  // namespace

DatasetPair MakeColourDigits() {
  DatasetPair pair = {.train = MakeSplit(Split::kTrain, kDigitsTrain),
                      .test = MakeSplit(Split::kTest, kDigitsTest)};
  MeasurePixels(pair.train);
  pair.test.mean = pair.train.mean;
  pair.test.stddev = pair.train.stddev;
  return pair;
}

}  // namespace telegrad
