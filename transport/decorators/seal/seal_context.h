#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/decorators/seal/greeting.h"
#include "transport/decorators/seal/seal_transport.h"
#include "transport/forwarding.h"
#include "transport/greeting.h"
#include "transport/sealer.h"

namespace telegrad::seal {

// A sealed message is
//   header  = tag:16 S(payload_tag:16 header), no payload_tag without a payload
//   payload = S(payload)
// Message n of a direction has the numbers 2n for the payload and 2n + 1 for
// the header, beside which payload_bytes:u32 is authenticated.
class SealContext : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      TransportHandler* handler);
  ~SealContext() override { EndInner(); }

  bool Takes(DeviceKind device) const override;
  bool TakesSome(DeviceKind device) const override;
  bool TakesNow(Bytes target) override;
  bool ChecksPackets(EndpointId endpoint) const override {
    return inner().ChecksPackets(endpoint);
  }
  bool IsSealed(EndpointId endpoint) const override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;

 private:
  struct Waiting {  // until the keys are there
    std::string header;
    ConstBytes payload;
    SendDone done;
  };
  struct Arriving {
    bool is_greeting = false;
    uint64_t number = 0;
    // The payload's tag, where there is one, and the handler's header.
    std::array<std::byte, kMaxCarriedBytes> text = {};
    size_t tag_bytes = 0;
    size_t header_bytes = 0;

    ConstBytes header() const {
      return {text.data() + tag_bytes, header_bytes};
    }
  };
  struct Endpoint {
    explicit Endpoint(Greeting begun) : greeting(std::move(begun)) {}

    Greeting greeting;
    bool is_announced = false;  // to the handler
    absl::Status why = {};      // not OK: neither sends nor hears any more
    std::deque<Waiting> waiting = {};
    std::optional<Sealers> sealers = {};
    uint64_t num_sent = 0, num_heard = 0;
    std::deque<Arriving> arriving = {};

    bool is_sealed() const { return sealers.has_value(); }
  };

  SealContext(const TransportOptions& options, TransportHandler* handler);

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  bool HandleEvents(TimePoint* next) override;

  Endpoint* Find(EndpointId id);
  bool takes_devices() const { return memory_ == "direct"; }
  bool may_be_open() const {
    return setting_ == Encryption::kAuto || setting_ == Encryption::kOff;
  }
  void Fail(EndpointId id, Endpoint& endpoint, const absl::Status& why);
  static const absl::Status& Refuse(Endpoint& endpoint,
                                    const absl::Status& why);
  absl::Status Say(EndpointId to, const std::string& text);
  absl::Status TakeGreeting(EndpointId from, Endpoint& endpoint,
                            ConstBytes header);
  absl::Status SendSealed(EndpointId to, Endpoint& endpoint, ConstBytes header,
                          ConstBytes payload, SendDone done);
  absl::StatusOr<Arriving> OpenHeader(Endpoint& endpoint, ConstBytes header,
                                      size_t payload_bytes);
  std::shared_ptr<Buffer> TakeBuffer(size_t bytes);

  const ConnectionKey key_;
  const Encryption setting_;
  const std::string memory_;
  const size_t max_header_bytes_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  Strangers<EndpointId> greeting_;
  Strangers<EndpointId> closing_;               // once what waits is sent
  std::vector<std::shared_ptr<Buffer>> spare_;  // for sealed payloads
};

}  // namespace telegrad::seal
