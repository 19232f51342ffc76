#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "base/endian.h"
#include "base/random.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/resend_frames.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using resend::Kind;
using resend::ParsePrefix;
using resend::Prefix;

absl::StatusOr<Prefix> Parse(const std::string& header,
                             size_t payload_bytes = 0) {
  // Of exactly its size, so that a sanitizer sees what is read beyond.
  const std::vector<char> bytes(header.begin(), header.end());
  return ParsePrefix({bytes.data(), bytes.size()}, payload_bytes);
}

// With a right CRC again.
std::string Signed(std::string header) {
  const uint32_t crc =
      Crc32c(header.data() + resend::kPrefixBytes,
             header.size() - resend::kPrefixBytes, Crc32c(header.data(), 12));
  StoreLittleEndian(reinterpret_cast<std::byte*>(header.data()) + 12, crc);
  return header;
}

// Computed bit by bit in Python from the polynomial 0x82F63B78.
TEST(ResendWire, BytesAreTheDocumentedOnes) {
  EXPECT_EQ(absl::BytesToHexString(FramedMessage(0x01020304, "head", "hello")),
            "4d010000040302014cbb719aed3a3e57"
            "68656164");
}

TEST(ResendWire, PrefixesComeBack) {
  for (const Kind kind :
       {Kind::kMessage, Kind::kEnd, Kind::kTaken, Kind::kAgain}) {
    const auto parsed = Parse(Framed({kind, 0xfedcba98, 0x12345678},
                                     kind == Kind::kMessage ? "header" : ""),
                              kind == Kind::kMessage ? 5 : 0);
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->kind, kind);
    EXPECT_EQ(parsed->sequence, 0xfedcba98);
    EXPECT_EQ(parsed->body, 0x12345678u);
  }
}

TEST(ResendWire, EachFlippedBitIsFound) {
  const std::string whole = FramedMessage(7, std::string(50, 'h'), "payload");
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string harmed = whole;
    harmed[bit / 8] = static_cast<char>(harmed[bit / 8] ^ 1 << bit % 8);
    EXPECT_THAT(Parse(harmed, 7), StatusIs(StatusCode::kDataLoss, ""));
  }
}

TEST(ResendWire, BytesOfNobodyAreHarmedOnes) {
  Random random(11);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random.NextBelow(kMaxCarriedBytes + 2), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.NextBelow(256));
    EXPECT_THAT(Parse(bytes, random.NextBelow(100)),
                StatusIs(StatusCode::kDataLoss, ""));
  }
}

// Whatever is signed is taken or refused, and never read beyond its end.
TEST(ResendWire, SignedBytesAreJudgedByTheRules) {
  Random random(12);
  int num_taken = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = Framed({}, std::string(random.NextBelow(20), 'h'));
    const size_t payload_bytes = random.NextBelow(2);
    bytes[0] = "METAN?"[random.NextBelow(6)];
    bytes[random.NextBelow(4)] ^= static_cast<char>(random.NextBelow(2));
    const auto parsed = Parse(Signed(bytes), payload_bytes);
    const bool is_bare =
        bytes.size() == resend::kPrefixBytes && payload_bytes == 0;
    const std::string kinds = is_bare ? "METN" : "M";
    const bool is_good = kinds.find(bytes[0]) != std::string::npos &&
                         bytes[1] == 1 && bytes[2] == 0 && bytes[3] == 0;
    EXPECT_EQ(parsed.ok(), is_good) << absl::CEscape(bytes);
    if (!is_good) {
      EXPECT_THAT(parsed, StatusIs(StatusCode::kInvalidArgument, "version"));
    }
    num_taken += parsed.ok();
  }
  EXPECT_GT(num_taken, 100);
}

TEST(ResendWire, OrderGoesOnBehindTheLastNumber) {
  EXPECT_TRUE(resend::IsBefore(5, 6));
  EXPECT_FALSE(resend::IsBefore(6, 6));
  EXPECT_TRUE(resend::IsBefore(0xffffffff, 0));
  EXPECT_FALSE(resend::IsBefore(1, 0xfffffff0));
}

}  // namespace
}  // namespace telegrad::testing
