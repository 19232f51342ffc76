#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/local_socket.h"
#include "base/random.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/tcp_bytes.h"
#include "tests/transport/transport_node.h"
#include "transport/transport.h"

// tcp between processes of one machine.
namespace telegrad::testing {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

TransportOptions Options(const std::string& tls = "") {
  TransportOptions options;
  options.name = "tcp";
  options.tls = tls;
  return options;
}

// With its header.
std::string Record(int kind, const std::string& header,
                   uint64_t payload_bytes) {
  return testing::Record(kind, static_cast<int>(header.size()), payload_bytes) +
         header;
}
uint64_t PlaceOf(const void* data) { return reinterpret_cast<uint64_t>(data); }

// A process of this machine that says what it likes.
class SameHostPeer {
 public:
  explicit SameHostPeer(const std::string& address) {
    auto socket = ConnectLocal(absl::StrCat("telegrad ", address));
    if (socket.ok()) socket_ = *std::move(socket);
  }
  bool is_connected() const { return socket_.is_open(); }
  void Say(const std::string& text) {
    (void)send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  std::string Hear() {
    std::array<char, 4096> bytes;
    const ssize_t got =
        recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    return {bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))};
  }
  void HangUp() { socket_.Close(); }

  std::string OfferOf(const std::array<uint64_t, 2>& claimed) const {
    return Record(
        3,
        Number(PlaceOf(mark.data())) + Number(claimed[0]) + Number(claimed[1]),
        0);
  }

  const std::array<uint64_t, 2> mark = {static_cast<uint64_t>(getpid()), 4711};

 private:
  UniqueFd socket_;
};

class TcpSameHost : public ::testing::Test {
 protected:
  TcpSameHost() : server_(Options()), address_(*server_.context->Listen()) {}

  // Tells the server `text` after an offer that it has accepted.
  std::unique_ptr<SameHostPeer> Accepted() {
    auto peer = std::make_unique<SameHostPeer>(address_);
    peer->Say(kTcpHello + peer->OfferOf(peer->mark));
    std::string heard;
    EXPECT_TRUE(Drive({&server_}, [&] {
      heard += peer->Hear();
      return heard.ends_with(Record(4, "", 0));
    }));
    EXPECT_EQ(heard.substr(0, 8), kTcpHello);
    EXPECT_EQ(heard.substr(8, 8),
              Record(3, std::string(24, 0), 0).substr(0, 8));
    EXPECT_EQ(heard.size(), 8u + 32 + 8);
    return peer;
  }
  void ExpectClosed(absl::string_view why) {
    ASSERT_TRUE(Drive({&server_}, [&] { return !server_.closed.empty(); }));
    EXPECT_THAT(server_.closed.rbegin()->second,
                StatusIs(StatusCode::kUnavailable, std::string(why)));
    EXPECT_TRUE(server_.heard.empty());
  }

  Node server_;
  const std::string address_;
};

TEST_F(TcpSameHost, PayloadsAreCopiedOutOfTheSendersMemory) {
  const auto peer = Accepted();
  const std::string large(3 << 20, 'L'), none;
  peer->Say(Record(5, Number(PlaceOf(large.data())) + "header", large.size()) +
            Record(1, "h", 5) + "small" + Record(5, Number(0), 0));
  std::string heard;
  ASSERT_TRUE(Drive({&server_}, [&] {
    heard += peer->Hear();
    return server_.heard.size() == 3 && heard.size() >= 16;
  }));
  EXPECT_EQ(server_.heard[0].header, "header");
  EXPECT_TRUE(server_.heard[0].payload == large);
  EXPECT_EQ(server_.heard[1].payload, "small");
  EXPECT_EQ(server_.heard[2].header + server_.heard[2].payload, "");
  EXPECT_EQ(heard, Record(6, "", 0) + Record(6, "", 0));
}

TEST_F(TcpSameHost, DetailsCountEndpoints) {
  EXPECT_THAT(server_.context->info().details,
              ::testing::Not(HasSubstr("endpoint")));
  const auto peer = Accepted();
  SameHostPeer silent(address_);
  silent.Say(kTcpHello);
  ASSERT_TRUE(Drive({&server_}, [&] { return server_.accepted.size() == 2; }));
  EXPECT_THAT(server_.context->info().details,
              HasSubstr("2 endpoints on this machine without TCP, 1 of them by "
                        "memory"));
}

// They are served like everybody, through the socket.
TEST_F(TcpSameHost, WhoCannotProveItsMemoryIsNotRead) {
  for (const int what : {0, 1}) {
    SameHostPeer peer(address_);
    std::array<uint64_t, 2> claimed = peer.mark;
    ++claimed[what];
    peer.Say(kTcpHello + peer.OfferOf(claimed) + Record(1, "h", 5) + "small");
    server_.heard.clear();
    std::string heard;
    ASSERT_TRUE(Drive({&server_}, [&] {
      heard += peer.Hear();
      return server_.heard.size() == 1 && heard.size() >= 8 + 32;
    }));
    for (int i = 0; i < 20; ++i) server_.context->Progress(Clock::now());
    heard += peer.Hear();
    EXPECT_EQ(heard.size(), 8u + 32) << "a hello and an offer, no acceptance";
    const uint64_t anything = 0;
    const size_t num_closed = server_.closed.size();
    peer.Say(Record(5, Number(PlaceOf(&anything)), 8));
    ASSERT_TRUE(Drive({&server_},
                      [&] { return server_.closed.size() == num_closed + 1; }));
    EXPECT_THAT(server_.closed.rbegin()->second,
                StatusIs(StatusCode::kUnavailable, "not accepted"));
    EXPECT_EQ(server_.heard.size(), 1u);
  }
}

TEST_F(TcpSameHost, PlacesThatAreNotThereEndTheConnection) {
  Accepted()->Say(Record(5, Number(16), 100));
  ExpectClosed("memory");
}

// It may be using it again already.
TEST_F(TcpSameHost, MemoryOfAPeerThatHasHungUpIsNotBelieved) {
  const auto peer = Accepted();
  const std::string large(100000, 'L');
  peer->Say(Record(5, Number(PlaceOf(large.data())), large.size()));
  peer->HangUp();
  ExpectClosed("gone");
}

TEST_F(TcpSameHost, RecordsThatBreakTheRulesCloseTheirConnection) {
  const std::string place = Number(PlaceOf(this));
  for (const std::string& records :
       {Record(3, std::string(24, 0), 0), Record(3, "", 0),
        Record(3, std::string(24, 0), 1), Record(4, "", 0) + Record(4, "", 0),
        Record(4, "x", 0), Record(4, "", 1), Record(5, "", 0),
        Record(5, "1234567", 0),
        Record(5,
               place + std::string(kMaxHeaderBytes + kMaxPrefixBytes + 1, 'h'),
               0),
        Record(5, place, kMaxPayloadBytes + 1), Record(6, "", 0),
        Record(6, "x", 0), Record(7, "", 0)}) {
    server_.closed.clear();
    Accepted()->Say(records);
    ExpectClosed("protocol");
  }
}

TEST_F(TcpSameHost, RandomRecordsHarmNobody) {
  Random random(23);
  const std::string memory(4096, 'm');
  for (int i = 0; i < 300; ++i) {
    SameHostPeer peer(address_);
    std::string text = kTcpHello;
    if (i % 3 > 0) text += peer.OfferOf(peer.mark);
    for (int records = 0; records < 4; ++records) {
      const std::string place =
          Number(PlaceOf(memory.data()) +
                 (random.NextU32() % 4 == 0 ? random.NextU32() : 0));
      text += Record(static_cast<int>(random.NextU32() % 8),
                     place + std::string(random.NextU32() % 30, 'h'),
                     random.NextU32() % 5000);
    }
    peer.Say(text);
    server_.context->Progress(Clock::now() + std::chrono::milliseconds(1));
  }
  server_.heard.clear();
  Node client(Options());
  const auto endpoint = client.context->Connect(address_);
  ASSERT_THAT(client.Send(*endpoint, "h", "good"), IsOk());
  EXPECT_TRUE(Drive({&server_, &client}, [&] {
    return !server_.heard.empty() && server_.heard.back().payload == "good";
  }));
}

// A payload that is to be read must not be let go before.
TEST_F(TcpSameHost, SendIsDoneWhenTheReceiverHasCopied) {
  Node client(Options());
  const auto endpoint = client.context->Connect(address_);
  ASSERT_THAT(client.Send(*endpoint, "h", "first"), IsOk());
  ASSERT_TRUE(Drive({&server_, &client}, [&] {
    return server_.heard.size() == 1 && client.num_completed == 1;
  }));
  const auto both = [&] {
    server_.context->Progress(Clock::now());
    client.context->Progress(Clock::now());
  };
  for (int i = 0; i < 20; ++i) both();  // both offers are accepted
  ASSERT_THAT(client.Send(*endpoint, "h", std::string(1 << 20, 'p')), IsOk());
  for (int i = 0; i < 20; ++i) client.context->Progress(Clock::now());
  EXPECT_EQ(client.num_completed, 1);
  ASSERT_TRUE(Drive({&server_}, [&] { return server_.heard.size() == 2; }));
  EXPECT_TRUE(Drive({&client}, [&] { return client.num_completed == 2; }));
}

TEST_F(TcpSameHost, TlsTcpKeepsToTcp) {
  Node server(Options("tcp"));
  const std::string address = *server.context->Listen();
  EXPECT_FALSE(SameHostPeer(address).is_connected());
  EXPECT_TRUE(SameHostPeer(address_).is_connected());
  EXPECT_THAT(server.context->info().details, HasSubstr("TCP only"));
  for (const auto& [ours, theirs] :
       {std::pair("", "tcp"), std::pair("tcp", "")}) {
    Node listener(Options(ours)), client(Options(theirs));
    const auto endpoint = client.context->Connect(*listener.context->Listen());
    ASSERT_THAT(client.Send(*endpoint, "h", std::string(1 << 20, 'p')), IsOk());
    EXPECT_TRUE(Drive({&listener, &client},
                      [&] { return listener.heard.size() == 1; }));
  }
}

}  // namespace
}  // namespace telegrad::testing
