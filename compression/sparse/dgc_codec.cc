#include "compression/sparse/dgc_codec.h"

#include <algorithm>

#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/shape_checks.h"
#include "compression/sparse/value_codec.h"

namespace telegrad {
namespace {

size_t MaxSent(const CodecOptions& options, size_t n) {
  const size_t k = NumSent(DgcDensity(options, 0), n);
  return options.sampled != 0 ? std::min(n, 2 * k) : k;
}

class PreparedDgc : public ValueCodec {
 public:
  PreparedDgc(const CodecTraits& codec_traits, size_t num_elems,
              const kernels::KernelTable& table, const CodecOptions& options)
      : ValueCodec(codec_traits, num_elems, table, options,
                   MaxSent(options, num_elems)),
        options_(options) {}

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    const size_t k = NumSent(DgcDensity(options_, params.step), num_elems());
    if (params.source == kServerSource) {
      return EncodeLargest(grad, state, params, k, out, result, stream);
    }
    RETURN_IF_ERROR(MakeRoom(4 * num_elems(), kernels(), state.memory, stream));
    auto* const u = state.memory.as<float>();
    const auto rate = static_cast<float>(options_.momentum);
    if (is_on_gpu()) {
      return EncodeOnGpu(grad, {u, rate, options_.clip}, state, params,
                         WantedOf(k, params), out, result, stream);
    }
    EncodeMomentum(grad, u, rate, state, params, k, out, result, stream);
    return absl::OkStatus();
  }

 private:
  void EncodeMomentum(ConstBytes grad, float* u, float rate, CodecState& state,
                      const EncodeParams& params, size_t k, Bytes out,
                      EncodeResult* result, Stream stream) const {
    const float* g = AsFloats(grad);
    float* residual = AsFloats(state.residual);
    float scale = 1;
    if (options_.clip != 0) {
      kernels().select.clip_scale(g, num_elems(), options_.clip, &scale,
                                  nullptr, stream);
    }
    const Wanted wanted = WantedOf(k, params);
    Lists lists = MakeLists(state);
    const auto value = [&](size_t i) {
      return residual[i] + (rate * u[i] + scale * g[i]);
    };
    const float threshold =
        CandidateThreshold(wanted, value, {residual, u, g}, lists);
    result->stats = {};
    kernels().sparse.momentum_large_values(
        g, {rate, &scale}, u, residual, num_elems(), &threshold,
        params.nonfinite, lists.indices, lists.values, &lists.count,
        &result->stats, nullptr, stream);
    Send(wanted, threshold, lists, residual, out, result);
    ClearListed(lists.indices, lists.count, u);
  }

  const CodecOptions options_;
};

MadeCodec MakeDgc(const CodecTraits& traits, size_t num_elems,
                  const kernels::KernelTable& table,
                  const CodecOptions& options) {
  RETURN_IF_ERROR(CheckIndices(num_elems));
  return std::make_unique<PreparedDgc>(traits, num_elems, table, options);
}

}  // namespace

double DgcDensity(const CodecOptions& options, uint64_t step) {
  const auto now = static_cast<double>(step);
  if (now >= options.warmup) return options.density;
  double density = 0.25;
  for (double end = 0.25; end <= 0.75; end += 0.25) {
    if (now >= end * options.warmup) density *= 0.25;
  }
  return std::max(density, options.density);
}

const Codec& DgcCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "dgc",
          .id = CodecId::kDgc,
          .constant_width = false,
          .summary = "deep gradient compression: top-k of accumulated momentum",
          .conserves = false,
          .options = {{"density", &CodecOptions::density, 0.001, 1e-6, 1, false,
                       "share of the elements that is sent"},
                      {"momentum", &CodecOptions::momentum, 0.9, 0, 1, false,
                       "instead of the optimizer's, which must be 0"},
                      {"clip", &CodecOptions::clip, 0, 0, 1e30, false,
                       "largest L2 norm of a chunk's gradient; 0: as it is"},
                      {"warmup", &CodecOptions::warmup, 0, 0, 1e12, true,
                       "steps in which the density falls from 25 %"},
                      {"sampled", &CodecOptions::sampled, 1, 0, 1, true,
                       "0: exactly the largest"},
                      ReplyOption()},
      },
      MakeDgc);
  return *codec;
}

}  // namespace telegrad
