#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/job/control/secret.h"
#include "transport/crypto.h"
#include "transport/encryption.h"
#include "transport/node.h"

namespace telegrad {

// Mutual authentication in three messages, for the control connection and for
// every data endpoint:
//   client: HELLO(half_c, role, rank, epoch, mode)
//   server: CHALLENGE(half_s, MAC(key, "server", transcript))
//   client: PROOF(MAC(key, "client", transcript))
// MAC is HMAC-SHA256 over the direction label, the server's name, the job id,
// both halves (KeyExchange; the nonces, too), the claimed identity and the mode
// that the client wants; compared in constant time. Keys of the connection come
// from the same, for those that seal what follows. Without a key the MACs are
// empty on both sides; a keyed side refuses an unkeyed one, and the reverse,
// by name. Messages are at most kMaxHandshakeBytes; anything malformed is an
// Unauthenticated error with exit code 30, what was damaged on its way DataLoss
// with 43: try again.
// Order of use: client Hello -> server OnHello -> client OnChallenge -> server
// OnProof. One thread.
constexpr size_t kMaxHandshakeBytes = 512;

struct Identity {
  NodeId node;         // rank -1: not yet known
  uint64_t epoch = 0;  // 0: before the scheduler has given one
};

class HandshakeClient {
 public:
  // `server`: whom it means to reach. `mode`: what is done to what follows.
  HandshakeClient(Secret secret, std::string job_id, Identity self,
                  NodeId server = {Role::kScheduler},
                  Encryption mode = Encryption::kOff);
  std::string Hello();
  // Returns the PROOF to send.
  absl::StatusOr<std::string> OnChallenge(absl::string_view sealed);
  // Sent where OnChallenge fails: a PROOF of no secret, so that the server
  // learns of it, too.
  std::string FalseProof() const;
  // After OnChallenge; null without a key.
  const ConnectionKeys* keys() const { return keys_ ? &*keys_ : nullptr; }

 private:
  Secret secret_;
  std::string job_id_;
  Identity self_;
  NodeId server_;
  Encryption mode_;
  std::optional<KeyExchange> exchange_;
  std::optional<ConnectionKeys> keys_;
  std::string hello_;
};

class HandshakeServer {
 public:
  HandshakeServer(Secret secret, std::string job_id,
                  NodeId self = {Role::kScheduler});
  // Returns the CHALLENGE to send.
  absl::StatusOr<std::string> OnHello(absl::string_view sealed);
  // Returns whom the peer has proved to be.
  absl::StatusOr<Identity> OnProof(absl::string_view sealed);
  // After OnProof: what the client wants, and the keys; null without a key.
  Encryption mode() const { return mode_; }
  const ConnectionKeys* keys() const { return keys_ ? &*keys_ : nullptr; }

 private:
  Secret secret_;
  std::string job_id_;
  NodeId self_;
  Encryption mode_ = Encryption::kOff;
  std::optional<ConnectionKeys> keys_;
  std::string hello_;
  std::string challenge_;
};

}  // namespace telegrad
