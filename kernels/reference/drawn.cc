#include "kernels/drawn.h"

#include <cmath>
#include <cstring>

#include "kernels/reference.h"

namespace telegrad::kernels::reference {
namespace {

float ValueAt(const uint8_t* payload, size_t j) {
  float value;
  std::memcpy(&value, payload + kDrawnValuesAt + 4 * j, sizeof(value));
  return value;
}
void PutValue(float value, size_t j, uint8_t* payload) {
  std::memcpy(payload + kDrawnValuesAt + 4 * j, &value, sizeof(value));
}

void Take(float* residual, float* momentum, size_t n, size_t k, uint64_t seed,
          uint8_t* payload, EncodeStats* stats, Stream) {
  std::memcpy(payload, &seed, sizeof(seed));
  for (size_t j = 0; j < k; ++j) {
    const size_t i = DrawnAt(DrawnWords(seed, j), j, n, k);
    const bool is_sent = std::isfinite(residual[i]);
    const float value = is_sent ? residual[i] : 0.0f;
    if (is_sent) residual[i] = 0;
    if (is_sent && momentum != nullptr) momentum[i] = 0;
    stats->num_nonzero += value != 0 ? 1 : 0;
    PutValue(value, j, payload);
  }
}

void DecodeAdd(const uint8_t* payload, size_t n, size_t k, float* out, Stream) {
  uint64_t seed;
  std::memcpy(&seed, payload, sizeof(seed));
  for (size_t j = 0; j < k; ++j) {
    out[DrawnAt(DrawnWords(seed, j), j, n, k)] += ValueAt(payload, j);
  }
}

void Decode(const uint8_t* payload, size_t n, size_t k, float* out, Stream) {
  std::memset(out, 0, 4 * n);
  uint64_t seed;
  std::memcpy(&seed, payload, sizeof(seed));
  for (size_t j = 0; j < k; ++j) {
    out[DrawnAt(DrawnWords(seed, j), j, n, k)] = ValueAt(payload, j);
  }
}

void Sum(const uint8_t* const* payloads, uint32_t num_payloads, size_t k,
         uint8_t* out, Stream) {
  std::memmove(out, payloads[0], kDrawnValuesAt + 4 * k);
  for (uint32_t p = 1; p < num_payloads; ++p) {
    for (size_t j = 0; j < k; ++j) {
      PutValue(ValueAt(out, j) + ValueAt(payloads[p], j), j, out);
    }
  }
}

}  // namespace

DrawnKernels Drawn() { return {Take, Decode, DecodeAdd, Sum}; }

}  // namespace telegrad::kernels::reference
