// libFuzzer: the first bytes of connections. Nobody is let in by them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kvstore/job/control/handshake.h"
#include "kvstore/job/control/secret.h"
#include "transport/decorators/seal/greeting.h"
#include "transport/proof.h"
#include "transport/tcp/incoming.h"

namespace telegrad {
namespace {

const Secret& TheSecret() {
  static const auto* const secret =
      new Secret(*Secret::Derive(std::string(32, 'k'), "job"));
  return *secret;
}

void Prove(bool is_client, absl::string_view said) {
  Proof proof(TheSecret().ForConnections(), is_client);
  (void)proof.Begin();
  while (!said.empty()) {
    const size_t before = said.size();
    if (!proof.Take(&said).ok()) return;
    if (proof.is_done() || said.size() == before) std::abort();
  }
}

// The message, and the message as the rest of a right beginning.
void Shake(const std::string& said) {
  HandshakeServer server(TheSecret(), "job");
  if (server.OnHello(said).ok() && server.OnProof(said).ok()) std::abort();
  HandshakeClient client(TheSecret(), "job", {});
  const std::string hello = client.Hello();
  if (client.OnChallenge(said).ok()) std::abort();
  HandshakeServer greeted(TheSecret(), "job");
  if (!greeted.OnHello(hello).ok() || greeted.OnProof(said).ok()) std::abort();
}

// The same for the exchange of keys.
void Greet(const std::string& said) {
  const ConnectionKey key = TheSecret().ForConnections();
  const auto make = [&key](bool is_client) {
    return *seal::Greeting::Create(key, Encryption::kOn, is_client,
                                   Encryption::kOn);
  };
  const ConstBytes bytes(said.data(), said.size());
  seal::Greeting server = make(false), client = make(true),
                 greeted = make(false);
  (void)server.Take(bytes, {});
  const std::string hello = client.Begin();
  if (!greeted.Take({hello.data(), hello.size()}, {}).ok()) std::abort();
  (void)client.Take(bytes, {});
  (void)greeted.Take(bytes, {});
  if (server.is_done() || client.is_done() || greeted.is_done()) std::abort();
}

void Receive(bool is_local, ConstBytes bytes) {
  tcp::Incoming incoming(is_local, kMaxHeaderBytes);
  std::string payload;
  while (bytes.size > 0) {
    const auto event = incoming.Take(&bytes);
    if (!event.ok()) return;
    if (*event == tcp::Incoming::Event::kWhole) incoming.End();
    if (*event != tcp::Incoming::Event::kHead) continue;
    const size_t size = incoming.record().payload_bytes;
    if (size == 0 || size > 4096) return;
    payload.assign(size, '\0');
    incoming.Begin({payload.data(), payload.size()});
  }
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string said(reinterpret_cast<const char*>(data), size);
  const bool choice = size > 0 && data[0] % 2 == 0;
  telegrad::Prove(choice, said);
  telegrad::Shake(said);
  telegrad::Shake("TGH3" + said);
  telegrad::Greet(said);
  telegrad::Greet("TGSL" + said);
  telegrad::Receive(choice, {data, size});
  const std::string greeted = std::string("T\2\0\0GRAD", 8) + said;
  telegrad::Receive(choice, {greeted.data(), greeted.size()});
  return 0;
}
