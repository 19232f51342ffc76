#pragma once

#include <array>
#include <cstddef>
#include <deque>

#include "transport/decorators/multirail/pace.h"
#include "transport/decorators/multirail/wire.h"
#include "transport/transport.h"

namespace telegrad::multirail {

struct Connection {
  EndpointId inner = 0;
  size_t index = 0;        // the peers' number for it
  size_t bytes_given = 0;  // bytes that the inner transport has yet to send
  Pace pace = {};
  bool is_open = true;
  bool is_usable = true;  // greeted, wanted, and not refusing

  bool HasRoom(size_t bytes) const;
};

// The connections of one endpoint that have joined. One thread.
class Connections {
 public:
  explicit Connections(TransportContext& inner) : inner_(inner) {}

  Connection& Add(EndpointId inner_id, size_t index);
  void HasClosed(Connection& connection);
  std::deque<Connection>& all() { return all_; }
  size_t size() const { return all_.size(); }
  size_t num_open() const { return num_open_; }
  bool Has(size_t index) const;

  // As all connections in use are. Of others it may not be known yet.
  bool IsInMemory() const { return AreAll(&TransportContext::IsInMemory); }
  bool IsSealed() const { return AreAll(&TransportContext::IsSealed); }
  // Once messages were said to stay in memory they do: a connection that turns
  // out to be over a network carries none.
  bool IsWanted(EndpointId inner_id) const;

  // The connection that will have sent so many bytes first, by its pace of
  // late. Null: there is none, or they have yet to show their pace; they have
  // when the peer `has_heard` anything.
  Connection* Soonest(size_t bytes, bool has_heard);
  // Sends over the first connection that takes it.
  bool SendBare(const std::array<std::byte, kPrefixBytes>& text);

 private:
  // All that may be used, and there are some.
  bool AreAll(bool (TransportContext::*is)(EndpointId) const) const;

  TransportContext& inner_;
  std::deque<Connection> all_;
  size_t num_open_ = 0;
};

}  // namespace telegrad::multirail
