// Each operation with the best CPU table and the reference's, MXNet's loop as
// the peer, and the ceilings of the same shape of traffic. Arguments: elements
// (2^15: in L2; 2^25: in memory). Counters: elements/s and bytes/s of the
// traffic that the operation cannot avoid.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "kernels/dispatch.h"

namespace telegrad::kernels {
namespace {

constexpr float kThreshold = 0.5f;
// Inputs repeat after this many: too many for a branch predictor to learn.
constexpr size_t kPeriod = 1 << 16;
constexpr int64_t kInCache = 1 << 15;
constexpr int64_t kInMemory = 1 << 25;

struct Arrays {
  explicit Arrays(size_t n, uint32_t num_frames = 1)
      : x(4 * n), y(4 * n), z(4 * n), packed(4 * n) {
    Random random(1);
    for (size_t i = 0; i < n; ++i) {
      // About a tenth of the codes is not 0 once residuals have settled.
      x.as<float>()[i] = i < kPeriod ? 0.05f * random.NextNormal()
                                     : x.as<float>()[i - kPeriod];
      z.as<float>()[i] = 0.01f;
    }
    std::memset(y.data(), 0, y.size());
    std::memset(packed.data(), 0, packed.size());
    for (uint32_t f = 0; f < num_frames; ++f) {
      frames.emplace_back(TwoBitBytes(n));
      uint8_t* codes = frames.back().as<uint8_t>();
      for (size_t b = 0; b < TwoBitBytes(n); ++b) {
        codes[b] = b < kPeriod ? static_cast<uint8_t>(random.NextU32())
                               : codes[b - kPeriod];
      }
      pointers.push_back(codes);
    }
  }

  Buffer x;
  Buffer y;
  Buffer z;
  Buffer packed;
  std::vector<Buffer> frames;
  std::vector<const uint8_t*> pointers;
  EncodeStats stats;
};

void Report(benchmark::State& state, size_t n, double bytes_per_element) {
  const double elements =
      static_cast<double>(n) * static_cast<double>(state.iterations());
  state.counters["elements/s"] =
      benchmark::Counter(elements, benchmark::Counter::kIsRate);
  state.counters["bytes/s"] = benchmark::Counter(elements * bytes_per_element,
                                                 benchmark::Counter::kIsRate);
}

template <typename Body>
void Measure(benchmark::State& state, double bytes_per_element, Body body,
             uint32_t num_frames = 1) {
  const size_t n = static_cast<size_t>(state.range(0));
  Arrays arrays(n, num_frames);
  for (auto _ : state) {
    body(arrays, n);
    benchmark::ClobberMemory();
  }
  Report(state, n, bytes_per_element);
}

// apache/mxnet's quantize_2bit as one loop: a branch for each element.
void PeerEncode(const float* grad, float* residual, size_t n, float threshold,
                uint8_t* codes) {
  static constexpr uint8_t kPositive[4] = {0xC0, 0x30, 0x0C, 0x03};
  static constexpr uint8_t kNegative[4] = {0x80, 0x20, 0x08, 0x02};
  for (size_t word = 0; word < (n + 15) / 16; ++word) {
    uint8_t* block = codes + 4 * word;
    std::memset(block, 0, 4);
    const size_t end = word * 16 + 16 <= n ? word * 16 + 16 : n;
    for (size_t i = word * 16; i < end; ++i) {
      uint8_t* byte = block + (i - word * 16) / 4;
      residual[i] += grad[i];
      if (residual[i] >= threshold) {
        *byte = static_cast<uint8_t>(*byte | kPositive[i & 3]);
        residual[i] -= threshold;
      } else if (residual[i] <= -threshold) {
        *byte = static_cast<uint8_t>(*byte | kNegative[i & 3]);
        residual[i] += threshold;
      }
    }
  }
}

void PeerDecode(const uint8_t* codes, size_t n, float threshold, float* out) {
  static constexpr uint8_t kPositive[4] = {0xC0, 0x30, 0x0C, 0x03};
  static constexpr uint8_t kNegative[4] = {0x80, 0x20, 0x08, 0x02};
  for (size_t i = 0; i < n; ++i) {
    const uint8_t masked = codes[i >> 2] & kPositive[i & 3];
    if (masked == kPositive[i & 3]) {
      out[i] = threshold;
    } else if (masked == kNegative[i & 3]) {
      out[i] = -threshold;
    } else {
      out[i] = 0;
    }
  }
}

void RegisterEncode(const std::string& who, const KernelTable& table) {
  for (const NonFinite mode : {NonFinite::kZero, NonFinite::kPropagate}) {
    const char* name = mode == NonFinite::kZero ? "encode/" : "encode_mxnet/";
    benchmark::RegisterBenchmark(
        (name + who).c_str(),
        [&table, mode](benchmark::State& state) {
          Measure(state, 12.25, [&](Arrays& a, size_t n) {
            table.two_bit_encode(a.x.as<float>(), a.y.as<float>(), n,
                                 kThreshold, mode, a.packed.as<uint8_t>(),
                                 &a.stats, Stream{});
          });
        })
        ->Arg(kInCache)
        ->Arg(kInMemory);
  }
}

template <typename Body>
void Register(const std::string& name, double bytes_per_element, Body body,
              uint32_t num_frames = 1) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 Measure(state, bytes_per_element, body,
                                         num_frames);
                               })
      ->Arg(kInCache)
      ->Arg(kInMemory);
}

void RegisterDecodes(const std::string& who, const KernelTable& table) {
  Register("decode/" + who, 4.25, [&table](Arrays& a, size_t n) {
    table.two_bit_decode(a.pointers[0], n, kThreshold, a.y.as<float>(),
                         Stream{});
  });
  Register("decode_add/" + who, 8.25, [&table](Arrays& a, size_t n) {
    table.two_bit_decode_add(a.pointers[0], n, kThreshold, a.y.as<float>(),
                             Stream{});
  });
}

void RegisterSums(const std::string& who, const KernelTable& table) {
  for (const uint32_t w : {2u, 8u}) {
    const std::string suffix = "/W" + std::to_string(w) + "/" + who;
    const double in = 0.25 * w;
    const double sum = SumBits(w) / 8.0;
    Register(
        "sum_pack" + suffix, in + sum,
        [&table, w](Arrays& a, size_t n) {
          table.two_bit_sum_pack(a.pointers.data(), w, n,
                                 a.packed.as<uint8_t>(), Stream{});
        },
        w);
    Register("packed_sum_decode" + suffix, sum + 4,
             [&table, w](Arrays& a, size_t n) {
               table.packed_sum_decode(a.packed.as<uint8_t>(), w, n, kThreshold,
                                       a.y.as<float>(), Stream{});
             });
    Register(
        "sum_decode" + suffix, in + 4,
        [&table, w](Arrays& a, size_t n) {
          table.two_bit_sum_decode(a.pointers.data(), w, n, kThreshold,
                                   a.y.as<float>(), Stream{});
        },
        w);
    Register(
        "reencode" + suffix, in + 8.25,
        [&table, w](Arrays& a, size_t n) {
          table.two_bit_reencode(a.pointers.data(), w, n, a.y.as<int32_t>(), 0,
                                 static_cast<int32_t>(w),
                                 a.packed.as<uint8_t>(), Stream{});
        },
        w);
  }
}

void RegisterDense(const std::string& who, const KernelTable& table) {
  Register("add/" + who, 12, [&table](Arrays& a, size_t n) {
    table.add_f32(a.x.as<float>(), n, a.y.as<float>(), Stream{});
  });
  Register("count_nonfinite/" + who, 4, [&table](Arrays& a, size_t n) {
    table.count_nonfinite(a.x.as<float>(), n, &a.stats, Stream{});
  });
  Register("sgd/" + who, 20, [&table](Arrays& a, size_t n) {
    const SgdParameters params = {.learning_rate = 1e-3f,
                                  .momentum_rate = 0.9f};
    table.sgd_momentum(a.x.as<float>(), n, params, a.y.as<float>(),
                       a.z.as<float>(), Stream{});
  });
  // Bytes: what it reads of the samples only.
  Register("sampled_power/" + who, 0, [&table](Arrays& a, size_t n) {
    double power = 0;
    table.sampled_power(a.x.as<float>(), a.y.as<float>(), n, &power, Stream{});
    benchmark::DoNotOptimize(power);
  });
}

void RegisterPeersAndCeilings() {
  Register("encode_mxnet/peer", 12.25, [](Arrays& a, size_t n) {
    PeerEncode(a.x.as<float>(), a.y.as<float>(), n, kThreshold,
               a.packed.as<uint8_t>());
  });
  Register("decode/peer", 4.25, [](Arrays& a, size_t n) {
    PeerDecode(a.pointers[0], n, kThreshold, a.y.as<float>());
  });
  // Two streams in, one out in place, one addition: nothing with the shape of
  // the encoder's traffic can do less.
  Register("ceiling/add_in_place", 12, [](Arrays& a, size_t n) {
    CpuKernels().add_f32(a.x.as<float>(), n, a.y.as<float>(), Stream{});
  });
  Register("ceiling/memcpy", 8, [](Arrays& a, size_t n) {
    std::memcpy(a.y.data(), a.x.data(), 4 * n);
  });
}

void RegisterAll() {
  RegisterPeersAndCeilings();
  for (const KernelTable* table : {&CpuKernels(), &ReferenceKernels()}) {
    const std::string who = table->name;
    RegisterEncode(who, *table);
    RegisterDecodes(who, *table);
    RegisterSums(who, *table);
    RegisterDense(who, *table);
  }
}

}  // namespace
}  // namespace telegrad::kernels

int main(int argc, char** argv) {
  telegrad::kernels::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
