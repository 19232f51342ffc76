#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/fault/fault_spec.h"
#include "transport/fault/fault_transport.h"
#include "transport/transport.h"

namespace telegrad::fault {

// The owner of the inner context and its handler. One thread, except Wake.
class FaultContext : public TransportContext, private TransportHandler {
 public:
  FaultContext(const Spec& spec, size_t max_header_bytes,
               TransportHandler* handler)
      : spec_(spec), max_header_bytes_(max_header_bytes), handler_(handler) {}
  // Before anything else; `inner` was made with this context's handler().
  void SetInner(std::unique_ptr<TransportContext> inner) {
    inner_ = std::move(inner);
  }
  TransportHandler* handler() { return this; }

  TransportInfo info() const override;
  absl::StatusOr<std::string> Listen() override { return inner_->Listen(); }
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  absl::Status RegisterMemory(Bytes memory) override {
    return inner_->RegisterMemory(memory);
  }
  bool Progress(TimePoint deadline) override;
  void Wake() override;

 private:
  struct Message {
    TimePoint leaves = {};
    std::array<std::byte, kMaxCarriedBytes> header = {};
    size_t header_bytes = 0;
    ConstBytes payload = {};
    std::shared_ptr<std::vector<std::byte>> copy = nullptr;  // of a flipped one
    SendDone done = nullptr;
    bool is_twice = false;
  };
  struct Endpoint {
    uint64_t link = 0;
    uint64_t num_sent = 0;
    std::deque<Message> queue = {};
    std::deque<Message> held = {};  // at most one, to leave after the next
    bool is_closing = false;
    bool is_killed = false;
    TimePoint close_by = {};
  };
  struct Due {
    SendDone done;
    absl::Status status;
  };

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;

  void AddEndpoint(EndpointId id, bool is_accepted);
  bool Count(const Fate& fate, Fault fault);
  void Harm(Endpoint& endpoint, const Fate& fate, Message message);
  void Flip(uint64_t bit, Message* message);
  void Kill(EndpointId id, Endpoint& endpoint);
  void Enqueue(Endpoint& endpoint, Message message);
  void Release(EndpointId id, Endpoint& endpoint, TimePoint now);
  void Forward(EndpointId id, Message message);
  void Refuse(Endpoint& endpoint, const absl::Status& status);
  bool CallDue();
  // Sends what is due; returns when the next message is.
  TimePoint ReleaseDue();

  const Spec spec_;
  const size_t max_header_bytes_;
  TransportHandler* const handler_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  std::array<uint64_t, 2> num_links_ = {};  // connected, accepted
  std::array<uint64_t, kNumFaults> counts_ = {};
  std::deque<Due> due_;
  std::atomic<bool> is_woken_{false};
  // Last: it ends first, while what it borrows is still there.
  std::unique_ptr<TransportContext> inner_;
};

}  // namespace telegrad::fault
