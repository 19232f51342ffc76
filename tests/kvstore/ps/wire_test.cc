#include "kvstore/ps/wire/wire.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

FrameHeader SampleHeader() {
  return {.type = FrameType::kPush,
          .flags = kFlagNoReply,
          .epoch = 0x0102030405060708,
          .step = 9,
          .priority = 10,
          .key = 11,
          .chunk = 12,
          .payload_bytes = 5,
          .source = 13,
          .destination = 14,
          .contributors = 15,
          .scale = -7,
          .codec = 1,
          .codec_version = 1,
          .reply_format = 2,
          .packing = 0,
          .dtype = WireDtype::kFloat32,
          .proposed_scale = -6};
}

ConstBytes View(const FrameHeaderBytes& bytes) {
  return {bytes.data(), bytes.size()};
}
ConstBytes Payload(const std::string& text) {
  return {text.data(), text.size()};
}

TEST(Frame, HeaderSurvivesTheTrip) {
  const std::string payload = "hello";
  const FrameHeaderBytes bytes =
      SerializeFrame(SampleHeader(), Payload(payload));
  const auto parsed = ParseFrameHeader(View(bytes));
  ASSERT_THAT(parsed, IsOk());
  FrameHeader expected = SampleHeader();
  expected.payload_crc = parsed->payload_crc;
  EXPECT_EQ(*parsed, expected);
  EXPECT_THAT(CheckFramePayload(View(bytes), Payload(payload)), IsOk());
}

// The golden bytes of version 3: a change of any is a new version. The checks
// at 56 and 60 were computed with an independent CRC-32C (python's crc32c rule
// written out in tests/kvstore/ps/golden_frame.py).
TEST(Frame, GoldenBytesOfVersionThree) {
  const FrameHeaderBytes bytes =
      SerializeFrame(SampleHeader(), Payload("hello"));
  const std::string hex = absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  EXPECT_EQ(hex.substr(0, 112),
            "54475231"          // magic
            "030a0100"          // version, type, flags
            "0807060504030201"  // epoch
            "0900000000000000"  // step
            "0a000000"          // priority
            "0b000000"          // key
            "0c000000"          // chunk
            "05000000"          // payload bytes
            "0d000e00"          // source, destination
            "0f00f9ff"          // contributors, scale
            "01010200"          // codec, version, reply mode, packing
            "0000faff");        // dtype, reserved, proposed scale
  EXPECT_EQ(hex.substr(112), "c6c9a63f67c543a2");
}

TEST(Frame, EveryTruncationIsAnError) {
  const FrameHeaderBytes bytes =
      SerializeFrame(SampleHeader(), Payload("hello"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseFrameHeader({bytes.data(), size}).ok()) << size;
  }
}

TEST(Frame, EveryBitFlipOfTheHeaderIsAnError) {
  const FrameHeaderBytes good =
      SerializeFrame(SampleHeader(), Payload("hello"));
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    FrameHeaderBytes bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(ParseFrameHeader(View(bytes)).ok()) << bit;
  }
}

TEST(Frame, EveryBitFlipOfThePayloadAndAForeignPayloadAreErrors) {
  std::string payload = "hello";
  const FrameHeaderBytes bytes =
      SerializeFrame(SampleHeader(), Payload(payload));
  for (size_t bit = 0; bit < 8 * payload.size(); ++bit) {
    std::string flipped = payload;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(CheckFramePayload(View(bytes), Payload(flipped)).ok()) << bit;
  }
  FrameHeader other = SampleHeader();
  other.key = 99;
  const FrameHeaderBytes other_bytes = SerializeFrame(other, Payload("hello"));
  EXPECT_NE(ParseFrameHeader(View(other_bytes))->payload_crc,
            ParseFrameHeader(View(bytes))->payload_crc)
      << "a payload is bound to its header";
}

// It is bound to its header all the same.
TEST(Frame, InMemoryOnlyTheHeaderIsSummed) {
  FrameHeader header = SampleHeader();
  header.flags |= kFlagUnchecked;
  const FrameHeaderBytes bytes = SerializeFrame(header, Payload("hello"));
  EXPECT_THAT(CheckFramePayload(View(bytes), Payload("jello")), IsOk());
  FrameHeaderBytes other = bytes;
  other[56] ^= std::byte{1};
  EXPECT_FALSE(CheckFramePayload(View(other), Payload("hello")).ok());
  header.key = 99;
  EXPECT_NE(ParseFrameHeader(View(SerializeFrame(header, Payload("hello"))))
                ->payload_crc,
            ParseFrameHeader(View(bytes))->payload_crc);
}

}  // namespace
}  // namespace telegrad
