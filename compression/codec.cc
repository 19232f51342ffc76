#include "compression/codec.h"

#include "compression/shape_checks.h"

namespace telegrad {

CodecOptions StandardOptions(const CodecTraits& traits) {
  CodecOptions options;
  for (const CodecOption& option : traits.options) {
    options.*option.field = option.standard;
  }
  return options;
}

absl::Status PreparedCodec::ValidateSum(ConstBytes sum,
                                        uint32_t num_payloads) const {
  return CheckSize("sums", sum.size, sum_bytes(num_payloads));
}

absl::Status PreparedCodec::Learn(ConstBytes, uint32_t, CodecState&) const {
  return absl::OkStatus();
}

}  // namespace telegrad
