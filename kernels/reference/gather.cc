#include "kernels/reference/gather.h"

#include <cstring>

namespace telegrad::kernels::reference {

void Clear(size_t size, void* to, Stream) {
  if (size > 0) std::memset(to, 0, size);
}

void Sample(const float* x, size_t n, size_t stride, float* out, Stream) {
  for (size_t i = 0; i < n; i += stride) out[i / stride] = x[i];
}

void GatherMany(const GatherSpan* spans, uint32_t num_spans, Stream stream) {
  for (const GatherSpan* span = spans; span != spans + num_spans; ++span) {
    Sample(span->from, span->count * span->stride, span->stride, span->to,
           stream);
  }
}

}  // namespace telegrad::kernels::reference
