#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/job/control/secret.h"
#include "transport/node.h"

namespace telegrad {

// Mutual authentication in three messages, for the control connection and for
// every data endpoint:
//   client: HELLO(nonce_c, role, rank, epoch)
//   server: CHALLENGE(nonce_s, MAC(key, "server", transcript))
//   client: PROOF(MAC(key, "client", transcript))
// MAC is HMAC-SHA256 over the direction label, the job id, both nonces and the
// claimed identity; compared in constant time. Without a key the MACs are
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
  HandshakeClient(Secret secret, std::string job_id, Identity self);
  std::string Hello();
  // Returns the PROOF to send.
  absl::StatusOr<std::string> OnChallenge(absl::string_view sealed);
  // Sent where OnChallenge fails: a PROOF of no secret, so that the server
  // learns of it, too.
  std::string FalseProof() const;

 private:
  Secret secret_;
  std::string job_id_;
  Identity self_;
  std::string hello_;
};

class HandshakeServer {
 public:
  HandshakeServer(Secret secret, std::string job_id);
  // Returns the CHALLENGE to send.
  absl::StatusOr<std::string> OnHello(absl::string_view sealed);
  // Returns whom the peer has proved to be.
  absl::StatusOr<Identity> OnProof(absl::string_view sealed);

 private:
  Secret secret_;
  std::string job_id_;
  std::string hello_;
  std::string challenge_;
};

}  // namespace telegrad
