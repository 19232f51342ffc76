#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "compression/frame.h"
#include "kvstore/kvstore.h"
#include "tests/testing/status_matchers.h"
#include "transport/bootstrap.h"
#include "transport/handshake.h"

namespace telegrad::testing {

// A server that lets one worker in and answers nothing; its end is a death.
class FakeServer : private TransportHandler {
 public:
  explicit FakeServer(const DistOptions& options)
      : handshake_(options.secret, options.job_id) {
    transport_ = *MakeTransport(options.transport, this);
    JoinRequest request{.scheduler_address = options.scheduler_address,
                        .role = Role::kServer,
                        .wanted_rank = 0,
                        .data_address = *transport_->Listen(),
                        .facts = {},
                        .shared = {},
                        .job_id = options.job_id,
                        .secret = options.secret,
                        .timing = options.timing,
                        .on_fatal = nullptr};
    thread_ = std::thread([this, request] { Run(request); });
  }
  ~FakeServer() override {
    is_stopping_ = true;
    transport_->Wake();
    thread_.join();
  }

 private:
  void Run(const JoinRequest& request) {
    auto control = ControlClient::Join(request);
    EXPECT_THAT(control, IsOk());
    while (!is_stopping_) {
      transport_->Progress(Clock::now() + std::chrono::milliseconds(50));
    }
    transport_.reset();
  }

  void OnAccept(EndpointId) override {}
  void OnClosed(EndpointId, const absl::Status&) override {}
  absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes,
                                 size_t payload_bytes) override {
    buffers_.emplace_back(payload_bytes);
    return buffers_.back().view();
  }
  void OnMessage(EndpointId from, ConstBytes bytes, Bytes payload) override {
    const FrameHeader header = *ParseFrameHeader(bytes);
    const absl::string_view text(reinterpret_cast<char*>(payload.data),
                                 payload.size);
    if (header.type == FrameType::kHello) {
      answer_ = *handshake_.OnHello(text);
      Send(from, FrameType::kChallenge);
    } else if (header.type == FrameType::kProof) {
      EXPECT_THAT(handshake_.OnProof(text), IsOk());
      answer_.clear();
      Send(from, FrameType::kReady);
    }
  }
  void Send(EndpointId to, FrameType type) {
    const ConstBytes payload(answer_.data(), answer_.size());
    const FrameHeader header{
        .type = type, .payload_bytes = static_cast<uint32_t>(payload.size)};
    const FrameHeaderBytes bytes = SerializeFrame(header, payload);
    EXPECT_THAT(
        transport_->Send(to, {bytes.data(), bytes.size()}, payload, nullptr),
        IsOk());
  }

  HandshakeServer handshake_;
  std::string answer_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<TransportContext> transport_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace telegrad::testing
