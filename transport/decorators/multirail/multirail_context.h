#pragma once

#include <array>
#include <bitset>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/decorators/multirail/multirail_transport.h"
#include "transport/decorators/multirail/pace.h"
#include "transport/decorators/multirail/wire.h"
#include "transport/forwarding.h"
#include "transport/transport.h"

namespace telegrad::multirail {

class MultiRailContext : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      TransportHandler* handler);
  ~MultiRailContext() override { EndInner(); }

  TransportInfo info() const override;
  bool IsInMemory(EndpointId endpoint) const override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;

 private:
  struct Outgoing {
    std::array<std::byte, kMaxCarriedBytes> header;
    size_t header_bytes = 0;  // with the prefix
    uint32_t sequence = 0;
    ConstBytes payload = {};
    SendDone done = nullptr;
    size_t num_parts = 0;     // that are to be sent
    size_t num_given = 0;     // of these, to the inner transport
    size_t num_finished = 0;  // of these
    absl::Status status = {};
  };
  // A part that has come before its message could begin.
  struct Held {
    Buffer buffer;
    size_t size = 0;
    bool has_arrived = false;
  };
  using HeldParts = std::map<size_t, Held>;  // by index
  struct Incoming {
    std::array<std::byte, kMaxCarriedBytes - kPrefixBytes> header;
    size_t header_bytes = 0;
    size_t payload_bytes = 0;
    Bytes target = {};             // what OnHeader gave
    std::bitset<kMaxParts> begun;  // parts
    size_t num_arrived = 0;        // parts, where they belong
    HeldParts held = {};
  };
  struct Connection {
    EndpointId inner = 0;
    size_t index = 0;        // the peers' number for it
    size_t bytes_given = 0;  // that the inner transport has yet to send
    Pace pace = {};
    bool is_open = true;
    bool is_usable = true;  // greeted, wanted, and not refusing
  };
  // kOpen --Close--> kFlushing --all is given, or grace over--> kClosing
  // kOpen --a connection ends--> kLost --the others end, or grace over--> gone
  // any --a refused message--> kClosing --all connections gone--> gone
  enum class State : uint8_t { kOpen, kFlushing, kClosing, kLost };
  struct Endpoint {
    EndpointId id = 0;
    State state = State::kOpen;
    absl::Status why = {};    // what OnClosed will say; set when not open
    TimePoint close_by = {};  // of kFlushing and kLost
    uint64_t group = 0;
    size_t expected = 1;                      // connections
    std::deque<Connection> connections = {};  // that have joined
    size_t num_open = 0;                      // of these

    std::deque<std::shared_ptr<Outgoing>> queue = {};  // parts of it are here
    uint32_t next_to_send = 0;
    uint64_t weight_begun = 0;  // of messages of which parts were given
    ReceivedSoFar heard_by_peer = {};
    std::optional<uint32_t> has_asked_for = {};  // messages
    // That were not heard; null: no part of it has come.
    std::deque<std::unique_ptr<Incoming>> incoming = {};
    size_t num_begun = 0;      // of incoming: OnHeader was called
    uint64_t weight_held = 0;  // in buffers of Held
    ReceivedSoFar heard = {};  // as many as the sequence of the next
    ReceivedSoFar told = {};   // what the peer knows of `heard`
    std::optional<uint32_t> asked_for = {};  // to tell when so many were heard
  };
  // Of an inner endpoint. No endpoint: its hello is due, or it is let go.
  struct Place {
    Endpoint* endpoint = nullptr;
    Connection* connection = nullptr;
    TimePoint greet_by = {};
  };

  MultiRailContext(const TransportOptions& options, TransportHandler* handler);

  void OnAccept(EndpointId inner_id) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId inner_id, const absl::Status& why) override;
  bool HandleEvents(TimePoint* next) override;

  Endpoint* Find(EndpointId id) const;
  Endpoint& AddEndpoint(const Hello& hello);
  void AddConnection(Endpoint& endpoint, EndpointId inner_id, size_t index);
  bool IsWanted(const Endpoint& endpoint, EndpointId inner_id) const;
  void GreetOn(Endpoint& endpoint, Connection& connection);
  void Join(EndpointId inner_id, Place& place, const Hello& hello);

  // sending.cc
  void Dispatch(Endpoint& endpoint);
  void GiveQueued(Endpoint& endpoint);
  static bool MayBegin(const Endpoint& endpoint, const Outgoing& message);
  static bool HasRoom(const Connection& connection, size_t bytes);
  static Connection* Soonest(Endpoint& endpoint, size_t bytes);
  void LookAgainSoon(const Endpoint& endpoint);
  void AskFor(Endpoint& endpoint, uint32_t messages);
  bool SendBare(Endpoint& endpoint,
                const std::array<std::byte, kPrefixBytes>& text);
  void Give(Endpoint& endpoint, Connection& connection,
            const std::shared_ptr<Outgoing>& message);
  void FinishPart(Endpoint& endpoint, Connection& connection, Outgoing& message,
                  size_t bytes, const absl::Status& status);
  void FinishIfWhole(Outgoing& message);
  void RefuseQueue(Endpoint& endpoint);

  // receiving.cc
  absl::StatusOr<Bytes> BeginPart(Endpoint& endpoint, ConstBytes header,
                                  size_t part_bytes);
  absl::StatusOr<Incoming*> FindMessage(Endpoint& endpoint, const Part& part,
                                        ConstBytes header);
  absl::Status BeginMessages(Endpoint& endpoint);
  absl::Status BeginMessage(Endpoint& endpoint, Incoming& message);
  absl::StatusOr<Bytes> Hold(Endpoint& endpoint, Incoming& message,
                             size_t index, size_t part_bytes);
  Bytes Discard(size_t part_bytes);
  Buffer GetBuffer(size_t bytes);
  void PutBuffer(Buffer buffer);
  HeldParts::iterator PlaceHeld(Endpoint& endpoint, Incoming& message,
                                HeldParts::iterator held);
  void EndPart(Endpoint& endpoint, const Part& part);
  static bool IsReceiving(const Endpoint& endpoint);
  void Deliver(Endpoint& endpoint);
  void SendAck(Endpoint& endpoint);
  absl::Status TakeAsk(Endpoint& endpoint, ConstBytes header,
                       size_t payload_bytes);
  absl::Status HandleAck(Endpoint& endpoint, ConstBytes header,
                         size_t payload_bytes);

  // closing.cc
  absl::Status Refuse(Endpoint& endpoint, const absl::Status& why);
  void CloseConnections(Endpoint& endpoint);
  void LoseConnection(Endpoint& endpoint, Connection& connection,
                      const absl::Status& why);
  bool IsOver(const Endpoint& endpoint, TimePoint now) const;
  void End(Endpoint& endpoint);
  void LetGo(EndpointId inner_id, Place& place);
  void AdvanceTimers();
  TimePoint NextTimer() const;

  const size_t num_connections_;
  const size_t max_header_bytes_;
  EndpointId next_id_ = 1;
  std::unordered_map<EndpointId, std::unique_ptr<Endpoint>> endpoints_;
  std::unordered_map<uint64_t, Endpoint*> accepted_;  // by group
  std::unordered_map<EndpointId, Place> places_;      // by inner endpoint
  std::vector<EndpointId> greeting_;  // inner ones whose hello is due
  std::vector<EndpointId> ending_;    // endpoints with a close_by
  std::vector<EndpointId> waiting_;   // endpoints, for a busy connection
  // Groups whose endpoint has ended before all its connections had come.
  std::deque<std::pair<uint64_t, TimePoint>> ended_;
  std::vector<Buffer> spare_;  // of kPartBytes, for Held
  Buffer discarded_;           // where parts go that nobody hears
  size_t num_events_ = 0;
};

}  // namespace telegrad::multirail
