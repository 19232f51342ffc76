#include "compression/powersgd/basis.h"

#include <cmath>

#include "base/random.h"

namespace telegrad {
namespace {

// Of a vector's length, what must be left beside the vectors before it. Inputs
// are float32: less than this is rounding.
constexpr double kLeastRemainder = 1e-6;
constexpr uint64_t kReplacementSeed = 0x506F776572534744;  // "PowerSGD"

double Dot(const double* x, const double* y, size_t size) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  for (size_t i = 0; i < size; ++i) lanes[i % kLanes] += x[i] * y[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

void FillRandom(Random& random, size_t size, double* vector) {
  for (size_t i = 0; i < size; ++i) vector[i] = random.NextUniform(-1, 1);
}

// Takes the parts along the first k vectors off vector k and makes its length
// 1; false where next to nothing is left.
bool OrthonormalizeOne(size_t size, uint32_t k, double* vectors) {
  double* vector = vectors + k * size;
  const double before = std::sqrt(Dot(vector, vector, size));
  for (int pass = 0; pass < 2; ++pass) {
    for (uint32_t other = 0; other < k; ++other) {
      const double* basis = vectors + other * size;
      const double along = Dot(vector, basis, size);
      for (size_t i = 0; i < size; ++i) vector[i] -= along * basis[i];
    }
  }
  const double after = std::sqrt(Dot(vector, vector, size));
  if (!(after > kLeastRemainder * before)) return false;
  for (size_t i = 0; i < size; ++i) vector[i] /= after;
  return true;
}

}  // namespace

void Orthonormalize(size_t size, uint32_t count, double* vectors) {
  for (uint32_t k = 0; k < count; ++k) {
    Random random(kReplacementSeed, k);
    while (!OrthonormalizeOne(size, k, vectors)) {
      FillRandom(random, size, vectors + k * size);
    }
  }
}

void RandomBasis(uint64_t seed, uint64_t stream, size_t size, uint32_t count,
                 double* vectors) {
  Random random(seed, stream);
  FillRandom(random, size * count, vectors);
  Orthonormalize(size, count, vectors);
}

}  // namespace telegrad
