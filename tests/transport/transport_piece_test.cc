#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/endian.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/staged/piece.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using staged::PieceHeader;
using staged::Whole;

Whole Message(const std::string& header, size_t payload_bytes) {
  Whole message = {.header_bytes = header.size(),
                   .payload_bytes = payload_bytes};
  std::transform(header.begin(), header.end(), message.header.begin(),
                 [](char c) { return std::byte(c); });
  return message;
}

absl::StatusOr<Whole> Parse(const PieceHeader& header, size_t piece_bytes) {
  return staged::ParsePiece({header.data(), header.size()}, piece_bytes);
}

TEST(Piece, SaysWhatItIsOf) {
  const Whole message = Message("header", 1000);
  const PieceHeader packed = staged::PackPiece(message, 600);
  EXPECT_TRUE(staged::IsPiece({packed.data(), packed.size()}));
  EXPECT_FALSE(staged::IsPiece({packed.data(), kMaxHeaderBytes}));
  const auto piece = Parse(packed, 400);
  ASSERT_THAT(piece, IsOk());
  EXPECT_EQ(piece->header, message.header);
  EXPECT_EQ(piece->header_bytes, 6u);
  EXPECT_EQ(piece->payload_bytes, 1000u);
  EXPECT_EQ(piece->begun, 1000u);
  EXPECT_TRUE(piece->is_whole());
}

TEST(Piece, ThatCannotBeIsRefused) {
  const PieceHeader good = staged::PackPiece(Message("header", 1000), 600);
  std::vector<PieceHeader> bad(5, good);
  bad[0][0] = std::byte{'P'};
  bad[1][1] = std::byte{2};
  StoreLittleEndian(&bad[2][2], static_cast<uint16_t>(kMaxHeaderBytes + 1));
  StoreLittleEndian(&bad[3][4], static_cast<uint32_t>(kMaxPayloadBytes + 1));
  bad[4][12] = std::byte{1};
  for (const PieceHeader& header : bad) {
    EXPECT_THAT(Parse(header, 400), StatusIs(StatusCode::kInvalidArgument, ""));
  }
  for (const size_t piece_bytes : {size_t{0}, size_t{401}, kMaxPayloadBytes}) {
    EXPECT_THAT(Parse(good, piece_bytes),
                StatusIs(StatusCode::kInvalidArgument, ""));
  }
  EXPECT_THAT(staged::ParsePiece({good.data(), good.size() - 1}, 400),
              StatusIs(StatusCode::kInvalidArgument, "143 bytes"));
}

TEST(Piece, ComesBehindTheOneBefore) {
  const Whole message = Message("header", 1000);
  const Whole first = *Parse(staged::PackPiece(message, 0), 600);
  const Whole second = *Parse(staged::PackPiece(message, 600), 400);
  EXPECT_THAT(staged::CheckFirst(first, 600), IsOk());
  EXPECT_THAT(staged::CheckFirst(second, 400),
              StatusIs(StatusCode::kInvalidArgument, "600"));
  EXPECT_THAT(staged::CheckWhole(first),
              StatusIs(StatusCode::kInvalidArgument, "600 of 1000"));
  const std::vector<std::pair<Whole, size_t>> wrong = {
      {first, 600},
      {*Parse(staged::PackPiece(message, 601), 399), 399},
      {*Parse(staged::PackPiece(Message("Header", 1000), 600), 400), 400},
      {*Parse(staged::PackPiece(Message("header", 1001), 600), 401), 401}};
  for (const auto& [other, piece_bytes] : wrong) {
    Whole sum = first;
    EXPECT_THAT(staged::AddPiece(other, piece_bytes, &sum),
                StatusIs(StatusCode::kInvalidArgument, ""));
  }
  Whole sum = first;
  EXPECT_THAT(staged::AddPiece(second, 400, &sum), IsOk());
  EXPECT_THAT(staged::CheckWhole(sum), IsOk());
}

// A peer of MakeTransport that stages nothing, and one that makes up its
// pieces.
class Joining : public ::testing::Test {
 protected:
  Joining() : server_(Options(0)), client_(Options(staged::kPiecePrefixBytes)) {
    to_server_ = *Connect(client_, server_);
  }
  static TransportOptions Options(size_t prefix_bytes) {
    TransportOptions options;
    options.name = "inproc";
    options.prefix_bytes = prefix_bytes;
    return options;
  }
  void SendPiece(const Whole& message, size_t offset, const std::string& text) {
    const PieceHeader header = staged::PackPiece(message, offset);
    ASSERT_THAT(client_.Send(to_server_,
                             {reinterpret_cast<const char*>(header.data()),
                              header.size()},
                             text),
                IsOk());
  }
  bool Closes() {
    return Drive({&server_, &client_}, [&] {
      return !server_.closed.empty() && !client_.closed.empty();
    });
  }
  void ExpectRefused(const std::string& why) {
    ASSERT_TRUE(Closes());
    EXPECT_THAT(server_.closed.begin()->second,
                StatusIs(StatusCode::kCancelled, why));
    EXPECT_TRUE(server_.heard.empty());
    EXPECT_TRUE(client_.EachCompletedOnce());
  }

  Node server_, client_;
  EndpointId to_server_ = 0;
};

TEST_F(Joining, PiecesOfAnySizeMakeOneMessage) {
  const std::string text = Pattern(1000, 1);
  size_t offset = 0;
  for (const size_t size : {1, 500, 499}) {
    SendPiece(Message("header", 1000), offset, text.substr(offset, size));
    offset += size;
  }
  ASSERT_TRUE(
      Drive({&server_, &client_}, [&] { return !server_.heard.empty(); }));
  EXPECT_EQ(server_.heard[0].header, "header");
  EXPECT_EQ(server_.heard[0].payload, text);
}

TEST_F(Joining, AGapEndsTheEndpoint) {
  SendPiece(Message("header", 1000), 0, Pattern(400));
  SendPiece(Message("header", 1000), 500, Pattern(500));
  ExpectRefused("a piece at 500 of 1000 bytes where that at 400");
}

TEST_F(Joining, AMessageWithinAnotherEndsTheEndpoint) {
  SendPiece(Message("header", 1000), 0, Pattern(400));
  ASSERT_THAT(client_.Send(to_server_, "other"), IsOk());
  ExpectRefused("a message within another");
}

TEST_F(Joining, AMessageThatBeginsInTheMiddleEndsTheEndpoint) {
  SendPiece(Message("header", 1000), 400, Pattern(600));
  ExpectRefused("of a message that has not begun");
}

TEST_F(Joining, ALongHeaderThatIsNoPieceEndsTheEndpoint) {
  ASSERT_THAT(client_.Send(to_server_, std::string(kMaxHeaderBytes + 1, 'h')),
              IsOk());
  ExpectRefused("a header of 129 bytes, and no piece");
}

TEST_F(Joining, ARefusedMessageEndsTheEndpoint) {
  server_.on_header = [](EndpointId, ConstBytes header, size_t payload_bytes) {
    EXPECT_EQ(header.size, 6u);
    EXPECT_EQ(payload_bytes, 1000u);
    return absl::UnauthenticatedError("no such worker");
  };
  SendPiece(Message("header", 1000), 0, Pattern(400));
  ExpectRefused("no such worker");
}

}  // namespace
}  // namespace telegrad::testing
