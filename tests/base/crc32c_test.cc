#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace telegrad {
namespace {

// From RFC 3720 section B.4.
TEST(Crc32c, KnownAnswers) {
  std::vector<unsigned char> bytes(32, 0x00);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x8A9136AAu);
  EXPECT_EQ(~Crc32cVariants().back().advance(bytes.data(), 32, ~0u),
            0x8A9136AAu);
  bytes.assign(32, 0xFF);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x62A8AB43u);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x46DD794Eu);
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
}

// Of the table's registers after each byte, from two values of the register:
// whatever its blocks, a variant has the same.
TEST(Crc32c, VariantsAreEqualForAllSizesPlacesAndSplits) {
  constexpr size_t kMost = 40000;  // more than two blocks of any
  Random random(1);
  std::vector<unsigned char> bytes(kMost + 64);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random.NextU32());
  const Crc32cVariant table = Crc32cVariants().back();
  for (const Crc32cVariant& variant : Crc32cVariants()) {
    for (size_t size = 0; size <= kMost; size += size < 600 ? 1 : 271) {
      const unsigned char* const data = bytes.data() + size % 61;
      const uint32_t begin = size % 2 == 0 ? ~0u : 0x12345678u;
      const uint32_t expected = table.advance(data, size, begin);
      ASSERT_EQ(variant.advance(data, size, begin), expected)
          << variant.name << ", " << size;
      const size_t third = size / 3;
      ASSERT_EQ(variant.advance(data + third, size - third,
                                variant.advance(data, third, begin)),
                expected)
          << variant.name << ", " << size;
    }
  }
}

// Nothing behind the bytes is in the result, nor read but by prefetching.
TEST(Crc32c, VariantsKeepToTheirBytes) {
  for (const Crc32cVariant& variant : Crc32cVariants()) {
    for (const size_t size : {1, 63, 128, 255, 257, 4096, 15873, 31744}) {
      const auto heap = std::make_unique<unsigned char[]>(size);
      std::vector<unsigned char> other(size + 256, 0xFF);
      std::fill_n(other.begin(), size, static_cast<unsigned char>(0));
      EXPECT_EQ(variant.advance(heap.get(), size, 1),
                variant.advance(other.data(), size, 1))
          << variant.name << ", " << size;
    }
  }
}

TEST(Crc32c, CombinesPieces) {
  Random random(2);
  std::vector<unsigned char> bytes(70000);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random.NextU32());
  for (const size_t size : {0, 1, 56, 60, 65535, 65536, 70000}) {
    const uint32_t whole = Crc32c(bytes.data(), size);
    for (const size_t first : {0, 1, 7, 56, 4096, 69999}) {
      if (first > size) continue;
      EXPECT_EQ(Crc32cCombine(Crc32c(bytes.data(), first),
                              Crc32c(bytes.data() + first, size - first),
                              size - first),
                whole)
          << first << " of " << size;
    }
  }
}

}  // namespace
}  // namespace telegrad
