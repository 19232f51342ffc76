#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/poller.h"
#include "transport/endpoint_table.h"
#include "transport/tcp/congestion.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/listeners.h"
#include "transport/tcp/silence.h"
#include "transport/transport.h"

namespace telegrad::tcp {

// Messages as one stream of bytes: a payload is written from the sender's
// memory and read into the receiver's, without asking before. A peer on this
// machine is reached without TCP, and large payloads are read from its memory.
// One thread, except Wake.
class TcpContext : public TransportContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportOptions& options, TransportHandler* handler);

  TransportInfo info() const override;
  bool IsInMemory(EndpointId endpoint) const override;
  absl::StatusOr<std::string> Listen() override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  bool Progress(TimePoint deadline) override;
  void Wake() override { poller_.Wake(); }

 private:
  TcpContext(const TransportOptions& options, TransportHandler* handler);
  absl::StatusOr<Connection*> Add(PeerSocket peer, bool is_accepted);
  void Accept(uint64_t key);

  void SendHello(Connection& connection);
  void Enqueue(Connection& connection, Outgoing message);
  void Write(Connection& connection);
  void CallDone() { num_events_ += done_.CallAll(); }

  // receive.cc
  void Read(Connection& connection);
  void HandleEnd(Connection& connection, int error);
  void Take(Connection& connection, ConstBytes bytes);
  void TakeHead(Connection& connection);
  void ReceiveProof(Connection& connection, ConstBytes* bytes);
  void BeginMessage(Connection& connection);
  void CopyFromPeer(Connection& connection);
  void EndMessage(Connection& connection);

  void Fail(Connection& connection, absl::Status why);
  void FailProtocol(Connection& connection, absl::string_view what);
  void Cut(Connection& connection);

  void PollSockets();
  void HandleSocket(Connection& connection, uint32_t events);
  void Work(bool reads);
  bool HandleEvents(bool is_complete);

  const TransportOptions options_;
  TransportHandler* const handler_;
  Poller poller_;
  Listeners listeners_;
  Congestion congestion_;
  const Mark mark_;

  EndpointTable<Connection> connections_;
  Turns turns_;  // connections that may read or write
  DueCompletions done_;
  std::vector<std::byte> staging_;  // what is read beside payloads
  bool is_progressing_ = false;
  SilenceWatch silence_;
  unsigned num_polls_ = 0;
  size_t num_moved_ = 0;   // bytes since HandleEvents began
  size_t num_events_ = 0;  // since HandleEvents began
};

}  // namespace telegrad::tcp
