#include "kvstore/job/control/handshake.h"

#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

const Identity kWorker1 = {.node = {Role::kWorker, 1}, .epoch = 7};

Secret Key(char fill = 'k', absl::string_view job = "job") {
  return *Secret::Derive(std::string(32, fill), job);
}

struct Transcript {
  std::string hello, challenge, proof;
};

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
  std::string mac;
  ExpectRefused(Shake(Key(), Key(),
                      [&](int step, std::string m) {
                        if (step == 1) mac = m.substr(m.size() - 32);
                        return step == 2 ? m.substr(0, m.size() - 32) + mac : m;
                      }),
                "does not hold");
}

TEST(Handshake, EveryFlippedBitIsRefused) {
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
      ExpectRefused(Shake(Key(), Key(), [&](int at, std::string m) {
        if (at == step)
          m[bit / 8] = static_cast<char>(m[bit / 8] ^ (1 << bit % 8));
        return m;
      }));
    }
    for (size_t size = 0; size < bytes[step]; ++size) {
      ExpectRefused(Shake(Key(), Key(), [&](int at, std::string m) {
        return at == step ? m.substr(0, size) : m;
      }));
    }
    for (const size_t more : {size_t{1}, kMaxHandshakeBytes, size_t{100000}}) {
      ExpectRefused(Shake(Key(), Key(), [&](int at, std::string m) {
        return at == step ? m + std::string(more, '\0') : m;
      }));
    }
  }
}

}  // namespace
}  // namespace telegrad
