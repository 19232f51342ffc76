#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "kvstore/job/control/handshake.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/kvstore.h"
#include "kvstore/ps/wire/wire.h"
#include "tests/kvstore/cluster.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::testing {

// A server that lets one worker in and answers nothing, unless it is told to;
// its end is a death.
class FakeServer : private TransportHandler {
 public:
  static constexpr size_t kStateBytes = size_t{32} << 20;  // that it gives

  explicit FakeServer(const DistOptions& options, bool proves_itself = true)
      : proves_itself_(proves_itself),
        handshake_(options.secret, options.job_id, {Role::kServer, 0}) {
    TransportOptions transport = options.path.transport;
    transport.key = options.secret.ForConnections();
    transport_ = *MakeTransport(transport, this);
    JoinRequest request{.scheduler_address = options.scheduler_address,
                        .role = Role::kServer,
                        .wanted_rank = 0,
                        .facts = {{"resend", "off"}},
                        .job_id = options.job_id,
                        .secret = options.secret,
                        .timing = options.timing,
                        .on_fatal = nullptr};
    thread_ = std::thread([this, request, options] { Run(request, options); });
  }
  // Waits until a frame of `type` has come.
  void AwaitFrame(FrameType type) {
    const TimePoint deadline = Soon();
    MutexLock lock(&mutex_);
    while (last_ != type) {
      ASSERT_LT(Clock::now(), deadline);
      changed_.WaitUntil(&mutex_, deadline);
    }
  }
  // From now on takes a push only once it may: until then its payload stays
  // where the worker has it.
  void HoldPushes() { may_take_pushes_ = false; }
  void TakePushes() { may_take_pushes_ = true; }
  bool holds_push() const { return holds_push_; }
  ~FakeServer() override {
    is_stopping_ = true;  // seen soon; the thread ends the transport
    thread_.join();
  }

 private:
  void Run(const JoinRequest& request, const DistOptions& options) {
    auto control = Job::Join(request);
    EXPECT_THAT(control, IsOk());
    EXPECT_THAT(AgreeOnPath(**control, options.path, options.secret, Soon()),
                IsOk());
    EXPECT_THAT(PostAddress(**control, *transport_->Listen()), IsOk());
    epoch_ = (*control)->membership().epoch;
    while (!is_stopping_) {
      transport_->Progress(Clock::now() + std::chrono::milliseconds(50));
    }
    transport_.reset();
  }

  void OnAccept(EndpointId) override {}
  void OnClosed(EndpointId, const absl::Status&) override {}
  absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes bytes,
                                 size_t payload_bytes) override {
    if (ParseFrameHeader(bytes)->type == FrameType::kPush) {
      while (!may_take_pushes_ && !is_stopping_) {
        holds_push_ = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    buffers_.emplace_back(payload_bytes);
    return buffers_.back().view();
  }
  void OnMessage(EndpointId from, ConstBytes bytes, Bytes payload) override {
    const FrameHeader header = *ParseFrameHeader(bytes);
    {
      MutexLock lock(&mutex_);
      last_ = header.type;
      changed_.NotifyAll();
    }
    const absl::string_view text(reinterpret_cast<char*>(payload.data),
                                 payload.size);
    if (header.type == FrameType::kHello && !proves_itself_) {
      Send(from, FrameType::kReady, {});
    } else if (header.type == FrameType::kHello) {
      answer_ = *handshake_.OnHello(text);
      Send(from, FrameType::kChallenge, {answer_.data(), answer_.size()});
    } else if (header.type == FrameType::kProof) {
      EXPECT_THAT(handshake_.OnProof(text), IsOk());
      Send(from, FrameType::kReady, {});
    } else if (header.type == FrameType::kDeclare) {
      Send(from, FrameType::kDeclared, {});
    } else if (header.type == FrameType::kAskState) {
      Send(from, FrameType::kState, zeros_.view());
    }
  }
  void Send(EndpointId to, FrameType type, ConstBytes payload) {
    const FrameHeader header{
        .type = type,
        .epoch = epoch_,
        .payload_bytes = static_cast<uint32_t>(payload.size)};
    const FrameHeaderBytes bytes = SerializeFrame(header, payload);
    EXPECT_THAT(
        transport_->Send(to, {bytes.data(), bytes.size()}, payload, nullptr),
        IsOk());
  }

  const bool proves_itself_;
  HandshakeServer handshake_;
  std::string answer_;
  uint64_t epoch_ = 0;
  Mutex mutex_;
  CondVar changed_;
  FrameType last_ ABSL_GUARDED_BY(mutex_) = FrameType::kHello;
  const Buffer zeros_{kStateBytes};
  std::vector<Buffer> buffers_;
  std::unique_ptr<TransportContext> transport_;
  std::atomic<bool> may_take_pushes_{true};
  std::atomic<bool> holds_push_{false};
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace telegrad::testing
