#include "transport/proof.h"

#include <openssl/crypto.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/crypto.h"

namespace telegrad {
namespace {

constexpr size_t kNonceBytes = 32;
constexpr char kServer[] = "telegrad connection v1 server";
constexpr char kClient[] = "telegrad connection v1 client";

absl::StatusOr<std::string> Mac(const std::string& key, absl::string_view label,
                                absl::string_view client_nonce,
                                absl::string_view server_nonce) {
  return HmacSha256(key, absl::StrCat(label, client_nonce, server_nonce));
}

}  // namespace

ConnectionKey MakeConnectionKey(absl::string_view bytes) {
  return {new std::string(bytes), [](std::string* key) {
            OPENSSL_cleanse(key->data(), key->size());
            delete key;
          }};
}

Proof::Proof(ConnectionKey key, bool is_client)
    : key_(std::move(key)), is_client_(is_client) {
  if (key_ == nullptr) return;
  num_due_ = is_client ? kNonceBytes + kMacBytes : kNonceBytes;
  own_nonce_.resize(kNonceBytes);
  const ssize_t got = getrandom(own_nonce_.data(), kNonceBytes, 0);
  if (got != static_cast<ssize_t>(kNonceBytes)) own_nonce_.clear();
}

std::string Proof::Begin() {
  return is_client_ && !is_done() ? own_nonce_ : std::string();
}

absl::StatusOr<std::string> Proof::Take(absl::string_view* bytes) {
  const size_t taken = std::min(bytes->size(), num_due_ - received_.size());
  received_.append(bytes->data(), taken);
  bytes->remove_prefix(taken);
  if (is_done() || received_.size() < num_due_) return std::string();
  if (own_nonce_.empty()) {
    return absl::InternalError("getrandom gave too little");
  }
  return Answer();
}

absl::StatusOr<std::string> Proof::Answer() {
  const std::string received = std::move(received_);
  received_.clear();
  if (peer_nonce_.empty()) peer_nonce_ = received.substr(0, kNonceBytes);
  const std::string& client = is_client_ ? own_nonce_ : peer_nonce_;
  const std::string& server = is_client_ ? peer_nonce_ : own_nonce_;
  ASSIGN_OR_RETURN(const std::string of_server,
                   Mac(*key_, kServer, client, server));
  ASSIGN_OR_RETURN(const std::string of_client,
                   Mac(*key_, kClient, client, server));
  if (!is_client_ && !std::exchange(has_answered_, true)) {
    num_due_ = kMacBytes;
    return own_nonce_ + of_server;
  }
  const absl::string_view mac =
      absl::string_view(received).substr(is_client_ ? kNonceBytes : 0);
  const std::string& expected = is_client_ ? of_server : of_client;
  if (!AreSame(mac, expected)) {
    return absl::UnauthenticatedError(
        "the peer does not hold this job's secret, or what it said was "
        "damaged on its way");
  }
  num_due_ = 0;
  return is_client_ ? of_client : std::string();
}

}  // namespace telegrad
