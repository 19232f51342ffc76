#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/crypto.h"
#include "transport/decorators/seal/seal_transport.h"
#include "transport/forwarding.h"
#include "transport/sealer.h"

// That nobody on the path alters, repeats, reorders, drops or adds a message
// unnoticed, over each transport, nor reads one with Encryption::kOn.
namespace telegrad::testing {
namespace {

using absl::StatusCode;
using enum Encryption;

struct Carried {
  std::string header, payload;
};
// What goes on instead of a message, the `index`th of its endpoint.
using Meddle = std::function<std::vector<Carried>(size_t index, Carried)>;

std::string TextOf(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

// Somebody between a sealing context and the network.
class Meddler : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const Meddle& meddle, const TransportOptions& options,
      TransportHandler* handler) {
    std::unique_ptr<Meddler> made(new Meddler(meddle, handler));
    // The transport itself: nothing is sealed below.
    TransportOptions bare = options;
    bare.key = nullptr;
    bare.encryption = kOff;
    bare.prefix_bytes = 0;
    const absl::Status status = made->MakeInner(MakeTransport, bare);
    if (!status.ok()) return status;
    return made;
  }
  ~Meddler() override { EndInner(); }

  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override {
    Carried whole{TextOf(header), TextOf(payload)};
    for (Carried& each : meddle_(num_sent_[to]++, std::move(whole))) {
      auto kept = std::make_shared<Carried>(std::move(each));
      (void)inner().Send(to, {kept->header.data(), kept->header.size()},
                         {kept->payload.data(), kept->payload.size()},
                         [kept](const absl::Status&) {});
    }
    Defer(std::move(done), absl::OkStatus());
    return absl::OkStatus();
  }

 private:
  Meddler(Meddle meddle, TransportHandler* handler)
      : ForwardingContext(handler), meddle_(std::move(meddle)) {}

  const Meddle meddle_;
  std::map<EndpointId, size_t> num_sent_;
};

std::vector<Carried> Nothing(size_t, Carried whole) { return {whole}; }

TransportFactory SealedBy(const Meddle& meddle) {
  return [meddle](const TransportOptions& options, TransportHandler* handler) {
    return MakeSealTransport(
        [meddle](const TransportOptions& inner, TransportHandler* of_inner) {
          return Meddler::Make(meddle, inner, of_inner);
        },
        options, handler);
  };
}

// Every transport over a network, sealed.
std::vector<TransportOptions> SealedNetworks() {
  std::vector<TransportOptions> all;
  for (const char* name : {"tcp", "ucx", "ofi"}) {
    if (absl::StrContains(DescribeTransports(),
                          absl::StrCat(name, ": not in"))) {
      continue;
    }
    for (const Encryption encryption : {kAuth, kOn}) {
      TransportOptions& options = all.emplace_back();
      options.name = name;
      options.tls = "tcp";
      options.key = MakeConnectionKey("the job's");
      options.encryption = encryption;
    }
  }
  return all;
}

std::string About(const TransportOptions& options) {
  return absl::StrCat(options.name, " ", Name(options.encryption));
}

// The client's first messages; the user's follow.
constexpr size_t kGreetings = 2;
const std::array<size_t, 5> kSizes = {0, 100, 5000, 0, 300'000};

std::string PayloadOf(size_t i) {
  return Pattern(kSizes[i], static_cast<uint32_t>(i));
}

// A client that sends to a server by somebody's leave, until the end.
struct Meddled {
  Meddled(const TransportOptions& options, const Meddle& meddle)
      : server(options, SealedBy(Nothing)), client(options, SealedBy(meddle)) {
    to = *Connect(client, server);
    for (size_t i = 0; i < kSizes.size(); ++i) {
      EXPECT_THAT(client.Send(to, absl::StrCat("h", i), PayloadOf(i)), IsOk());
    }
    has_ended = Drive({&server, &client}, [&] {
      const bool has_server = server.accepted.empty() || !server.closed.empty();
      return (client.closed.contains(to) && has_server) ||
             server.heard.size() == kSizes.size();
    });
  }
  // Only whole messages from the first on were heard.
  void ExpectHeard(size_t most) const {
    EXPECT_TRUE(has_ended);
    EXPECT_LE(server.heard.size(), most);
    for (size_t i = 0; i < server.heard.size(); ++i) {
      EXPECT_EQ(server.heard[i].header, absl::StrCat("h", i));
      EXPECT_EQ(server.heard[i].payload, PayloadOf(i));
    }
  }
  void ExpectFound(size_t first_wrong) const {
    ExpectHeard(first_wrong);
    ASSERT_EQ(server.closed.size(), 1u);
    EXPECT_THAT(server.closed.begin()->second,
                StatusIs(StatusCode::kDataLoss, "altered"));
    EXPECT_TRUE(client.EachCompletedOnce());
  }

  Node server, client;
  EndpointId to = 0;
  bool has_ended = false;
};

TEST(Seal, MessagesArriveAsTheyWereSent) {
  for (const TransportOptions& options : SealedNetworks()) {
    SCOPED_TRACE(About(options));
    const Meddled run(options, Nothing);
    run.ExpectHeard(kSizes.size());
    EXPECT_EQ(run.server.heard.size(), kSizes.size());
    EXPECT_TRUE(run.client.context->IsSealed(run.to));
  }
}

TEST(Seal, AFlippedBitIsFound) {
  for (const TransportOptions& options : SealedNetworks()) {
    for (const size_t wrong : {size_t{0}, size_t{1}, size_t{4}}) {
      for (const double place : {0.0, 0.5, 1.0}) {
        for (const bool is_payload : {false, true}) {
          if (is_payload && kSizes[wrong] == 0) continue;
          SCOPED_TRACE(absl::StrCat(About(options), " message ", wrong, " at ",
                                    place, " payload ", is_payload));
          const Meddled run(options, [&](size_t index, Carried whole) {
            if (index != kGreetings + wrong) return Nothing(index, whole);
            std::string& text = is_payload ? whole.payload : whole.header;
            text[static_cast<size_t>(
                place * static_cast<double>(text.size() - 1))] ^= 4;
            return Nothing(index, whole);
          });
          run.ExpectFound(wrong);
        }
      }
    }
  }
}

TEST(Seal, RepeatedReorderedLostAndStrangeMessagesAreFound) {
  for (const TransportOptions& options : SealedNetworks()) {
    constexpr size_t kWrong = kGreetings + 1;
    const auto at = [](auto change) {
      return [change](size_t index, Carried whole) -> std::vector<Carried> {
        if (index != kWrong) return {whole};
        return change(whole);
      };
    };
    {
      SCOPED_TRACE(About(options) + " repeated");
      Meddled(options, at([](const Carried& w) {
                return std::vector<Carried>{w, w};
              }))
          .ExpectFound(2);
    }
    {
      SCOPED_TRACE(About(options) + " lost");
      Meddled(options,
              at([](const Carried&) { return std::vector<Carried>{}; }))
          .ExpectFound(1);
    }
    {
      SCOPED_TRACE(About(options) + " strange");
      Meddled(options, at([](const Carried& w) {
                return std::vector<Carried>{{"good day", "to you"}, w};
              }))
          .ExpectFound(1);
    }
    SCOPED_TRACE(About(options) + " reordered");
    Carried held;
    Meddled(options, [&held](size_t index, Carried whole) {
      if (index == kWrong) {
        held = whole;
        return std::vector<Carried>{};
      }
      if (index == kWrong + 1) return std::vector<Carried>{whole, held};
      return std::vector<Carried>{whole};
    }).ExpectFound(1);
  }
}

// Nor does a changed setting, mode, half or proof let anybody in.
TEST(Seal, EachFlippedBitOfTheGreetingIsRefused) {
  for (const TransportOptions& options : SealedNetworks()) {
    for (size_t greeting = 0; greeting < kGreetings; ++greeting) {
      for (size_t byte = 0; byte < 40; byte += options.name == "tcp" ? 1 : 13) {
        SCOPED_TRACE(absl::StrCat(About(options), " ", greeting, ", ", byte));
        const Meddled run(options, [&](size_t index, Carried whole) {
          if (index == greeting) whole.header[byte] ^= 1;
          return Nothing(index, whole);
        });
        run.ExpectHeard(0);
        EXPECT_TRUE(run.server.accepted.empty());
        EXPECT_TRUE(run.client.closed.contains(run.to));
      }
    }
  }
}

TEST(Seal, AnotherKeyIsRefused) {
  for (const TransportOptions& options : SealedNetworks()) {
    SCOPED_TRACE(About(options));
    TransportOptions other = options;
    other.key = MakeConnectionKey("another's");
    Node server(options, SealedBy(Nothing)), client(other, SealedBy(Nothing));
    const EndpointId to = *Connect(client, server);
    ASSERT_THAT(client.Send(to, "h", "gradients"), IsOk());
    ASSERT_TRUE(
        Drive({&server, &client}, [&] { return client.closed.contains(to); }));
    EXPECT_THAT(client.closed[to],
                StatusIs(StatusCode::kUnauthenticated, "secret"));
    EXPECT_TRUE(server.accepted.empty());
  }
}

TEST(Seal, OnThePathThereIsNoiseWithOn) {
  for (const TransportOptions& options : SealedNetworks()) {
    SCOPED_TRACE(About(options));
    std::string seen;
    const Meddled run(options, [&seen](size_t index, Carried whole) {
      absl::StrAppend(&seen, whole.header, whole.payload);
      return Nothing(index, whole);
    });
    run.ExpectHeard(kSizes.size());
    const bool is_seen = absl::StrContains(seen, Pattern(kSizes[1], 1)) &&
                         absl::StrContains(seen, "h1");
    const bool is_in_part = absl::StrContains(seen, Pattern(16, 1)) ||
                            absl::StrContains(seen, Pattern(16, 4));
    EXPECT_EQ(is_seen, options.encryption == kAuth);
    EXPECT_EQ(is_in_part, options.encryption == kAuth);
  }
}

TEST(Seal, SettingsThatDifferEndWithBothValues) {
  for (const TransportOptions& options : SealedNetworks()) {
    for (const Encryption other : {kOff, kAuth, kOn, kAuto}) {
      if (other == options.encryption) continue;
      SCOPED_TRACE(absl::StrCat(About(options), " and ", Name(other)));
      TransportOptions of_client = options;
      of_client.encryption = other;
      Node server(options), client(of_client);
      const EndpointId to = *Connect(client, server);
      ASSERT_THAT(client.Send(to, "h", "gradients"), IsOk());
      ASSERT_TRUE(Drive({&server, &client},
                        [&] { return client.closed.contains(to); }));
      EXPECT_THAT(
          client.closed[to],
          StatusIs(StatusCode::kFailedPrecondition,
                   absl::StrCat("the peer has ", Name(options.encryption),
                                ", this side has ", Name(other))));
      EXPECT_EQ(ExitCodeOf(client.closed[to]), ExitCode::kMismatch);
      EXPECT_TRUE(server.accepted.empty());
      EXPECT_TRUE(server.heard.empty());
    }
  }
}

TEST(Seal, AutoSealsBeyondLoopback) {
  EXPECT_EQ(EncryptionTo("127.0.0.1:4000", kAuto), kOff);
  EXPECT_EQ(EncryptionTo("[::1]:4000", kAuto), kOff);
  EXPECT_EQ(EncryptionTo("10.0.0.1:4000", kAuto), kAuth);
  EXPECT_EQ(EncryptionTo("something else", kAuto), kAuth);
  EXPECT_EQ(EncryptionTo("127.0.0.1:4000", kOn), kOn);
  TransportOptions options;
  options.name = options.tls = "tcp";
  options.key = MakeConnectionKey("the job's");
  Node server(options), client(options);
  const EndpointId to = *Connect(client, server);
  ASSERT_THAT(client.Send(to, "h", "gradients"), IsOk());
  ASSERT_TRUE(
      Drive({&server, &client}, [&] { return server.heard.size() == 1; }));
  EXPECT_FALSE(client.context->IsSealed(to));
  EXPECT_FALSE(server.context->IsSealed(server.accepted[0]));
}

TEST(Seal, NeedsASecret) {
  TransportOptions options;
  options.name = "tcp";
  options.encryption = kOn;
  EXPECT_THAT(Node(options).status,
              StatusIs(StatusCode::kInvalidArgument, "secret"));
}

TEST(Encryption, HasFourNames) {
  for (const Encryption each : {kOff, kAuth, kOn, kAuto}) {
    EXPECT_EQ(*ParseEncryption(Name(each)), each);
  }
  EXPECT_THAT(ParseEncryption("yes"),
              StatusIs(StatusCode::kInvalidArgument, "auto, auth, on, off"));
}

// Test case 2 of McGrew and Viega, The Galois/Counter Mode of Operation.
TEST(Sealer, IsAesGcm) {
  const std::array<unsigned char, 16> key = {};
  Sealer seals = *Sealer::Create(key, kOn, true);
  std::array<std::byte, 16> text = {}, tag;
  ASSERT_THAT(seals.Seal(0, {}, {text.data(), 16}, text.data(), tag.data()),
              IsOk());
  EXPECT_EQ(absl::BytesToHexString(TextOf({text.data(), 16})),
            "0388dace60b6a392f328c2b971b2fe78");
  EXPECT_EQ(absl::BytesToHexString(TextOf({tag.data(), 16})),
            "ab6e47d42cec13bdf53a67b21257bddf");
  Sealer opens = *Sealer::Create(key, kOn, false);
  EXPECT_THAT(opens.Open(1, {}, {text.data(), 16}, tag.data()),
              StatusIs(StatusCode::kDataLoss, "altered"));
}

// Test case 1 of RFC 5869.
TEST(Crypto, HkdfIsThatOfItsRfc) {
  std::string salt, info;
  for (char i = 0; i <= 0x0c; ++i) salt.push_back(i);
  for (int i = 0xf0; i <= 0xf9; ++i) info.push_back(static_cast<char>(i));
  std::array<unsigned char, 42> out;
  ASSERT_THAT(HkdfSha256(std::string(22, '\x0b'), salt, info, out), IsOk());
  EXPECT_EQ(absl::BytesToHexString(TextOf({out.data(), out.size()})),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
            "34007208d5b887185865");
}

TEST(Crypto, BothSidesComeToTheSameKeysAndOthersDoNot) {
  const KeyExchange a = *KeyExchange::Create(), b = *KeyExchange::Create();
  const auto same = [](const absl::StatusOr<ConnectionKeys>& x,
                       const absl::StatusOr<ConnectionKeys>& y) {
    return x->of_client == y->of_client && x->of_server == y->of_server &&
           x->proof == y->proof;
  };
  const auto keys = a.Derive(b.public_half(), "key", "said");
  ASSERT_THAT(keys, IsOk());
  EXPECT_NE(keys->of_client, keys->of_server);
  EXPECT_TRUE(same(keys, b.Derive(a.public_half(), "key", "said")));
  EXPECT_FALSE(same(keys, b.Derive(a.public_half(), "other", "said")));
  EXPECT_FALSE(same(keys, b.Derive(a.public_half(), "key", "other")));
  // Of small order: what comes of it all know.
  EXPECT_THAT(a.Derive(std::string(32, '\0'), "key", "said"),
              StatusIs(StatusCode::kUnauthenticated, "none"));
}

}  // namespace
}  // namespace telegrad::testing
