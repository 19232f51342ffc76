#include "kvstore/job/control/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/crc32c.h"
#include "base/exit_code.h"
#include "base/socket.h"
#include "kvstore/job/control/frame_connection.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

const Identity kWorker1 = {.node = {Role::kWorker, 1}, .epoch = 7};

Secret Key(char fill = 'k', absl::string_view job = "job") {
  return *Secret::Derive(std::string(32, fill), job);
}

struct Transcript {
  std::string hello, challenge, proof;
};

constexpr size_t kCrcBytes = 4;

// With the check of what it says now.
std::string Resealed(std::string message) {
  message.resize(message.size() - kCrcBytes);
  const uint32_t crc = Crc32c(message.data(), message.size());
  for (int i = 0; i < 4; ++i) message += static_cast<char>(crc >> 8 * i);
  return message;
}

void ExpectDamage(const absl::StatusOr<Identity>& result) {
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  EXPECT_EQ(ExitCodeOf(result.status()), ExitCode::kIntegrity);
}

// Runs the three messages; each may be changed on its way.
template <typename Change>
absl::StatusOr<Identity> Shake(const Secret& client_key,
                               const Secret& server_key, Change change,
                               const std::string& job = "job") {
  HandshakeClient client(client_key, job, kWorker1);
  HandshakeServer server(server_key, "job");
  const auto challenge = server.OnHello(change(0, client.Hello()));
  if (!challenge.ok()) return challenge.status();
  const auto proof = client.OnChallenge(change(1, *challenge));
  if (!proof.ok()) return proof.status();
  return server.OnProof(change(2, *proof));
}

std::string Same(int, std::string message) { return message; }

void ExpectRefused(const absl::StatusOr<Identity>& result,
                   const std::string& text = "") {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(ExitCodeOf(result.status()), ExitCode::kAuthentication);
  EXPECT_NE(std::string(result.status().message()).find(text),
            std::string::npos)
      << result.status();
}

TEST(Handshake, TheRightKeyProvesTheIdentity) {
  const auto identity = Shake(Key(), Key(), Same);
  ASSERT_THAT(identity, IsOk());
  EXPECT_EQ(identity->node, kWorker1.node);
  EXPECT_EQ(identity->epoch, 7u);
}

TEST(Handshake, WithoutKeysTheIdentityIsClaimed) {
  EXPECT_THAT(Shake(Secret(), Secret(), Same), IsOk());
}

TEST(Handshake, AWrongKeyIsSeenByTheClient) {
  ExpectRefused(Shake(Key('a'), Key('b'), Same), "does not hold");
}

TEST(Handshake, AMissingKeyIsNamedOnEitherSide) {
  ExpectRefused(Shake(Secret(), Key(), Same), "worker/1 has no secret");
  ExpectRefused(Shake(Key(), Secret(), Same), "worker/1 has a secret");
}

TEST(Handshake, AnotherJobIsNamedWithOrWithoutKeys) {
  ExpectRefused(Shake(Key(), Key(), Same, "older"), "another job");
  ExpectRefused(Shake(Secret(), Secret(), Same, "older"), "another job");
}

TEST(Handshake, TheKeyDependsOnTheJob) {
  ExpectRefused(Shake(Key('k', "job"), Key('k', "older"), Same));
}

TEST(Handshake, AReplayedProofIsRefused) {
  std::string old_proof;
  ASSERT_THAT(Shake(Key(), Key(),
                    [&](int step, std::string m) {
                      if (step == 2) old_proof = m;
                      return m;
                    }),
              IsOk());
  ExpectRefused(
      Shake(Key(), Key(),
            [&](int step, std::string m) { return step == 2 ? old_proof : m; }),
      "does not hold");
}

TEST(Handshake, AProofCountsOnce) {
  HandshakeClient client(Key(), "job", kWorker1);
  HandshakeServer server(Key(), "job");
  const auto proof = client.OnChallenge(*server.OnHello(client.Hello()));
  ASSERT_THAT(server.OnProof(*proof), IsOk());
  ExpectRefused(server.OnProof(*proof), "out of order");
}

TEST(Handshake, TheServersOwnMacReflectedIsRefused) {
  constexpr size_t kMacBytes = 32;
  std::string mac;
  ExpectRefused(
      Shake(Key(), Key(),
            [&](int step, std::string m) {
              const size_t at = m.size() - kMacBytes - kCrcBytes;
              if (step == 1) mac = m.substr(at, kMacBytes);
              return step == 2 ? Resealed(m.replace(at, kMacBytes, mac)) : m;
            }),
      "does not hold");
}

// What was damaged may be whole the next time; a secret that is wrong stays so.
TEST(Handshake, EveryFlippedBitIsDamageAndWithARightCheckRefused) {
  Transcript sizes;
  ASSERT_THAT(Shake(Key(), Key(),
                    [&](int step, std::string m) {
                      (step == 0   ? sizes.hello
                       : step == 1 ? sizes.challenge
                                   : sizes.proof) = m;
                      return m;
                    }),
              IsOk());
  const size_t bytes[] = {sizes.hello.size(), sizes.challenge.size(),
                          sizes.proof.size()};
  for (int step = 0; step < 3; ++step) {
    for (size_t bit = 0; bit < bytes[step] * 8; ++bit) {
      SCOPED_TRACE(std::to_string(step) + " bit " + std::to_string(bit));
      const auto flipped = [&](int at, std::string m) {
        if (at == step)
          m[bit / 8] = static_cast<char>(m[bit / 8] ^ (1 << bit % 8));
        return m;
      };
      ExpectDamage(Shake(Key(), Key(), flipped));
      if (bit / 8 < 4 || bit / 8 + kCrcBytes >= bytes[step]) continue;
      ExpectRefused(Shake(Key(), Key(), [&](int at, std::string m) {
        return at == step ? Resealed(flipped(at, m)) : m;
      }));
    }
    for (size_t size = 0; size < bytes[step]; ++size) {
      EXPECT_FALSE(Shake(Key(), Key(), [&](int at, std::string m) {
                     return at == step ? m.substr(0, size) : m;
                   }).ok());
    }
    for (const size_t more : {size_t{1}, kMaxHandshakeBytes, size_t{100000}}) {
      const auto longer = [&](int at, std::string m) {
        return at == step ? Resealed(m + std::string(more, '\0')) : m;
      };
      ExpectRefused(Shake(Key(), Key(), longer));
    }
  }
}

TEST(Handshake, AServerIsNotAnother) {
  HandshakeClient client(Key(), "job", kWorker1, {Role::kServer, 0});
  HandshakeServer server(Key(), "job", {Role::kServer, 1});
  const auto proof = client.OnChallenge(*server.OnHello(client.Hello()));
  EXPECT_THAT(proof,
              StatusIs(absl::StatusCode::kUnauthenticated, "does not hold"));
}

// Two ends of a control connection that is sealed.
struct SealedPair {
  explicit SealedPair(Encryption wanted) : mode(wanted) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    sender = std::make_unique<FrameConnection>(UniqueFd(fds[0]));
    wire = UniqueFd(fds[1]);
    HandshakeClient client(Key(), "job", kWorker1, {Role::kScheduler}, mode);
    HandshakeServer server(Key(), "job");
    const auto proof = client.OnChallenge(*server.OnHello(client.Hello()));
    EXPECT_THAT(server.OnProof(*proof), IsOk());
    EXPECT_EQ(server.mode(), mode);
    EXPECT_THAT(sender->Seal(*client.keys(), mode, true), IsOk());
    keys = *server.keys();
  }
  // What goes over the wire for one frame.
  std::string Sent(const std::string& body) {
    sender->Send(MakeFrame(body));
    std::string bytes(1000, '\0');
    const ssize_t got = recv(wire.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
  }
  // What the other end hears of the bytes, the last frame of some.
  absl::StatusOr<std::string> Heard(const std::string& bytes, int frames = 1) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    FrameConnection receiver{UniqueFd(fds[0])};
    const UniqueFd other(fds[1]);
    EXPECT_THAT(receiver.Seal(keys, mode, false), IsOk());
    EXPECT_EQ(send(other.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    EXPECT_THAT(receiver.Read(), IsOk());
    std::string last;
    for (int i = 0; i < frames; ++i) {
      const auto next = receiver.Next(100);
      if (!next.ok()) return next.status();
      if (!next->has_value()) return absl::NotFoundError("no frame");
      last = **next;
    }
    return last;
  }

  Encryption mode = Encryption::kOff;
  ConnectionKeys keys;
  std::unique_ptr<FrameConnection> sender;
  UniqueFd wire;
};

TEST(SealedFrames, ArriveInOrderAndUnalteredOrAreDamage) {
  for (const Encryption mode : {Encryption::kAuth, Encryption::kOn}) {
    SealedPair pair(mode);
    const std::string first = pair.Sent("first"), second = pair.Sent("second");
    EXPECT_EQ(first.size(), 4 + 5 + 16u);
    EXPECT_EQ(first.find("first") != std::string::npos,
              mode == Encryption::kAuth);
    EXPECT_EQ(*pair.Heard(first), "first");
    EXPECT_EQ(*pair.Heard(first + second, 2), "second");
    const auto expect_damage = [](const absl::StatusOr<std::string>& heard) {
      EXPECT_THAT(heard, StatusIs(absl::StatusCode::kDataLoss, "altered"));
      EXPECT_EQ(ExitCodeOf(heard.status()), ExitCode::kIntegrity);
    };
    expect_damage(pair.Heard(second));
    expect_damage(pair.Heard(first + first, 2));
    expect_damage(
        pair.Heard(std::string("\x11\0\0\0", 4) + std::string(17, 'x')));
    for (size_t bit = 8 * 4; bit < 8 * first.size(); ++bit) {
      std::string altered = first;
      altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ 1 << bit % 8);
      expect_damage(pair.Heard(altered));
    }
    EXPECT_THAT(pair.Heard(std::string("\x03\0\0\0abc", 7)),
                StatusIs(absl::StatusCode::kDataLoss, "shorter"));
  }
}

}  // namespace
}  // namespace telegrad
