#include "compression/sparse/index_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "tests/testing/status_matchers.h"

// Lists that are longer than the blocks in which they are read and checked.
namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;

constexpr size_t kElems = size_t{1} << 20;

// Each element with this probability, with a sign.
std::vector<uint32_t> Words(double density, int sign_bits, size_t n = kElems) {
  Random random(3, 0);
  std::vector<uint32_t> words;
  for (uint32_t i = 0; i < n; ++i) {
    if (random.NextUniform() >= density) continue;
    const uint32_t sign = random.NextUniform() < 0.5 ? 1 : 0;
    words.push_back(sign_bits != 0 ? i << 1 | sign : i);
  }
  return words;
}

template <int kSignBits>
std::vector<uint8_t> Written(const std::vector<uint32_t>& words, size_t n) {
  const IndexListSize size = SmallestIndexList<kSignBits>(words, n);
  std::vector<uint8_t> bytes(size.num_bytes);
  WriteIndexList<kSignBits>(size.format, words, n, bytes.data());
  return bytes;
}

template <int kSignBits>
std::vector<uint32_t> Read(IndexFormat format,
                           const std::vector<uint8_t>& bytes, size_t n) {
  std::vector<uint32_t> words;
  ForEachIndexBlock<kSignBits>(
      format, bytes, n, [&](std::span<const uint32_t> block) {
        words.insert(words.end(), block.begin(), block.end());
      });
  return words;
}

template <int kSignBits>
void ExpectReadBack(const std::vector<uint32_t>& words, size_t n,
                    IndexFormat format) {
  ASSERT_EQ(SmallestIndexList<kSignBits>(words, n).format, format);
  const auto id = static_cast<uint8_t>(format);
  const std::vector<uint8_t> bytes = Written<kSignBits>(words, n);
  EXPECT_THAT(ValidateIndexList<kSignBits>(id, bytes, words.size(), n), IsOk());
  EXPECT_EQ(Read<kSignBits>(format, bytes, n), words);
  const size_t last = words.back() >> kSignBits;
  EXPECT_FALSE(
      ValidateIndexList<kSignBits>(id, bytes, words.size() + 1, n).ok());
  EXPECT_FALSE(
      ValidateIndexList<kSignBits>(id, bytes, words.size() - 1, n).ok());
  EXPECT_FALSE(
      ValidateIndexList<kSignBits>(id, bytes, words.size(), last).ok());
}

template <int kSignBits>
void ExpectAllFormats() {
  ExpectReadBack<kSignBits>(Words(0.2, kSignBits), kElems,
                            IndexFormat::kBitmap);
  ExpectReadBack<kSignBits>(Words(0.02, kSignBits), kElems,
                            IndexFormat::kGaps8);
  ExpectReadBack<kSignBits>(Words(0.002, kSignBits), kElems,
                            IndexFormat::kGaps16);
}

TEST(IndexList, IsReadAsItWasWritten) { ExpectAllFormats<0>(); }

TEST(IndexList, IsReadAsItWasWrittenWithSigns) { ExpectAllFormats<1>(); }

// Any address, as payloads have values before the list.
template <int kSignBits>
void ExpectReadBackAtAnyAddress(const std::vector<uint32_t>& words, size_t n,
                                size_t skew) {
  const IndexListSize size = SmallestIndexList<kSignBits>(words, n);
  std::vector<uint8_t> bytes(skew + size.num_bytes + 1, 0xA5);
  WriteIndexList<kSignBits>(size.format, words, n, bytes.data() + skew);
  EXPECT_EQ(bytes.back(), 0xA5) << "written past the end";
  const std::vector<uint8_t> list(bytes.begin() + skew, bytes.end() - 1);
  EXPECT_EQ(list, Written<kSignBits>(words, n));
  const auto view = std::span(bytes).subspan(skew, size.num_bytes);
  EXPECT_THAT(ValidateIndexList<kSignBits>(static_cast<uint8_t>(size.format),
                                           view, words.size(), n),
              IsOk());
  std::vector<uint32_t> read;
  ForEachIndexBlock<kSignBits>(
      size.format, view, n, [&](std::span<const uint32_t> block) {
        read.insert(read.end(), block.begin(), block.end());
      });
  EXPECT_EQ(read, words);
}

TEST(IndexList, OfEveryLengthIsReadAsItWasWritten) {
  std::vector<size_t> sizes(258);
  for (size_t n = 0; n < sizes.size(); ++n) sizes[n] = n;
  for (const size_t n : {1023, 4099, 10007, 100003}) sizes.push_back(n);
  for (const size_t n : sizes) {
    for (const double density : {0.002, 0.02, 0.2, 1.0}) {
      SCOPED_TRACE(::testing::Message() << "n " << n << " of " << density);
      ExpectReadBackAtAnyAddress<0>(Words(density, 0, n), n, n % 16);
      ExpectReadBackAtAnyAddress<1>(Words(density, 1, n), n, n % 16);
    }
  }
}

// Gaps of the blocks' sizes and one beside, so that escapes lie at every place
// around the ends of blocks.
TEST(IndexList, EscapesMayLieAtTheEndsOfBlocks) {
  for (const size_t before : {254, 255, 256, 4094, 4095, 4096}) {
    std::vector<uint32_t> words(before);
    for (uint32_t i = 0; i < before; ++i) words[i] = i << 1;
    for (const uint32_t gap : {126u, 127u, 128u, 254u, 255u, 600u}) {
      std::vector<uint32_t> longer = words;
      longer.push_back((static_cast<uint32_t>(before) + gap) << 1 | 1);
      longer.push_back((static_cast<uint32_t>(before) + gap + 1) << 1);
      SCOPED_TRACE(gap);
      const size_t n = kElems;
      const std::vector<uint8_t> bytes = Written<1>(longer, n);
      EXPECT_EQ(bytes.size(), longer.size() + gap / 127);
      EXPECT_THAT(ValidateIndexList<1>(0, bytes, longer.size(), n), IsOk());
      EXPECT_EQ(Read<1>(IndexFormat::kGaps8, bytes, n), longer);
    }
  }
}

TEST(IndexList, NothingMayFollowTheLastIndex) {
  std::vector<uint8_t> bytes(4096, 0);
  EXPECT_THAT(ValidateIndexList<1>(0, bytes, 4096, 4096), IsOk());
  bytes.push_back(0xff);  // an escape
  EXPECT_FALSE(ValidateIndexList<1>(0, bytes, 4096, kElems).ok());
  bytes.back() = 0xfe;  // no gap with a sign is that long
  EXPECT_FALSE(ValidateIndexList<1>(0, bytes, 4097, kElems).ok());
}

}  // namespace
}  // namespace telegrad
