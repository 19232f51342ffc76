// The fuzz targets' bodies on seeded random inputs, for every build;
// tests/fuzz/run.sh lets libFuzzer choose them.
#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace telegrad {
namespace {

TEST(Fuzz, RandomInputsDoNoHarm) {
  Random random(42);
  for (int i = 0; i < 4000; ++i) {
    std::vector<uint8_t> input(random.NextBelow(i % 8 == 0 ? 2048 : 64));
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random.NextU32());
    ASSERT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }
}

}  // namespace
}  // namespace telegrad
