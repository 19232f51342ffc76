// Casts, signs and blocks of integers.
#include "kernels/block_rules.h"
#include "kernels/dispatch.h"
#include "perf/family_cases.h"
#include "perf/peers.h"

namespace telegrad::perf {
namespace {

using kernels::CpuKernels;
using kernels::EncodeStats;
using kernels::NonFinite;

constexpr uint32_t kFrames = 4;

void AppendCast(const std::string& name, const kernels::CastFormatKernels& cast,
                std::vector<KernelCase>& cases) {
  const ShareBody encode = [cast](const Share& s) {
    EncodeStats stats;
    cast.encode(s.grad(), s.residual(), s.n, NonFinite::kZero, s.payload(),
                &stats, {});
  };
  const ShareBody plain = [cast](const Share& s) {
    EncodeStats stats;
    cast.encode(s.grad(), nullptr, s.n, NonFinite::kZero, s.payload(), &stats,
                {});
  };
  cases.push_back(
      FamilyCase(name, name + "/encode", 14, Traffic::kAdd, encode));
  cases.push_back(
      FamilyCase(name, name + "/encode_plain", 6, Traffic::kNarrow, plain));
  cases.push_back(FamilyCase(
      name, name + "/decode", 6, Traffic::kWiden,
      [cast](const Share& s) { cast.decode(s.payload(), s.n, s.out(), {}); },
      plain));
  cases.push_back(FamilyCase(
      name, name + "/decode_add", 10, Traffic::kAdd,
      [cast](const Share& s) {
        cast.decode_add(s.payload(), s.n, s.out(), {});
      },
      plain));
}

void AppendOneBit(std::vector<KernelCase>& cases) {
  static const kernels::SignKernels& sign = CpuKernels().sign;
  const ShareBody encode = [](const Share& s) {
    EncodeStats stats;
    sign.one_bit_encode(s.grad(), s.residual(), s.n, 0.0f, 1.0f,
                        NonFinite::kZero, s.payload(), &stats, {});
  };
  cases.push_back(FamilyCase("1bit", "1bit/encode", 12.125, Traffic::kAdd,
                             encode, {}, [](const Share& s) {
                               MxnetQuantizeOneBit(s.grad(), s.residual(), s.n,
                                                   0.0f, s.payload());
                             }));
  cases.push_back(FamilyCase(
      "1bit", "1bit/decode", 4.125, Traffic::kWrite,
      [](const Share& s) {
        sign.one_bit_decode(s.payload(), s.n, s.out(), {});
      },
      encode,
      [](const Share& s) {
        MxnetDequantizeOneBit(s.payload(), s.n, s.out());
      }));
  cases.push_back(FamilyCase(
      "1bit", "1bit/decode_add", 8.125, Traffic::kUpdate,
      [](const Share& s) {
        sign.one_bit_decode_add(s.payload(), s.n, s.out(), {});
      },
      encode));
}

void AppendOneBitCounts(std::vector<KernelCase>& cases) {
  static const kernels::SignKernels& sign = CpuKernels().sign;
  const ShareBody pack = [](const Share& s) {
    const uint8_t* frames[kFrames];
    for (uint32_t f = 0; f < kFrames; ++f) frames[f] = s.payload() + f * s.n;
    sign.count_pack(frames, kFrames, s.n, s.payload() + kFrames * s.n, {});
  };
  const double counts = kernels::SignCountPlanes(kFrames) / 8.0;
  cases.push_back(FamilyCase("1bit", "1bit/count_pack/W4",
                             kFrames / 8.0 + counts, Traffic::kCopy, pack));
  cases.push_back(FamilyCase(
      "1bit", "1bit/count_decode/W4", counts + 4, Traffic::kWrite,
      [](const Share& s) {
        sign.count_decode(s.payload() + kFrames * s.n, kFrames, s.n, s.out(),
                          {});
      },
      pack));
}

void AppendBlockSigns(std::vector<KernelCase>& cases) {
  static const kernels::SignKernels& sign = CpuKernels().sign;
  constexpr size_t kBlock = 2048;  // the codec's
  constexpr double kPayload = 0.125 + 4.0 / kBlock;
  const ShareBody encode = [](const Share& s) {
    EncodeStats stats;
    sign.block_encode(s.grad(), s.residual(), s.n, kBlock, NonFinite::kZero,
                      s.payload(), &stats, {});
  };
  cases.push_back(FamilyCase("onebit", "onebit/encode", 12 + kPayload,
                             Traffic::kAdd, encode));
  cases.push_back(FamilyCase(
      "onebit", "onebit/decode", 4 + kPayload, Traffic::kWrite,
      [](const Share& s) {
        sign.block_decode(s.payload(), s.n, kBlock, s.out(), {});
      },
      encode));
  cases.push_back(FamilyCase(
      "onebit", "onebit/decode_add", 8 + kPayload, Traffic::kUpdate,
      [](const Share& s) {
        sign.block_decode_add(s.payload(), s.n, kBlock, s.out(), {});
      },
      encode));
}

// Decoding is the same for deterministic and stochastic codes.
void AppendBlock(uint32_t bits, std::vector<KernelCase>& cases) {
  static const kernels::BlockKernels& block = CpuKernels().block;
  const bool odd = kernels::IsOdd(bits);
  const kernels::BlockFormat format = {.block = odd ? 256u : 1024u,
                                       .bits = bits,
                                       .levels = kernels::SharedLevels(bits),
                                       .odd = odd};
  const std::string codec = "int" + std::to_string(bits);
  const std::string name = "block" + std::to_string(bits);
  const double payload = bits / 8.0 + (odd ? 2.0 / 256 : 4.0 / 1024);
  const ShareBody quantize = [format](const Share& s) {
    EncodeStats stats;
    block.quantize(s.grad(), s.residual(), s.n, format, NonFinite::kZero,
                   s.payload(), &stats, {});
  };
  cases.push_back(FamilyCase(codec, name + "/quantize", 12 + payload,
                             Traffic::kAdd, quantize));
  if (!odd) {
    cases.push_back(FamilyCase("qsgd", name + "/dither", 4 + payload,
                               Traffic::kRead, [format](const Share& s) {
                                 EncodeStats stats;
                                 block.dither(s.grad(), s.n, format, {}, {},
                                              NonFinite::kZero, s.payload(),
                                              &stats, {});
                               }));
  }
  cases.push_back(FamilyCase(
      codec, name + "/decode", 4 + payload, Traffic::kWrite,
      [format](const Share& s) {
        block.decode(s.payload(), s.n, format, s.out(), {});
      },
      quantize));
  cases.push_back(FamilyCase(
      codec, name + "/decode_add", 8 + payload, Traffic::kUpdate,
      [format](const Share& s) {
        block.decode_add(s.payload(), s.n, format, s.out(), {});
      },
      quantize));
}

void AppendShared(uint32_t bits, std::vector<KernelCase>& cases) {
  static const kernels::BlockKernels& block = CpuKernels().block;
  constexpr float kQuantum = 0x1p-4f;
  const uint32_t odd = kernels::IsOdd(bits) ? 1 : 0;
  const uint32_t sum_bits = odd == 0 ? 2 * bits : bits + 2;
  const std::string codec = "int" + std::to_string(bits) + "shared";
  const std::string name = "shared" + std::to_string(bits);
  const double codes = bits / 8.0;
  const ShareBody quantize = [bits](const Share& s) {
    EncodeStats stats;
    block.shared_quantize(s.grad(), s.residual(), s.n, bits, kQuantum,
                          NonFinite::kZero, s.payload(), &stats, {});
  };
  cases.push_back(FamilyCase(codec, name + "/quantize", 12 + codes,
                             Traffic::kAdd, quantize));
  cases.push_back(FamilyCase(
      codec, name + "/decode", 4 + codes, Traffic::kWrite,
      [bits, odd](const Share& s) {
        block.shared_decode(s.payload(), s.n, bits, odd, kQuantum, s.out(), {});
      },
      quantize));
  cases.push_back(FamilyCase(
      codec, name + "/decode_add", 8 + codes, Traffic::kUpdate,
      [bits, odd](const Share& s) {
        block.shared_decode_add(s.payload(), s.n, bits, odd, kQuantum, s.out(),
                                {});
      },
      quantize));
  // Frames of zeros: what codes say does not matter here.
  cases.push_back(
      FamilyCase(codec, name + "/sum/W4", kFrames * codes + sum_bits / 8.0,
                 Traffic::kCopy, [bits, sum_bits](const Share& s) {
                   const uint8_t* frames[kFrames];
                   for (uint32_t f = 0; f < kFrames; ++f) {
                     frames[f] = s.payload() + f * s.n;
                   }
                   block.sum_codes(frames, kFrames, s.n, bits, sum_bits,
                                   s.payload() + kFrames * s.n, {});
                 }));
}

}  // namespace

void AppendNarrowCases(std::vector<KernelCase>& cases) {
  AppendCast("fp16", CpuKernels().cast.fp16, cases);
  AppendCast("bf16", CpuKernels().cast.bf16, cases);
  AppendOneBit(cases);
  AppendOneBitCounts(cases);
  AppendBlockSigns(cases);
  for (const uint32_t bits : {2u, 3u, 4u, 8u}) {
    AppendBlock(bits, cases);
    AppendShared(bits, cases);
  }
}

}  // namespace telegrad::perf
