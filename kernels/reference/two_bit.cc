#include "kernels/two_bit.h"

#include <cmath>
#include <cstring>

#include "kernels/reference.h"
#include "kernels/reference/codes.h"

namespace telegrad::kernels::reference {

void TwoBitEncode(const float* grad, float* residual, size_t n, float threshold,
                  NonFinite nonfinite, uint8_t* codes, EncodeStats* stats,
                  Stream) {
  std::memset(codes, 0, TwoBitBytes(n));
  for (size_t i = 0; i < n; ++i) {
    float v = residual[i] + grad[i];
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

void TwoBitDecode(const uint8_t* codes, size_t n, float threshold, float* out,
                  Stream) {
  for (size_t i = 0; i < n; ++i) {
    const int32_t code = CodeAt(codes, i);
    out[i] = code > 0 ? threshold : code < 0 ? -threshold : 0.0f;
  }
}

void TwoBitDecodeAdd(const uint8_t* codes, size_t n, float threshold,
                     float* sum, Stream) {
  for (size_t i = 0; i < n; ++i) {
    const int32_t code = CodeAt(codes, i);
    sum[i] += code > 0 ? threshold : code < 0 ? -threshold : 0.0f;
  }
}

}  // namespace telegrad::kernels::reference
