#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/acceptor.h"
#include "base/local_socket.h"
#include "base/poller.h"
#include "base/socket.h"
#include "transport/endpoint_table.h"
#include "transport/tcp/connection.h"
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
  absl::Status Init();
  absl::StatusOr<Connection*> Add(UniqueFd socket,
                                  const LocalPeer* same_host_peer);
  void Accept(Acceptor& acceptor);
  void ChooseCongestion(const Connection& connection);
  std::string DescribeCongestion() const;

  // send.cc
  void SendHello(Connection& connection);
  void Enqueue(Connection& connection, Outgoing message);
  void Write(Connection& connection);
  void HandleWritten(Connection& connection, size_t bytes);
  void CallDone() { num_events_ += done_.CallAll(); }

  // receive.cc
  void Read(Connection& connection);
  void HandleEnd(Connection& connection, int error);
  void Take(Connection& connection, ConstBytes bytes);
  size_t TakeHead(Connection& connection, ConstBytes bytes);
  void TakeRecord(Connection& connection);
  void TakeHeader(Connection& connection);
  void TakePayload(Connection& connection, size_t bytes);
  void ReceiveHello(Connection& connection);
  void BeginMessage(Connection& connection);
  void EndMessage(Connection& connection);

  // same_host.cc
  std::string DescribeSameHost() const;
  void ListenOnSameHost(absl::string_view address);
  UniqueFd ReachOnSameHost(absl::string_view address, LocalPeer* peer) const;
  void SendBare(Connection& connection, Kind kind);
  void OfferMemory(Connection& connection);
  void TakeOffer(Connection& connection);
  void TakeAccept(Connection& connection);
  void TakeTaken(Connection& connection);
  void CopyFromPeer(Connection& connection);

  // closing.cc
  void Fail(Connection& connection, absl::Status why);
  void FailProtocol(Connection& connection, absl::string_view what);
  void ReceiveGoodbye(Connection& connection);
  void AdvanceClosing();
  void Cut(Connection& connection);

  // progress.cc
  void Activate(Connection& connection);
  void PollSockets();
  void HandleSocket(Connection& connection, uint32_t events);
  void Work(bool reads);
  bool HandleEvents(bool is_complete);

  const TransportOptions options_;
  // That are listened on, the bind address first.
  std::vector<std::string> ips_;
  TransportHandler* const handler_;
  Poller poller_;
  std::vector<Acceptor> acceptors_;  // of the bind address, and of each rail
  Acceptor same_host_;               // without TCP
  const Mark mark_;
  std::string congestion_;  // control of the last connection by TCP

  EndpointTable<Connection> connections_;
  std::vector<EndpointId> active_;   // that may read or write
  std::vector<EndpointId> working_;  // those of this turn
  DueCompletions done_;
  std::vector<std::byte> staging_;  // what is read beside payloads
  bool is_progressing_ = false;
  unsigned num_polls_ = 0;
  size_t num_moved_ = 0;   // bytes since HandleEvents began
  size_t num_events_ = 0;  // since HandleEvents began
};

}  // namespace telegrad::tcp
