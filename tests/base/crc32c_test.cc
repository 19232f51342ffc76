#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/random.h"

namespace telegrad {
namespace {

// From RFC 3720 section B.4.
TEST(Crc32c, KnownAnswers) {
  std::vector<unsigned char> bytes(32, 0x00);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Crc32cPortable(bytes.data(), 32), 0x8A9136AAu);
  bytes.assign(32, 0xFF);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x62A8AB43u);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x46DD794Eu);
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
}

TEST(Crc32c, FastEqualsPortableForAllSizesAndSplits) {
  Random random(1);
  std::vector<unsigned char> bytes(10007);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random.NextU32());
  for (size_t size = 0; size <= bytes.size(); size += size < 300 ? 1 : 611) {
    const uint32_t expected = Crc32cPortable(bytes.data(), size);
    ASSERT_EQ(Crc32c(bytes.data(), size), expected) << size;
    const size_t half = size / 3;
    ASSERT_EQ(
        Crc32c(bytes.data() + half, size - half, Crc32c(bytes.data(), half)),
        expected)
        << size;
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
