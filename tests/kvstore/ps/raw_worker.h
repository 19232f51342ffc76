#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/job/control/handshake.h"
#include "kvstore/ps/wire/wire.h"
#include "tests/kvstore/cluster.h"

namespace telegrad::testing {

// A connection to a server that sends what the test says, well-formed or not.
class RawConnection : private TransportHandler {
 public:
  RawConnection(const TransportOptions& options, const std::string& address)
      : transport_(*MakeTransport(options, this)),
        endpoint_(*transport_->Connect(address)) {}

  void Send(const std::string& header, std::string payload) {
    payloads_.push_back(std::move(payload));
    const std::string& kept = payloads_.back();
    // The endpoint may be closed already: that is what cases wait for.
    transport_
        ->Send(endpoint_, {header.data(), header.size()},
               {kept.data(), kept.size()}, nullptr)
        .IgnoreError();
  }
  void Send(FrameHeader header, std::string payload) {
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    const FrameHeaderBytes bytes =
        SerializeFrame(header, {payload.data(), payload.size()});
    Send(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
         std::move(payload));
  }

  // Waits until a frame of `type` has come; false when the connection ended.
  bool Await(FrameType type) {
    const TimePoint deadline = Soon();
    while (!is_closed_ && Clock::now() < deadline) {
      if (std::find(types_.begin(), types_.end(), type) != types_.end()) {
        return true;
      }
      transport_->Progress(Clock::now() + std::chrono::milliseconds(50));
    }
    return false;
  }
  bool AwaitClosed() {
    const TimePoint deadline = Soon();
    while (!is_closed_ && Clock::now() < deadline) {
      transport_->Progress(Clock::now() + std::chrono::milliseconds(50));
    }
    return is_closed_;
  }

  bool Authenticate(const Secret& secret, const Identity& self) {
    HandshakeClient handshake(secret, "local", self, {Role::kServer, 0});
    Send(FrameHeader{.type = FrameType::kHello}, handshake.Hello());
    if (!Await(FrameType::kChallenge)) return false;
    const auto proof = handshake.OnChallenge(last_payload_);
    if (!proof.ok()) return false;
    Send(FrameHeader{.type = FrameType::kProof}, *proof);
    return Await(FrameType::kReady);
  }

 private:
  void OnAccept(EndpointId) override {}
  absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes,
                                 size_t payload_bytes) override {
    received_.emplace_back(payload_bytes);
    return received_.back().view();
  }
  void OnMessage(EndpointId, ConstBytes header, Bytes payload) override {
    types_.push_back(ParseFrameHeader(header)->type);
    last_payload_.assign(reinterpret_cast<char*>(payload.data), payload.size);
  }
  void OnClosed(EndpointId, const absl::Status&) override { is_closed_ = true; }

  std::deque<std::string> payloads_;
  std::deque<Buffer> received_;
  std::vector<FrameType> types_;
  std::string last_payload_;
  bool is_closed_ = false;
  std::unique_ptr<TransportContext> transport_;
  EndpointId endpoint_;
};

}  // namespace telegrad::testing
