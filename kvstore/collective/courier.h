#pragma once

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/collective/buffer_pool.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/message.h"
#include "transport/greeting.h"
#include "transport/transport.h"

namespace telegrad::collective {

// Messages between two ranks, from any thread and in any order, beside what a
// mesh does: a transport of its own, which a thread drives all the time. A rank
// connects to those that it sends to or waits for; a connection carries its
// maker's messages and the answers to them. All that goes is copied on both
// sides, so that a call may end at any time.
class Courier : public TransportHandler {
 public:
  static absl::StatusOr<std::unique_ptr<Courier>> Make(
      const GroupOptions& options);
  // Ends calls that wait, with Cancelled.
  ~Courier() override;

  const std::string& address() const { return address_; }
  // Once, with all ranks' addresses, before any call.
  void Start(std::vector<std::string> addresses);

  // Thread-safe.
  void set_timeout(Duration timeout);
  absl::Status Send(const void* data, size_t count, Dtype type, int to,
                    uint32_t tag);
  absl::StatusOr<int> Receive(void* data, size_t count, Dtype type, int from,
                              uint32_t tag);

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;

 private:
  // What a thread waits for, on its stack.
  struct Call {
    bool is_send = false;
    std::byte* data = nullptr;  // only read for a send
    size_t count = 0;
    Dtype type = Dtype::kFloat32;
    int peer = kAnyRank;
    uint32_t tag = 0;
    bool has_begun = false;
    uint64_t id = 0;  // the message's, among its sender's; 0: not yet known
    bool is_whole = false;  // it went, or came, with the first header
    size_t num_begun = 0;   // pieces
    size_t num_done = 0;
    TimePoint moved = {};
    bool is_done = false;
    absl::Status status = {};

    size_t bytes() const { return count * SizeOf(type); }
  };
  struct Message {
    Header header = {};
    size_t bytes = 0;
    Buffer payload = {};
  };
  struct Link {
    int peer = 0;
    bool is_ours = false;  // this rank has made it
    std::deque<Message> announced = {};
  };
  struct Peer {
    EndpointId ours = 0;  // 0: there is none
    EndpointId theirs = 0;
    absl::Status gone = {};  // why ours is
    TimePoint gone_at = {};
    size_t num_kept = 0;     // its messages among arrived_
    size_t num_untaken = 0;  // whole ones that it has not taken so far
  };
  struct Farewell {
    int peer = 0;
    bool is_ours = false;
    uint64_t id = 0;
    std::string text = {};
  };

  explicit Courier(const GroupOptions& options);
  absl::Status CheckPeer(int rank, bool may_be_any) const;
  absl::Status Await(Call& call);
  void Run();

  // With the lock, all of them.
  void Begin(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginReceive(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Reach(int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Say(EndpointId to, MessageKind kind, const Call& call, uint32_t index,
           ConstBytes payload, uint64_t sent_id = 0)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SayFarewell(const Farewell& farewell)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnSent(int peer, uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckMessage(const Link& link, const Header& header,
                            size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleAnswer(int peer, const Message& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(int peer, Message message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandlePiece(int peer, const Message& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(Call& call, Message message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Call* Find(bool is_send, int peer, uint64_t id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(Call& call, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsLost(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GroupOptions options_;
  std::string address_;
  std::vector<std::string> addresses_;  // by rank
  uint64_t digest_ = 0;                 // CRC-32C of all addresses, twice
  std::unique_ptr<TransportContext> context_;

  mutable Mutex mutex_;
  CondVar changed_;
  Duration timeout_ ABSL_GUARDED_BY(mutex_);
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  int num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::list<Call*> calls_ ABSL_GUARDED_BY(mutex_);  // in their order
  std::list<Message> arrived_ ABSL_GUARDED_BY(mutex_);
  std::vector<Farewell> farewells_ ABSL_GUARDED_BY(mutex_);
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::unordered_map<EndpointId, Link> links_ ABSL_GUARDED_BY(mutex_);
  Strangers<EndpointId> strangers_ ABSL_GUARDED_BY(mutex_);
  BufferPool pool_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace telegrad::collective
