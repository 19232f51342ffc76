#pragma once

#include <deque>
#include <map>
#include <memory>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/inproc/inbox.h"
#include "transport/transport.h"

namespace telegrad::inproc {

// One thread, except Wake.
class InprocContext : public TransportContext {
 public:
  InprocContext(const TransportOptions& options, TransportHandler* handler);
  ~InprocContext() override;

  TransportInfo info() const override;
  bool IsInMemory(EndpointId endpoint) const override {
    return endpoints_.contains(endpoint);
  }
  absl::StatusOr<std::string> Listen() override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  bool Progress(TimePoint deadline) override;
  void Wake() override { inbox_->Wake(); }

 private:
  // kClosing ends by kGoodbyeAck, kGone or its deadline.
  enum class State : uint8_t { kOpen, kClosing, kFailed };
  struct Endpoint {
    explicit Endpoint(std::pmr::memory_resource* memory) : sends(memory) {}
    State state = State::kOpen;
    std::shared_ptr<Inbox> peer;  // null: nobody listened there
    EndpointId peer_id = 0;       // 0: the listener has not answered yet
    std::shared_ptr<Link> link;
    std::deque<Event> unsent;  // until peer_id is known
    std::pmr::map<uint64_t, SendDone> sends;
    absl::Status why;
    TimePoint close_by;
  };

  Endpoint* Find(EndpointId id);
  void Post(EndpointId id, Endpoint& endpoint, Event event);
  void Fail(EndpointId id, absl::Status why);
  void Handle(Event& event);
  void HandleConnect(Event& event);
  void HandleMessage(Endpoint& endpoint, Event& event);
  void HandleSent(Endpoint& endpoint, const Event& event);
  void HandleExpired();
  void HandleFailed();
  TimePoint NextTimer() const;

  const size_t max_header_bytes_;
  TransportHandler* const handler_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::string address_;
  EndpointId next_id_ = 1;
  uint64_t next_token_ = 1;
  size_t num_events_ = 0;
  std::vector<Event> events_;  // events of one Progress; empty outside
  std::pmr::unsynchronized_pool_resource memory_;  // memory of `sends`
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  std::deque<EndpointId> failed_;
  std::deque<EndpointId> closing_;
};

}  // namespace telegrad::inproc
