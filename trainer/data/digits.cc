#include "trainer/data/digits.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "trainer/data/digits_draw.h"
#include "trainer/data/sampling.h"

namespace telegrad {
namespace {

// A change of anything below changes the data: bump the version in
// docs/data.md, and the checksums of tests/trainer/data/digits_test.cc.
constexpr uint64_t kSeed = 0x6469676974733031;  // "digits01"

constexpr float kCentre = kDigitSide / 2.0f;
constexpr float kMostRotation = 0.042f;  // turns, 15 degrees
constexpr float kMostShear = 0.25f;
constexpr float kLeastHeight = 7.5f;  // half of the height, in pixels
constexpr float kMostHeight = 10.0f;
constexpr float kLeastAspect = 0.75f;
constexpr float kMostAspect = 1.25f;
constexpr float kMostShift = 2.2f;     // pixels
constexpr float kPointJitter = 0.06f;  // a part of the glyph's half height
constexpr float kMarkChance = 0.5f;
constexpr float kMostNoise = 0.16f;

// From the glyph's box to pixels: scale, shear, rotate, shift.
struct Placement {
  float xx, xy, yx, yy;
  float x0, y0;
  Point operator()(Point p) const {
    return {x0 + xx * p.x + xy * p.y, y0 + yx * p.x + yy * p.y};
  }
};

Placement RandomPlacement(Random& random) {
  const float turns = random.NextUniform(-kMostRotation, kMostRotation);
  const float shear = random.NextUniform(-kMostShear, kMostShear);
  const float height = random.NextUniform(kLeastHeight, kMostHeight);
  const float width = height * random.NextUniform(kLeastAspect, kMostAspect);
  const float s = SinTurns(turns);
  const float c = CosTurns(turns);
  return {.xx = c * width,
          .xy = (c * shear - s) * height,
          .yx = s * width,
          .yy = (s * shear + c) * height,
          .x0 = kCentre + random.NextUniform(-kMostShift, kMostShift),
          .y0 = kCentre + random.NextUniform(-kMostShift, kMostShift)};
}

Pen RandomPen(Random& random) {
  return {.radius = random.NextUniform(0.4f, 1.3f),
          .softness = random.NextUniform(0.7f, 1.6f),
          .ink = random.NextUniform(0.6f, 1.0f)};
}

// Strokes that share an end keep sharing it: the jitter is a smooth function
// of the place, not of the point.
struct Warp {
  float ax, ay, bx, by, cx, cy;
  Point operator()(Point p) const {
    const float xy = p.x * p.y;
    const float yy = p.y * p.y;
    const float xx = p.x * p.x;
    return {p.x + ax * yy + bx * xy + cx * p.y * yy,
            p.y + ay * xx + by * xy + cy * p.y * yy};
  }
};

Warp RandomWarp(Random& random) {
  constexpr float kMost = 0.14f;
  Warp warp;
  for (float* term :
       {&warp.ax, &warp.ay, &warp.bx, &warp.by, &warp.cx, &warp.cy}) {
    *term = random.NextUniform(-kMost, kMost);
  }
  return warp;
}

void DrawDigit(int digit, Random& random, Canvas& canvas) {
  const Glyph glyph =
      GlyphOf(digit, static_cast<int>(random.NextBelow(kGlyphsPerDigit)));
  const Placement place = RandomPlacement(random);
  const Warp warp = RandomWarp(random);
  const Pen pen = RandomPen(random);
  for (const Stroke& stroke : glyph) {
    std::vector<Point> path;
    for (const Point& point : stroke.points) {
      const Point warped = warp(point);
      path.push_back(
          place({warped.x + random.NextUniform(-kPointJitter, kPointJitter),
                 warped.y + random.NextUniform(-kPointJitter, kPointJitter)}));
    }
    DrawPath(stroke.is_smooth ? Smooth(path) : path, pen, canvas);
  }
}

// A short scratch somewhere, which says nothing about the digit.
void DrawMark(Random& random, Canvas& canvas) {
  const Point from = {random.NextUniform(0, kDigitSide),
                      random.NextUniform(0, kDigitSide)};
  const Point to = {from.x + random.NextUniform(-6, 6),
                    from.y + random.NextUniform(-6, 6)};
  DrawPath({from, to},
           {.radius = random.NextUniform(0.2f, 0.7f),
            .softness = 0.8f,
            .ink = random.NextUniform(0.3f, 0.9f)},
           canvas);
}

// Noise of each pixel is the sum of four bytes: close to normal, one draw.
float NoiseOf(uint32_t bits) {
  constexpr float kHalf = 510.0f;
  const uint32_t sum =
      (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24);
  return (static_cast<float>(static_cast<int>(sum)) - kHalf) / kHalf;
}

uint8_t Quantise(float ink) {
  return static_cast<uint8_t>(
      static_cast<int>(std::min(1.0f, std::max(0.0f, ink)) * 255.0f + 0.5f));
}

Dataset MakeSplit(Split split, size_t count) {
  Dataset dataset;
  dataset.name = "digits";
  dataset.rows = kDigitSide;
  dataset.cols = kDigitSide;
  dataset.pixels.resize(count * kDigitPixels);
  dataset.labels.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const DigitSample sample = MakeDigit(split, i);
    std::copy(sample.pixels.begin(), sample.pixels.end(),
              dataset.pixels.data() + i * kDigitPixels);
    dataset.labels[i] = sample.label;
  }
  return dataset;
}

}  // namespace

DigitSample MakeDigit(Split split, size_t index) {
  Random random(kSeed, uint64_t{static_cast<uint32_t>(split)} << 32 | index);
  DigitSample sample;
  sample.label = static_cast<uint8_t>(random.NextBelow(10));
  Canvas canvas{};
  DrawDigit(sample.label, random, canvas);
  if (random.NextUniform() < kMarkChance) DrawMark(random, canvas);
  const float noise = random.NextUniform(0, kMostNoise);
  std::array<uint32_t, kDigitPixels> draws;  // the rest is a loop of vectors
  random.Fill(draws.data(), draws.size());
  for (size_t i = 0; i < kDigitPixels; ++i) {
    sample.pixels[i] = Quantise(canvas[i] + noise * NoiseOf(draws[i]));
  }
  return sample;
}

DatasetPair MakeDigits() {
  DatasetPair pair = {.train = MakeSplit(Split::kTrain, kDigitsTrain),
                      .test = MakeSplit(Split::kTest, kDigitsTest)};
  MeasurePixels(pair.train);
  pair.test.mean = pair.train.mean;
  pair.test.stddev = pair.train.stddev;
  return pair;
}

}  // namespace telegrad
