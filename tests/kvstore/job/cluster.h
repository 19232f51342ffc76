#pragma once

#include <poll.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/socket.h"
#include "kvstore/job/control/frame_connection.h"
#include "kvstore/job/control/handshake.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/control/record.h"
#include "kvstore/job/control/scheduler.h"

namespace telegrad::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{20};  // far above what any step takes

inline ControlTiming FastTiming() {
  return {.join = seconds(20),
          .heartbeat = milliseconds(50),
          .dead = seconds(2),  // threads of a busy machine stand still
          .teardown = milliseconds(500)};
}

inline SchedulerOptions LocalJob(int num_workers, int num_servers) {
  SchedulerOptions options;
  options.num_workers = num_workers;
  options.num_servers = num_servers;
  options.timing = FastTiming();
  return options;
}

inline JoinRequest MemberOf(const Scheduler& scheduler, Role role,
                            int wanted_rank = -1) {
  JoinRequest request;
  request.scheduler_address = scheduler.address();
  request.role = role;
  request.wanted_rank = wanted_rank;
  request.timing = FastTiming();
  return request;
}

using Joined = absl::StatusOr<std::unique_ptr<Job>>;

inline std::future<Joined> JoinAsync(JoinRequest request) {
  return std::async(std::launch::async,
                    [request] { return Job::Join(request); });
}

// Collects what on_fatal was told.
class FatalLog {
 public:
  void Attach(JoinRequest* request) {
    request->on_fatal = [this](const FatalEvent& event) {
      MutexLock lock(&mutex_);
      events_.push_back(event);
      changed_.NotifyAll();
    };
  }
  // Nullopt when fewer came in time.
  std::optional<std::vector<FatalEvent>> Await(size_t count) {
    const TimePoint deadline = Clock::now() + kPatience;
    MutexLock lock(&mutex_);
    while (events_.size() < count) {
      if (!changed_.WaitUntil(&mutex_, deadline) && events_.size() < count) {
        return std::nullopt;
      }
    }
    return events_;
  }
  size_t size() {
    MutexLock lock(&mutex_);
    return events_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<FatalEvent> events_ ABSL_GUARDED_BY(mutex_);
};

// A member made by hand: speaks only when told to.
class RawMember {
 public:
  static std::unique_ptr<RawMember> Connect(const std::string& address) {
    const auto where = ParseHostPort(address);
    const auto resolved = Resolve(where->host, where->port);
    auto fd = BeginConnect(resolved->front());
    if (!fd.ok()) return nullptr;
    pollfd polled{.fd = fd->get(), .events = POLLOUT, .revents = 0};
    poll(&polled, 1, 20000);
    return std::make_unique<RawMember>(*std::move(fd));
  }
  explicit RawMember(UniqueFd fd) : frames_(std::move(fd)) {}

  void Send(absl::string_view body) { frames_.Send(MakeFrame(body)); }
  void SendRaw(const std::string& bytes) {
    [[maybe_unused]] ssize_t sent =
        send(frames_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // Nullopt at the end of the connection.
  std::optional<std::string> NextFrame() {
    const TimePoint deadline = Clock::now() + kPatience;
    while (Clock::now() < deadline) {
      const absl::Status read = frames_.Read();
      auto frame = frames_.Next(kMaxRecordBytes);
      if (!frame.ok()) return std::nullopt;
      if (frame->has_value()) return *frame;
      if (!read.ok()) return std::nullopt;
      pollfd polled{.fd = frames_.fd(), .events = POLLIN, .revents = 0};
      poll(&polled, 1, 100);
    }
    return std::nullopt;
  }

  // The next record of type T, others being dropped.
  template <typename T>
  std::optional<T> NextOf() {
    while (std::optional<std::string> frame = NextFrame()) {
      const auto record = DecodeRecord(*frame);
      if (record.ok() && std::holds_alternative<T>(*record)) {
        return std::get<T>(*record);
      }
    }
    return std::nullopt;
  }

  bool Authenticate(NodeId self, const Secret& secret = {}) {
    HandshakeClient handshake(secret, "local", {.node = self, .epoch = 0});
    Send(handshake.Hello());
    const auto challenge = NextFrame();
    if (!challenge.has_value()) return false;
    const auto proof = handshake.OnChallenge(*challenge);
    if (!proof.ok()) return false;
    Send(*proof);
    return NextOf<WelcomeRecord>().has_value();
  }
  bool Join(NodeId self) {
    if (!Authenticate(self)) return false;
    JoinRecord join;
    join.wanted = self;
    join.host = "rawhost";
    join.pid = 4242;
    Send(EncodeRecord(join));
    return true;
  }

 private:
  FrameConnection frames_;
};

}  // namespace telegrad::testing
