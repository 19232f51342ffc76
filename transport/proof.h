#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// A job's key, wiped when the last that shares it ends. Null: there is none.
using ConnectionKey = std::shared_ptr<const std::string>;
ConnectionKey MakeConnectionKey(absl::string_view bytes);

// The first bytes of a connection: both ends prove that they hold the job's
// key before a library, or any other code, takes what the other one says.
//   client = nonce:32
//   server = nonce:32 MAC("server")
//   client = MAC("client")
// MAC(label) is HMAC-SHA256 by the key over "telegrad connection v1 ", label,
// and the nonces of client and server. One thread.
class Proof {
 public:
  Proof() = default;  // nothing is to be proved
  // Without a key the same.
  Proof(ConnectionKey key, bool is_client);

  // What to say first; empty: it is the other end's turn, or nothing is due.
  std::string Begin();
  // Takes what is due from the beginning of `bytes`, and returns what to
  // answer, perhaps nothing. Unauthenticated: the peer has another key, or its
  // bytes were damaged.
  absl::StatusOr<std::string> Take(absl::string_view* bytes);
  // Whether the other end may be believed.
  bool is_done() const { return num_due_ == 0; }

 private:
  absl::StatusOr<std::string> Answer();

  ConnectionKey key_ = nullptr;
  bool is_client_ = false;
  bool has_answered_ = false;  // a server, the client's nonce
  size_t num_due_ = 0;         // bytes of the peer's next message
  std::string own_nonce_ = {};
  std::string peer_nonce_ = {};
  std::string received_ = {};  // the peer's next message, so far
};

}  // namespace telegrad
