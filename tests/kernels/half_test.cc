#include <cstdint>
#include <vector>

#include "tests/kernels/kernel_test.h"

// Encoders of 16-bit gradients give what they give of the same gradient as
// float32, bit for bit.
namespace telegrad::kernels::testing {
namespace {

class Half : public KernelTest {};

struct Format {
  const char* name;
  CastFormatKernels CastKernels::*cast;
  TwoBitEncodeHalfFn* KernelTable::*two_bit_encode;
  ThresholdEncodeHalfFn* SparseKernels::*threshold_encode;
  std::vector<uint16_t> specials;
};

// Of each sign: 0, the subnormals' ends, the least normal, 1/2 and its lower
// neighbour, the largest, infinity, a quiet and a signalling NaN.
std::vector<uint16_t> BothSigns(std::vector<uint16_t> codes) {
  for (size_t i = codes.size(); i-- > 0;) {
    codes.push_back(static_cast<uint16_t>(codes[i] | 0x8000));
  }
  return codes;
}
const std::vector<Format>& Formats() {
  static const std::vector<Format> formats = {
      {"fp16", &CastKernels::fp16, &KernelTable::two_bit_encode_fp16,
       &SparseKernels::threshold_encode_fp16,
       BothSigns({0x0000, 0x0001, 0x03FF, 0x0400, 0x3800, 0x37FF, 0x7BFF,
                  0x7C00, 0x7E00, 0x7C01})},
      {"bf16", &CastKernels::bf16, &KernelTable::two_bit_encode_bf16,
       &SparseKernels::threshold_encode_bf16,
       BothSigns({0x0000, 0x0001, 0x007F, 0x0080, 0x3F00, 0x3EFF, 0x7F7F,
                  0x7F80, 0x7FC0, 0x7F81})}};
  return formats;
}

// A gradient of a format and its floats, by the reference.
struct Gradient {
  std::vector<uint16_t> halves;
  std::vector<float> floats;
};

Gradient Decoded(const Format& format, std::vector<uint16_t> halves) {
  Gradient made = {std::move(halves), {}};
  made.floats.resize(made.halves.size());
  (ReferenceKernels().cast.*format.cast)
      .decode(reinterpret_cast<const uint8_t*>(made.halves.data()),
              made.halves.size(), made.floats.data(), Stream{});
  return made;
}

Gradient RandomGradient(const Format& format, size_t n, bool specials) {
  const std::vector<float> values = RandomFloats(n, 0.5f, false, n + 1);
  std::vector<uint16_t> halves(n);
  EncodeStats stats;
  (ReferenceKernels().cast.*format.cast)
      .encode(values.data(), nullptr, n, NonFinite::kPropagate,
              reinterpret_cast<uint8_t*>(halves.data()), &stats, Stream{});
  Random random(n + 3);
  for (uint16_t& half : halves) {
    if (specials && random.NextBelow(8) == 0) {
      half = format.specials[random.NextBelow(
          static_cast<uint32_t>(format.specials.size()))];
    }
  }
  return Decoded(format, std::move(halves));
}

struct Encoded {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> survivors;
  std::vector<float> residual;
  EncodeStats stats;
};

void ExpectSame(const Encoded& got, const Encoded& want) {
  ASSERT_EQ(got.codes, want.codes);
  ASSERT_EQ(got.survivors, want.survivors);
  ExpectSameBits(got.residual, want.residual);
  ExpectSameStats(got.stats, want.stats);
}

// How far arrays are off a boundary, in bytes.
struct Skews {
  size_t grad = 0;
  size_t residual = 0;
  size_t codes = 0;
};

struct Call {
  const std::vector<float>& residual;
  NonFinite nonfinite;
  Skews skews = {};
};

// `encode` is TwoBitEncodeFn or TwoBitEncodeHalfFn.
template <typename T, typename Encode>
Encoded TwoBit(const KernelTable& table, Encode* encode,
               const std::vector<T>& grad, const Call& call) {
  const size_t n = grad.size();
  Array<T> g(table, grad, call.skews.grad);
  Array<float> r(table, call.residual, call.skews.residual);
  Array<uint8_t> codes(table, std::vector<uint8_t>(TwoBitBytes(n), 0x77),
                       call.skews.codes);
  Array<EncodeStats> stats(
      table, {{.num_nonzero = 7, .num_nonfinite = 3, .first_nonfinite = 200}});
  encode(g.get(), r.get(), n, 0.5f, call.nonfinite, codes.get(), stats.get(),
         Stream{});
  Wait(table);
  return {codes.values(), {}, r.values(), stats.values()[0]};
}

// `encode` is ThresholdEncodeFn or ThresholdEncodeHalfFn.
template <typename T, typename Encode>
Encoded Threshold(const KernelTable& table, Encode* encode,
                  const std::vector<T>& grad, const Call& call) {
  const size_t n = grad.size();
  Array<T> g(table, grad, call.skews.grad);
  Array<float> r(table, call.residual, call.skews.residual);
  Array<uint32_t> list(table, std::vector<uint32_t>(n + kSurvivorSlack));
  Array<uint64_t> count(table, {99});
  Array<EncodeStats> stats(
      table, {{.num_nonzero = 7, .num_nonfinite = 3, .first_nonfinite = 200}});
  Array<uint64_t> scratch(
      table, std::vector<uint64_t>(SparseScratchBytes(n) / 8, 0x55));
  encode(g.get(), r.get(), nullptr, n, 0.5f, call.nonfinite, list.get(),
         count.get(), stats.get(), scratch.get(), Stream{});
  Wait(table);
  Encoded out = {{}, list.values(), r.values(), stats.values()[0]};
  out.survivors.resize(count.values()[0]);
  return out;
}

// Against the definition, and against this table's own encoder of floats.
void ExpectEqualToFloats(const KernelTable& table, const Format& format,
                         const Gradient& grad, const Call& call) {
  const KernelTable& definition = ReferenceKernels();
  const Call aligned = {call.residual, call.nonfinite};
  const Encoded codes =
      TwoBit(table, table.*format.two_bit_encode, grad.halves, call);
  ExpectSame(codes, TwoBit(definition, definition.two_bit_encode, grad.floats,
                           aligned));
  ExpectSame(codes, TwoBit(table, table.two_bit_encode, grad.floats, aligned));
  const Encoded list = Threshold(table, table.sparse.*format.threshold_encode,
                                 grad.halves, call);
  ExpectSame(list, Threshold(definition, definition.sparse.threshold_encode,
                             grad.floats, aligned));
  ExpectSame(list, Threshold(table, table.sparse.threshold_encode, grad.floats,
                             aligned));
}

TEST_P(Half, EncodesAsTheSameFloats) {
  for (const Format& format : Formats()) {
    for (const size_t n : SizesToTry()) {
      for (const bool specials : {false, true}) {
        const Gradient grad = RandomGradient(format, n, specials);
        const auto residual = RandomFloats(n, 0.3f, specials, n + 2);
        for (const NonFinite nonfinite :
             {NonFinite::kZero, NonFinite::kPropagate}) {
          SCOPED_TRACE(::testing::Message()
                       << format.name << " n " << n << " specials " << specials
                       << " nonfinite " << static_cast<int>(nonfinite));
          const size_t odd = n % 2;
          ExpectEqualToFloats(
              table(), format, grad,
              {residual, nonfinite, {2 * odd, 4 * odd, 3 * odd}});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Each array off its vectors' boundaries alone, by as much as its type allows.
TEST_P(Half, EncodesAtAnyAddress) {
  for (const Format& format : Formats()) {
    for (const size_t n : {size_t{131}, size_t{1023}, size_t{4099}}) {
      const Gradient grad = RandomGradient(format, n, true);
      const auto residual = RandomFloats(n, 0.3f, true, n + 2);
      for (size_t k = 1; k < 8; ++k) {
        for (const Skews skews : {Skews{2 * k, 0, 0}, Skews{0, 4 * k, 0},
                                  Skews{0, 0, k}, Skews{2 * k, 4 * k, k}}) {
          SCOPED_TRACE(::testing::Message()
                       << format.name << " n " << n << " grad " << skews.grad
                       << " residual " << skews.residual << " codes "
                       << skews.codes);
          ExpectEqualToFloats(table(), format, grad,
                              {residual, NonFinite::kZero, skews});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Each of the 65536 codes, onto a residual that leaves it alone and onto one
// that does not.
TEST_P(Half, EncodesEveryCode) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const Format& format : Formats()) {
    const Gradient grad = Decoded(format, all);
    for (const float rest : {-0.0f, 0.0f, 0.25f}) {
      const std::vector<float> residual(all.size(), rest);
      for (const NonFinite nonfinite :
           {NonFinite::kZero, NonFinite::kPropagate}) {
        SCOPED_TRACE(::testing::Message()
                     << format.name << " residual " << rest);
        ExpectEqualToFloats(table(), format, grad, {residual, nonfinite});
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Half, ::testing::ValuesIn(Tables()), NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
