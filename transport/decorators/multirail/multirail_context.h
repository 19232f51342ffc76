#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/decorators/multirail/connections.h"
#include "transport/decorators/multirail/multirail_transport.h"
#include "transport/decorators/multirail/receive_queue.h"
#include "transport/decorators/multirail/send_queue.h"
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
  bool IsSealed(EndpointId endpoint) const override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;

 private:
  // kOpen --Close--> kFlushing --all is given, or grace over--> kClosing
  // kOpen --a connection ends--> kLost --the others end, or grace over--> gone
  // any --a refused message--> kClosing --all connections gone--> gone
  enum class State : uint8_t { kOpen, kFlushing, kClosing, kLost };
  struct Endpoint {
    Endpoint(MultiRailContext& context, EndpointId own_id, const Hello& hello);

    const EndpointId id;
    State state = State::kOpen;
    absl::Status why = {};    // what OnClosed will say; set when not open
    TimePoint close_by = {};  // when kFlushing and kLost end
    const uint64_t group;
    size_t expected;  // connections
    Connections connections;
    SendQueue sends;
    ReceiveQueue receives;
    ReceivedSoFar told = {};  // what the peer knows of what was heard
    std::optional<uint32_t> asked_for = {};  // to tell when so many were heard
  };
  // Where an inner endpoint belongs. No endpoint: its hello is due, or it is
  // let go.
  struct Place {
    Endpoint* endpoint = nullptr;
    Connection* connection = nullptr;
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
  void GreetOn(Endpoint& endpoint, Connection& connection);
  void Join(EndpointId inner_id, Place& place, const Hello& hello);

  void Dispatch(Endpoint& endpoint);
  Bytes Discard(size_t part_bytes);
  absl::Status TakeAsk(Endpoint& endpoint, ConstBytes header,
                       size_t payload_bytes);
  void Deliver(Endpoint& endpoint);
  void SendAck(Endpoint& endpoint);

  absl::Status Refuse(Endpoint& endpoint, const absl::Status& why);
  void CloseConnections(Endpoint& endpoint);
  void LoseConnection(Endpoint& endpoint, Connection& connection,
                      const absl::Status& why);
  bool IsOver(const Endpoint& endpoint, TimePoint now) const;
  void End(Endpoint& endpoint);
  void LetGo(EndpointId inner_id, Place& place);
  // Whether it has called the handler.
  bool AdvanceTimers();
  TimePoint NextTimer() const;

  const size_t num_connections_;
  const size_t max_header_bytes_;
  EndpointId next_id_ = 1;
  std::unordered_map<EndpointId, std::unique_ptr<Endpoint>> endpoints_;
  std::unordered_map<uint64_t, Endpoint*> accepted_;  // by group
  std::unordered_map<EndpointId, Place> places_;      // by inner endpoint
  Strangers<EndpointId> greeting_;   // inner ones whose hello is due
  std::vector<EndpointId> ending_;   // endpoints with a close_by
  std::vector<EndpointId> waiting_;  // endpoints, for a busy connection
  // Groups whose endpoint has ended before all its connections had come.
  std::deque<std::pair<uint64_t, TimePoint>> ended_;
  PartBuffers buffers_;
  Buffer discarded_;  // where parts go that nobody hears
};

}  // namespace telegrad::multirail
