#include "tests/kvstore/simulation/faulty_frames.h"

#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kvstore/ps/wire/wire.h"
#include "tests/kvstore/simulation/virtual_world.h"
#include "transport/forwarding.h"

namespace telegrad {
absl::StatusOr<std::unique_ptr<TransportContext>>
RealMakeTransport(const TransportOptions& options, TransportHandler* handler) __asm__(
    "__real__ZN8telegrad13MakeTransportERKNS_16TransportOptionsEPNS_"
    "16TransportHandlerE");
absl::StatusOr<std::unique_ptr<TransportContext>>
FaultyMakeTransport(const TransportOptions& options, TransportHandler* handler) __asm__(
    "__wrap__ZN8telegrad13MakeTransportERKNS_16TransportOptionsEPNS_"
    "16TransportHandlerE");
}  // namespace telegrad

namespace telegrad::testing {
namespace {

struct Sent {
  FrameHeader header;
  std::vector<std::byte> payload;
};

FrameFaults the_faults;
// What each member has pushed, by key, chunk and step, in any epoch.
using PushId = std::tuple<int, uint32_t, uint32_t, uint64_t>;
std::map<PushId, Sent> the_sent;

bool Happens(double share) {
  return share > 0 && static_cast<double>(
                          VirtualWorld::The()->random().NextUniform()) < share;
}

class FaultyFrames : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportOptions& options, TransportHandler* handler) {
    std::unique_ptr<FaultyFrames> context(new FaultyFrames(handler));
    RETURN_IF_ERROR(context->MakeInner(&RealMakeTransport, options));
    return context;
  }

  bool IsInMemory(EndpointId) const override { return false; }
  bool ChecksPackets(EndpointId endpoint) const override {
    return inner().ChecksPackets(endpoint);
  }
  bool IsSealed(EndpointId endpoint) const override {
    return inner().IsSealed(endpoint);
  }
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override {
    const absl::StatusOr<FrameHeader> read = ParseFrameHeader(header);
    if (!read.ok() || read->type != FrameType::kPush) {
      return inner().Send(to, header, payload, std::move(done));
    }
    Sent own{.header = *read,
             .payload = {payload.data, payload.data + payload.size}};
    SendOld(to, own);
    const bool is_twice =
        the_faults.blind != Blind::kDedup && Happens(the_faults.duplicates);
    if (!own.payload.empty() && Happens(the_faults.flips)) {
      return SendFlipped(to, header, std::move(own), std::move(done));
    }
    RETURN_IF_ERROR(inner().Send(to, header, payload, std::move(done)));
    if (is_twice) SendOwned(to, std::move(own));
    return absl::OkStatus();
  }

 private:
  using ForwardingContext::ForwardingContext;

  static void Tell(int member) {
    if (the_faults.on_wrong) the_faults.on_wrong(member);
  }
  // Before a push: the one of that step in an epoch that has ended, and once
  // more that of the step before, whose answer has come.
  void SendOld(EndpointId to, const Sent& own) {
    const FrameHeader& next = own.header;
    const int member = VirtualWorld::own_member();
    Sent& stale = the_sent[{member, next.key, next.chunk, next.step}];
    if (stale.header.epoch > 0 && stale.header.epoch < next.epoch &&
        Happens(the_faults.stale)) {
      Tell(member);
      if (the_faults.blind == Blind::kFencing) {
        stale.header.epoch = next.epoch;
        stale.header.destination = next.destination;
        stale.header.source = next.source;
      }
      SendOwned(to, stale);
    }
    Sent& last = last_[{next.key, next.chunk}];
    if (last.header.epoch == next.epoch && Happens(the_faults.duplicates)) {
      if (the_faults.blind == Blind::kDedup) last.header.step = next.step;
      SendOwned(to, last);
    }
    stale = last = own;
  }
  void SendOwned(EndpointId to, Sent sent) {
    const auto owned = std::make_shared<Sent>(std::move(sent));
    const ConstBytes payload(owned->payload.data(), owned->payload.size());
    const FrameHeaderBytes header = SerializeFrame(owned->header, payload);
    inner()
        .Send(to, {header.data(), header.size()}, payload,
              [owned](const absl::Status&) {})
        .IgnoreError();
  }
  absl::Status SendFlipped(EndpointId to, ConstBytes header, Sent own,
                           SendDone done) {
    Tell(VirtualWorld::own_member());
    const auto owned = std::make_shared<Sent>(std::move(own));
    Random& random = VirtualWorld::The()->random();
    const uint64_t bit = random.NextBelow(8 * owned->payload.size());
    owned->payload[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const ConstBytes payload(owned->payload.data(), owned->payload.size());
    FrameHeaderBytes bytes;
    std::memcpy(bytes.data(), header.data, bytes.size());
    if (the_faults.blind == Blind::kChecksum) {
      bytes = SerializeFrame(owned->header, payload);
    }
    return inner().Send(to, {bytes.data(), bytes.size()}, payload,
                        [owned, done = std::move(done)](
                            const absl::Status& status) { done(status); });
  }

  std::map<std::pair<uint32_t, uint32_t>, Sent> last_;  // by key and chunk
};

}  // namespace

void SetFrameFaults(const FrameFaults& faults) { the_faults = faults; }

}  // namespace telegrad::testing

absl::StatusOr<std::unique_ptr<telegrad::TransportContext>>
telegrad::FaultyMakeTransport(const TransportOptions& options,
                              TransportHandler* handler) {
  TransportOptions own = options;
  own.name = own.tls = "tcp";  // that of a host's workers, too
  own.poll = Duration::zero();
  return testing::FaultyFrames::Make(own, handler);
}
