#include "kernels/sparse_list.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/kernel_test.h"

// Payloads of sparse codecs: every table writes and reads what the reference
// does, and the reference what is written down by hand.
namespace telegrad::kernels::testing {
namespace {

class SparseList : public KernelTest {};

using Content = SparseContent;
constexpr Content kContents[] = {Content::kSigns, Content::kValues};
constexpr float kThreshold = 0.25f;

// Each element with this probability, ascending; none in [hole, hole + n / 2).
std::vector<uint32_t> Words(Content content, size_t n, double density,
                            size_t hole) {
  Random random(n + 5);
  std::vector<uint32_t> words;
  for (size_t i = 0; i < n; ++i) {
    if (random.NextUniform() >= density) continue;
    if (i >= hole && i < hole + n / 2) continue;
    const auto index = static_cast<uint32_t>(i);
    words.push_back(content == Content::kSigns
                        ? index << 1 | (random.NextU32() & 1)
                        : index);
  }
  return words;
}

// The payload lies `skew` bytes off a border, a multiple of 4.
std::vector<uint8_t> Write(const KernelTable& table, Content content,
                           const std::vector<uint32_t>& words, size_t n,
                           const std::vector<float>& values, size_t skew = 0) {
  const size_t count = words.size();
  const size_t room = ListAt(content, count) + BitmapBytes(content, n, count);
  std::vector<uint8_t> before(room, 0x5A);
  if (content == Content::kValues && count != 0) {
    std::memcpy(before.data() + 8, values.data(), 4 * count);
  }
  Array<uint32_t> list(table, words, skew);
  Array<uint64_t> num_words(table, {count});
  Array<uint64_t> num_bytes(table, {99});
  Array<uint8_t> payload(table, before, skew);
  Array<uint8_t> scratch(table,
                         std::vector<uint8_t>(kSparseListScratchBytes, 0x55));
  table.sparse_list.write(content, list.get(), num_words.get(), n, kThreshold,
                          payload.get(), num_bytes.get(), scratch.get(), {});
  Wait(table);
  std::vector<uint8_t> written = payload.values();
  EXPECT_LE(num_bytes.values()[0], room);
  written.resize(num_bytes.values()[0]);
  return written;
}

struct Decoded {
  std::vector<float> decoded;
  std::vector<float> sum;
};

Decoded Read(const KernelTable& table, Content content,
             const std::vector<uint8_t>& payload, size_t n, size_t skew = 0) {
  Array<uint8_t> bytes(table, payload, skew);
  Array<float> out(table, std::vector<float>(n, 9.0f), skew);
  Array<float> sum(table, RandomFloats(n, 1, false, n), skew);
  Array<uint8_t> scratch(table,
                         std::vector<uint8_t>(kSparseListScratchBytes, 0x55));
  table.sparse_list.decode(content, bytes.get(), payload.size(), n, out.get(),
                           scratch.get(), {});
  table.sparse_list.decode_add(content, bytes.get(), payload.size(), n,
                               sum.get(), scratch.get(), {});
  Wait(table);
  return {out.values(), sum.values()};
}

void ExpectAsReference(const KernelTable& table, Content content, size_t n,
                       double density, size_t hole, size_t skew = 0) {
  SCOPED_TRACE(::testing::Message() << "content " << static_cast<int>(content)
                                    << " n " << n << " density " << density
                                    << " hole " << hole << " skew " << skew);
  const std::vector<uint32_t> words = Words(content, n, density, hole);
  const std::vector<float> values = RandomFloats(words.size(), 1, false, 3);
  const std::vector<uint8_t> want =
      Write(ReferenceKernels(), content, words, n, values);
  ASSERT_EQ(Write(table, content, words, n, values, skew), want);
  const Decoded got = Read(table, content, want, n, skew);
  const Decoded reference = Read(ReferenceKernels(), content, want, n);
  ExpectSameBits(got.decoded, reference.decoded);
  ExpectSameBits(got.sum, reference.sum);
  for (size_t i = 0; i < words.size(); ++i) {
    const bool has_signs = content == Content::kSigns;
    const float sent =
        has_signs ? ((words[i] & 1) != 0 ? -0.25f : 0.25f) : values[i];
    ASSERT_EQ(got.decoded[words[i] >> SignBits(content)], sent);
  }
}

TEST_P(SparseList, EqualsReference) {
  for (const size_t n : SizesToTry(table())) {
    for (const Content content : kContents) {
      for (const double density : {0.02, 0.3}) {
        ExpectAsReference(table(), content, n, density, n / 3, 4 * (n % 16));
      }
    }
  }
}

// Of more blocks than one, in each format, with escapes of all lengths.
TEST_P(SparseList, EqualsReferenceAtAnyDensity) {
  for (const Content content : kContents) {
    for (const double density : {0.0, 0.0001, 0.003, 0.02, 0.3, 1.0}) {
      for (const size_t hole : {0, 300007}) {
        ExpectAsReference(table(), content, 300007, density, hole);
      }
    }
  }
}

std::vector<uint8_t> Bytes(std::initializer_list<uint32_t> words,
                           std::initializer_list<uint8_t> list) {
  std::vector<uint8_t> bytes(4 * words.size());
  std::memcpy(bytes.data(), words.begin(), bytes.size());
  bytes.insert(bytes.end(), list);
  return bytes;
}

TEST_P(SparseList, WritesTheBytesOfTheFormat) {
  // +0, -(0 + 2), an escape of 127, +(127 + 19); 0x3E800000 is 0.25.
  EXPECT_EQ(Write(table(), Content::kSigns, {0, 3 << 1 | 1, 150 << 1}, 200, {}),
            Bytes({0, 3, 0x3E800000}, {0x00, 0x05, 0xFF, 0x26}));
  // 1, 2 and 4 of 5; 0x3F800000 is 1.
  EXPECT_EQ(Write(table(), Content::kValues, {1, 2, 4}, 5, {1, 1, 1}),
            Bytes({2, 3, 0x3F800000, 0x3F800000, 0x3F800000}, {0x16}));
  // -1 and +2 of 3: a bitmap and its signs are no smaller than gaps.
  EXPECT_EQ(Write(table(), Content::kSigns, {1 << 1 | 1, 2 << 1}, 3, {}),
            Bytes({0, 2, 0x3E800000}, {0x03, 0x00}));
}

// Nothing is read or written behind an end: the arrays' guards, and
// AddressSanitizer, would tell.
TEST_P(SparseList, SurvivesWhatNoEncoderWrote) {
  for (const size_t n : {1, 64, 1000}) {
    for (const size_t size : {0, 7, 8, 11, 12, 13, 100, 2000}) {
      for (uint32_t seed = 0; seed < 8; ++seed) {
        std::vector<uint8_t> payload = RandomBytes(size, seed + 1);
        if (size > 0) payload[0] = seed % 4;
        const auto count = static_cast<uint32_t>(seed < 4 ? size / 8 : seed);
        if (size >= 8) std::memcpy(payload.data() + 4, &count, 4);
        for (const Content content : kContents) {
          Read(table(), content, payload, n);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, SparseList, ::testing::ValuesIn(Tables()),
                         NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
