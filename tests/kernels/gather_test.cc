#include "kernels/gather.h"

#include "tests/kernels/kernel_test.h"

namespace telegrad::kernels {
namespace {

using testing::Array;
using testing::Wait;

class GatherTest : public testing::KernelTest {
 protected:
  const GatherKernels& gather() const {
    return GatherKernelsOf(table().device);
  }
};

TEST_P(GatherTest, ClearsWhatItIsGivenAlone) {
  for (const size_t n : testing::SizesToTry()) {
    Array<uint8_t> bytes(table(), std::vector<uint8_t>(n + 2, 0x77), n % 3);
    gather().clear(n, bytes.get() + 1, Stream{});
    Wait(table());
    std::vector<uint8_t> expected(n + 2);
    expected.front() = expected.back() = 0x77;
    ASSERT_EQ(bytes.values(), expected) << n;
  }
}

TEST_P(GatherTest, TakesEverySoManieth) {
  for (const size_t n : testing::SizesToTry()) {
    const std::vector<float> x = testing::RandomFloats(n, 1, true, n);
    for (const size_t stride : {size_t{1}, size_t{2}, size_t{37}, n + 1}) {
      std::vector<float> expected;
      for (size_t i = 0; i < n; i += stride) expected.push_back(x[i]);
      const Array<float> from(table(), x);
      const Array<float> out(table(), std::vector<float>(expected.size(), 7));
      gather().sample(from.get(), n, stride, out.get(), Stream{});
      Wait(table());
      testing::ExpectSameBits(out.values(), expected);
    }
  }
}

TEST_P(GatherTest, TakesManySpansAtOnce) {
  const std::vector<float> x = testing::RandomFloats(5000, 1, true, 3);
  const Array<float> from(table(), x);
  const Array<float> out(table(), std::vector<float>(9000, 7));
  std::vector<GatherSpan> spans;
  std::vector<float> expected(9000, 7);
  size_t at = 1;
  for (const auto& [count, stride] : std::vector<std::pair<size_t, size_t>>{
           {1, 1}, {5000, 1}, {100, 37}, {3, 1666}, {2500, 2}}) {
    for (size_t i = 0; i < count; ++i) expected[at + i] = x[i * stride];
    spans.push_back({from.get(), out.get() + at, count, stride});
    at += count + 1;
  }
  const Array<GatherSpan> table_of(table(), spans);
  gather().gather_many(table_of.get(), static_cast<uint32_t>(spans.size()),
                       Stream{});
  gather().gather_many(table_of.get(), 0, Stream{});
  Wait(table());
  testing::ExpectSameBits(out.values(), expected);
}

INSTANTIATE_TEST_SUITE_P(Kernels, GatherTest,
                         ::testing::ValuesIn(testing::Tables()),
                         testing::NameOf);

}  // namespace
}  // namespace telegrad::kernels
