#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "transport/ucx/endpoints.h"
#include "transport/ucx/sender.h"
#include "transport/ucx/shared_memory.h"

namespace telegrad::ucx {

// Agrees with peers where messages go (records.h has the grammar). The
// connection stays the sign of life: the kernel resets it when a process is
// killed, while shared memory says nothing. One thread.
class Routes {
 public:
  // `demands_memory`: nothing but shared memory will do.
  Routes(bool demands_memory, SharedMemory& memory, Endpoints& endpoints,
         Sender& sender)
      : demands_memory_(demands_memory),
        memory_(memory),
        endpoints_(endpoints),
        sender_(sender) {}

  // First of all.
  void Begin(Endpoint& endpoint);
  // kProof, kHello, kLane or kReady has come.
  void Receive(Endpoint& endpoint, Kind kind, absl::string_view text);
  // Data has come by the lane before the route is known: it may pass its
  // sender's kReady, which goes by the connection.
  void ReceiveEarly(Endpoint& endpoint);

 private:
  void Greet(Endpoint& endpoint);
  void ReceiveProof(Endpoint& endpoint, absl::string_view text);
  void ReceiveHello(Endpoint& endpoint, absl::string_view text);
  void HearLane(Endpoint& endpoint, absl::string_view address);
  void SettleWhenAgreed(Endpoint& endpoint);
  void Settle(Endpoint& endpoint, Route route);

  const bool demands_memory_;
  SharedMemory& memory_;
  Endpoints& endpoints_;
  Sender& sender_;
};

}  // namespace telegrad::ucx
