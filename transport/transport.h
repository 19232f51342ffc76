#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "transport/encryption.h"
#include "transport/proof.h"

namespace telegrad {

// Names an endpoint within its context; never used twice.
using EndpointId = uint32_t;

constexpr size_t kMaxHeaderBytes = 128;
constexpr size_t kMaxPayloadBytes = size_t{64} << 20;
constexpr size_t kMaxPrefixBytes = 16;  // what one decorator adds to a header
constexpr size_t kMaxSealBytes = 32;    // what sealing adds
// A header with the prefixes of four decorators: memory of devices, sending
// again, several connections, sealing.
constexpr size_t kMaxCarriedBytes =
    3 * kMaxPrefixBytes + kMaxSealBytes + kMaxHeaderBytes;
constexpr size_t kMaxConnections = 64;  // to one peer

// Receives a context's events; every call comes from Progress, on the owner's
// thread. A handler may call Send, Close and Connect, not Progress.
class TransportHandler {
 public:
  virtual ~TransportHandler() = default;

  // A peer has connected to our listener.
  virtual void OnAccept(EndpointId endpoint) = 0;

  // A message has begun. Returns where its payload shall go (at least
  // `payload_bytes` bytes, untouched until OnMessage or OnClosed), after the
  // header was judged; an error closes this endpoint. `header` is valid during
  // the call.
  virtual absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                         size_t payload_bytes) = 0;

  // The payload has arrived in the first `payload.size` bytes of what OnHeader
  // gave. Messages of one endpoint arrive in the order of sending.
  virtual void OnMessage(EndpointId from, ConstBytes header, Bytes payload) = 0;

  // The endpoint is gone; it has no further events, and all its sends have
  // completed. Cancelled: we closed it. Unavailable: the peer went away.
  // Unauthenticated: it has not proved that it holds the key.
  virtual void OnClosed(EndpointId endpoint, const absl::Status& why) = 0;
};

// Called exactly once, from Progress, never inside Send.
using SendDone = std::function<void(const absl::Status&)>;

struct TransportInfo {
  std::string name;     // "ucx"
  std::string details;  // "UCX 1.13.1, tls tcp,posix,cma,self, devices lo"
};

// One process's access to a network; owns endpoints.
// In order of use: Listen and/or Connect, Send, Progress in a loop, Close.
// One thread at a time, except Wake. Sends are queued without bound by a slow
// peer: a sender limits its own bytes in flight by counting completions.
// Receiving never waits for sending. Peer failure is a hint that may come
// late or never (a stopped process): whoever waits has a deadline of its own.
class TransportContext {
 public:
  virtual ~TransportContext() = default;

  virtual TransportInfo info() const = 0;

  // True if Send and OnHeader take all payloads in memory of this device.
  virtual bool Takes(DeviceKind device) const {
    return device == DeviceKind::kCpu;
  }

  // True if Send takes at least some payloads on this device. It returns
  // Unimplemented for the others.
  virtual bool TakesSome(DeviceKind device) const { return Takes(device); }
  // True if OnHeader, from which it is called, may return `target`, which has
  // the payload's size.
  virtual bool TakesNow(Bytes target) { return Takes(target.device.kind); }

  // True if messages to and from this peer stay within the memory of this
  // machine, where a checksum finds nothing. It is known once a message has
  // come from the peer.
  virtual bool IsInMemory(EndpointId endpoint) const {
    (void)endpoint;
    return false;
  }

  // True if each packet to and from this peer has a check that finds what a
  // checksum of its payload would: InfiniBand, RoCE and EFA have one, and TCP's
  // sum is too weak. It is known once a message has come from the peer.
  virtual bool ChecksPackets(EndpointId endpoint) const {
    (void)endpoint;
    return false;
  }

  // True if nobody between this peer and us can alter a message unnoticed, so
  // that a checksum finds nothing. It is known once a message has come from the
  // peer.
  virtual bool IsSealed(EndpointId endpoint) const {
    (void)endpoint;
    return false;
  }

  // Accepts peers from now on; returns the address that Connect takes.
  virtual absl::StatusOr<std::string> Listen() = 0;

  // Begins to connect; Send may follow at once. OnClosed reports a failure.
  virtual absl::StatusOr<EndpointId> Connect(absl::string_view address) = 0;

  // Queues one message. `header` (at most kMaxHeaderBytes) is copied; `payload`
  // (at most kMaxPayloadBytes, may be empty) is borrowed until `done` is
  // called. The payload may need this side's Progress to arrive.
  // FailedPrecondition for an endpoint that is not open: `done` is not called.
  virtual absl::Status Send(EndpointId to, ConstBytes header,
                            ConstBytes payload, SendDone done) = 0;

  // Closes after what was sent has left, as far as the peer lives; OnClosed
  // follows, at most kCloseGrace later. Unknown ids are ignored.
  virtual void Close(EndpointId endpoint) = 0;

  // Handles events; returns true at once after some were handled, false when
  // `deadline` passed or Wake was called without any. Polls for a little, then
  // sleeps.
  virtual bool Progress(TimePoint deadline) = 0;

  // Ends a Progress that waits, now or next. Thread-safe.
  virtual void Wake() = 0;
};

constexpr Duration kCloseGrace = std::chrono::seconds(2);

struct TransportOptions {
  std::string name = "ucx";  // a name of DescribeTransports
  // Both ends of each connection prove that they have it before anything else
  // is heard; null: nobody does. Within a process nobody need.
  ConnectionKey key = nullptr;
  // What is done to messages between processes of two hosts that have proved
  // the key; other than kOff and kAuto it needs one
  // (transport/decorators/seal). All members of a job have the same.
  Encryption encryption = Encryption::kAuto;
  std::string bind_address = "127.0.0.1";  // the one address listened on
  // ucx: "tcp", "shm", empty: both. ofi: "tcp", "shm", "verbs", "efa", a
  // provider's name, empty: efa, verbs or tcp, the first there is. tcp: "tcp",
  // empty: peers of this machine are reached without TCP.
  std::string tls;
  // How Send and OnHeader take memory of CUDA devices. "host": not at all;
  // "staged": through pinned host memory; "direct": as the transport's library
  // does, an error where it does not; "auto": direct where it can, else staged.
  std::string memory = "host";
  // Connections to each peer that is not on this machine, at most
  // kMaxConnections; more than 1 where one does not fill the link
  // (transport/decorators/multirail). All members of a job have the same.
  size_t connections = 1;
  // Further addresses of this host, or the names of its devices that have them.
  // Connections to one peer are spread over these and the bind address in turn,
  // at least one for each. tcp only; ucx takes UCX_NET_DEVICES.
  std::vector<std::string> rails;
  // RDMA ports ("mlx5_0:1") that may be used, besides the interface that has
  // bind_address. A user's UCX_NET_DEVICES wins. ucx only; verbs of ofi goes by
  // the bind address.
  std::vector<std::string> rdma_ports;
  // The row of the GID table that each RoCE port of this host uses ("mlx5_0:1"
  // -> 3). ucx takes it (UCX_IB_GID_INDEX, unless the user sets that) where all
  // ports that it uses have the same.
  std::map<std::string, int> gid_rows;
  // tcp: the kernel's congestion control by name ("cubic"), "system": what it
  // takes by itself, "auto": reno in place of bbr to peers within 5 ms.
  std::string congestion = "auto";
  // Send may leave its message to Progress, which the owner calls right after,
  // so that many small messages take one system call. tcp only.
  bool sends_wait = false;
  // Bytes that headers may have above kMaxHeaderBytes. Only decorators set it.
  size_t prefix_bytes = 0;
  double link_bytes_per_s = 0;  // > 0: emulate a link of that rate
  double link_latency_s = 0;    // > 0: emulate a link of that latency
  // Damages messages, for tests: "drop=0.01,flip=0.001,seed=7".
  std::string fault;
  // Messages that the transport loses, repeats, reorders or corrupts are sent
  // again until they arrive whole and in order (transport/decorators/resend).
  // All members of a job have the same.
  bool resend = false;
  // Progress polls so long before it sleeps.
  Duration poll = std::chrono::microseconds(50);
};

// Connections to each peer on another host.
inline size_t NumConnections(const TransportOptions& options) {
  return std::max(options.connections, 1 + options.rails.size());
}

// `handler` outlives the context. NotFound names the transports that this build
// has when `options.name` is none of them.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeTransport(
    const TransportOptions& options, TransportHandler* handler);

// Makes a context, or decorates one.
using TransportFactory =
    std::function<absl::StatusOr<std::unique_ptr<TransportContext>>(
        const TransportOptions&, TransportHandler*)>;

// One line per transport: name, and what it is or why it is not there.
std::string DescribeTransports();

}  // namespace telegrad
