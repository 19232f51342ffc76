#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/random.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/multirail_parts.h"
#include "tests/transport/stranger.h"
#include "tests/transport/tcp_bytes.h"
#include "tests/transport/transport_node.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

TransportOptions Options(const std::string& bind = "127.0.0.1") {
  TransportOptions options;
  options.name = "tcp";
  options.bind_address = bind;
  return options;
}

TEST(TcpTransport, UnusableOptionsAreErrors) {
  TransportOptions options = Options();
  options.tls = "shm";
  EXPECT_THAT(Node(options).status,
              StatusIs(StatusCode::kInvalidArgument, "shm"));
  EXPECT_THAT(Node(Options("localhost")).status,
              StatusIs(StatusCode::kInvalidArgument, "localhost"));
  Node elsewhere(Options("203.0.113.77"));
  ASSERT_THAT(elsewhere.status, IsOk());
  EXPECT_THAT(elsewhere.context->Listen().status(),
              StatusIs(StatusCode::kUnavailable, "203.0.113.77"));
}

TEST(TcpTransport, ListensOnItsRails) {
  TransportOptions options = Options("127.0.0.3");
  options.rails = {"127.0.0.2", "lo"};
  Node server(options);
  ASSERT_THAT(server.status, IsOk());
  EXPECT_THAT(
      server.context->info().details,
      HasSubstr("127.0.0.3 and 127.0.0.2 and 127.0.0.1, 3 connections"));
  const auto address = server.context->Listen();
  ASSERT_THAT(address, IsOk());
  const std::vector<std::string> rails = absl::StrSplit(*address, ',');
  ASSERT_EQ(rails.size(), 3u);
  TransportOptions bare = Options();
  bare.prefix_bytes = multirail::kPrefixBytes;
  Node client(bare);
  const std::string payload = Pattern(3 * multirail::kPartBytes);
  for (size_t i = 0; i < rails.size(); ++i) {
    const auto rail = client.context->Connect(rails[i]);
    ASSERT_THAT(rail, IsOk());
    ASSERT_THAT(client.Send(*rail, HelloText({i, rails.size(), 7})), IsOk());
    ASSERT_THAT(client.Send(*rail, PartText({0, payload.size(), i}, "h"),
                            payload.substr(i * multirail::kPartBytes,
                                           multirail::kPartBytes)),
                IsOk());
  }
  ASSERT_TRUE(Drive({&server, &client}, [&] { return !server.heard.empty(); }));
  EXPECT_TRUE(server.heard[0].payload == payload);
  EXPECT_EQ(server.accepted.size(), 1u);
  EXPECT_THAT(server.context->Listen().status(),
              StatusIs(StatusCode::kFailedPrecondition, "listens already"));
  options.rails = {"eth99"};
  EXPECT_THAT(Node(options).status, StatusIs(StatusCode::kNotFound, "eth99"));
}

TEST(TcpTransport, MalformedAddressesAreErrors) {
  Node node(Options());
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0",
                           "127.0.0.1:65536", "name:80", "[::1:80"}) {
    EXPECT_THAT(node.context->Connect(text),
                StatusIs(StatusCode::kInvalidArgument, ""))
        << text;
  }
}

TEST(TcpTransport, SpeaksTheDocumentedBytes) {
  Node server(Options());
  Stranger peer(*server.context->Listen());
  // Split anywhere, since a stream has no messages.
  const std::string bytes = kTcpHello + Record(1, 6, 7) + "headerpayload" +
                            Record(1, 0, 0) + Record(2, 0, 0);
  for (const char byte : bytes) {
    peer.Say(std::string(1, byte));
    server.context->Progress(Clock::now() + std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(Drive({&server}, [&] { return !server.closed.empty(); }));
  ASSERT_EQ(server.heard.size(), 2u);
  EXPECT_EQ(server.heard[0].header, "header");
  EXPECT_EQ(server.heard[0].payload, "payload");
  EXPECT_EQ(server.heard[1].header + server.heard[1].payload, "");
  EXPECT_THAT(server.closed.begin()->second,
              StatusIs(StatusCode::kUnavailable, "closed"));
}

TEST(TcpTransport, SendsAtOnceUnlessProgressIsKnownToFollow) {
  const std::string message = Record(1, 1, 4) + "hfour";
  for (const bool waits : {false, true}) {
    TransportOptions options = Options();
    options.tls = "tcp";  // nothing but what is sent
    options.sends_wait = waits;
    Node server(options);
    Stranger peer(*server.context->Listen());
    peer.Say(kTcpHello);
    ASSERT_TRUE(Drive({&server}, [&] {
      return !server.accepted.empty() && !peer.HearsNothing();
    }));
    EXPECT_EQ(peer.Hear(kTcpHello.size()), kTcpHello);
    for (int i = 0; i < 2; ++i) {
      ASSERT_THAT(server.Send(server.accepted[0], "h", "four"), IsOk());
    }
    if (waits) {
      EXPECT_TRUE(peer.HearsNothing());
      server.context->Progress(Clock::now() + std::chrono::seconds(1));
    }
    EXPECT_EQ(peer.Hear(2 * message.size()), message + message);
  }
}

TEST(TcpTransport, StrangersAreCutAndNobodyElseNotices) {
  Node server(Options()), client(Options());
  const std::string address = *server.context->Listen();
  const auto endpoint = client.context->Connect(address);
  ASSERT_THAT(endpoint, IsOk());
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\0'),
        std::string("T\1\0\0GRAD", 8)}) {
    Stranger stranger(address);
    ASSERT_TRUE(Drive({&server, &client}, [&] {
      stranger.Say(text);
      return stranger.IsCut();
    }));
  }
  Stranger silent(address), half(address);
  half.Say(kTcpHello.substr(0, 5));
  ASSERT_THAT(client.Send(*endpoint, "h", "good"), IsOk());
  ASSERT_TRUE(
      Drive({&server, &client}, [&] { return server.heard.size() == 1; }));
  EXPECT_EQ(server.accepted.size(), 1u);
  EXPECT_TRUE(server.closed.empty());
}

TEST(TcpTransport, RecordsThatBreakTheRulesCloseTheirConnection) {
  Node server(Options());
  const std::string address = *server.context->Listen();
  size_t num_closed = 0;
  for (const std::string& record :
       {Record(0, 0, 0), Record(3, 0, 0), Record(0x54, 0, 0),
        Record(1, kMaxHeaderBytes + kMaxPrefixBytes + 1, 0),
        Record(1, 0, kMaxPayloadBytes + 1), Record(1, 0, 0xffffffff),
        Record(2, 1, 0), Record(2, 0, 1), std::string("\1\0\1\0\0\0\0\0", 8),
        std::string("\1\0\0\1\0\0\0\0", 8)}) {
    Stranger stranger(address);
    stranger.Say(kTcpHello + record);
    ++num_closed;
    ASSERT_TRUE(
        Drive({&server}, [&] { return server.closed.size() == num_closed; }));
    EXPECT_THAT(server.closed.rbegin()->second,
                StatusIs(StatusCode::kUnavailable, "protocol"));
  }
  EXPECT_TRUE(server.heard.empty());
}

// Whatever comes, the context stands and still serves others.
TEST(TcpTransport, RandomBytesAfterTheHelloHarmNobody) {
  Node server(Options()), client(Options());
  const std::string address = *server.context->Listen();
  Random random(17);
  for (int i = 0; i < 300; ++i) {
    Stranger stranger(address);
    std::string text = kTcpHello;
    for (int records = 0; records < 3; ++records) {
      text += Record(random.NextU32() % 4, random.NextU32() % 140,
                     random.NextU32() % 3000);
      text.append(random.NextU32() % 2000, static_cast<char>(random.NextU32()));
    }
    stranger.Say(text);
    server.context->Progress(Clock::now() + std::chrono::milliseconds(1));
  }
  server.heard.clear();
  const auto endpoint = client.context->Connect(address);
  ASSERT_THAT(client.Send(*endpoint, "h", "good"), IsOk());
  EXPECT_TRUE(Drive({&server, &client}, [&] {
    return !server.heard.empty() && server.heard.back().payload == "good";
  }));
}

TEST(TcpTransport, PeerThatVanishesInAMessageIsLost) {
  Node server(Options());
  auto peer = std::make_unique<Stranger>(*server.context->Listen());
  peer->Say(kTcpHello + Record(1, 1, 100000) + "h" + std::string(50000, 'x'));
  ASSERT_TRUE(Drive({&server}, [&] { return server.accepted.size() == 1; }));
  peer.reset();
  ASSERT_TRUE(Drive({&server}, [&] { return !server.closed.empty(); }));
  EXPECT_TRUE(server.heard.empty());
  EXPECT_THAT(server.closed.begin()->second,
              StatusIs(StatusCode::kUnavailable, "gone"));
}

TEST(TcpTransport, SmallMessageLeavesWithoutProgress) {
  Node server(Options()), client(Options());
  const auto endpoint = client.context->Connect(*server.context->Listen());
  ASSERT_THAT(client.Send(*endpoint, "h", "first words"), IsOk());
  ASSERT_TRUE(
      Drive({&server, &client}, [&] { return server.heard.size() == 1; }));
  ASSERT_THAT(client.Send(*endpoint, "h", "last words"), IsOk());
  EXPECT_TRUE(Drive({&server}, [&] { return server.heard.size() == 2; }));
}

TEST(TcpTransport, DetailsNameTheAddress) {
  EXPECT_THAT(Node(Options()).context->info().details, HasSubstr("127.0.0.1"));
}

}  // namespace
}  // namespace telegrad::testing
