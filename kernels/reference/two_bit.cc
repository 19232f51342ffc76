#include "kernels/two_bit.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference.h"
#include "kernels/reference/codes.h"
#include "kernels/reference/half.h"

namespace telegrad::kernels::reference {
namespace {

template <typename Format>
void Encode(const typename Format::Element* grad, float* residual, size_t n,
            float threshold, NonFinite nonfinite, uint8_t* codes,
            EncodeStats* stats) {
  std::fill_n(codes, TwoBitBytes(n), uint8_t{0});
  for (size_t i = 0; i < n; ++i) {
    float v = residual[i] + Format::Float(grad[i]);
    if (nonfinite == NonFinite::kZero && !std::isfinite(v)) {
      ++stats->num_nonfinite;
      if (i < stats->first_nonfinite) stats->first_nonfinite = i;
      v = residual[i] + 0.0f;
    }
    uint32_t code = kZeroCode;
    if (v >= threshold) {
      code = kPositiveCode;
      v -= threshold;
    } else if (v <= -threshold) {
      code = kNegativeCode;
      v += threshold;
    }
    residual[i] = v;
    if (code != kZeroCode) ++stats->num_nonzero;
    PutCode(code, i, codes);
  }
}

float ValueAt(const uint8_t* codes, size_t i, float threshold) {
  const int32_t code = CodeAt(codes, i);
  return code > 0 ? threshold : code < 0 ? -threshold : 0.0f;
}

}  // namespace

void TwoBitEncode(const float* grad, float* residual, size_t n, float threshold,
                  NonFinite nonfinite, uint8_t* codes, EncodeStats* stats,
                  Stream) {
  Encode<OfFloat32>(grad, residual, n, threshold, nonfinite, codes, stats);
}

void TwoBitEncodeFp16(const uint16_t* grad, float* residual, size_t n,
                      float threshold, NonFinite nonfinite, uint8_t* codes,
                      EncodeStats* stats, Stream) {
  Encode<OfFp16>(grad, residual, n, threshold, nonfinite, codes, stats);
}

void TwoBitEncodeBf16(const uint16_t* grad, float* residual, size_t n,
                      float threshold, NonFinite nonfinite, uint8_t* codes,
                      EncodeStats* stats, Stream) {
  Encode<OfBf16>(grad, residual, n, threshold, nonfinite, codes, stats);
}

void TwoBitDecode(const uint8_t* codes, size_t n, float threshold, float* out,
                  Stream) {
  for (size_t i = 0; i < n; ++i) {
    out[i] = ValueAt(codes, i, threshold);
  }
}

void TwoBitDecodeAdd(const uint8_t* codes, size_t n, float threshold,
                     float* sum, Stream) {
  for (size_t i = 0; i < n; ++i) {
    sum[i] += ValueAt(codes, i, threshold);
  }
}

}  // namespace telegrad::kernels::reference
