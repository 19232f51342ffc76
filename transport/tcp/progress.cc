#include "transport/tcp/progress.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>

#include "transport/tcp/tcp_context.h"

// Working off events: poll, then sleep.
namespace telegrad::tcp {
namespace {

// Of so few, each is asked, which is faster than to ask which one to ask.
constexpr size_t kFewConnections = 4;
constexpr unsigned kPollsPerSocketPoll = 16;

bool HasWork(const Connection& connection) {
  if (connection.state == State::kFailed || connection.has_ended) return false;
  return connection.is_readable ||
         (connection.is_writable && !connection.queue.empty());
}

}  // namespace

void TcpContext::Activate(Connection& connection) {
  if (connection.is_active) return;
  connection.is_active = true;
  active_.push_back(connection.id);
}

void TcpContext::PollSockets() {
  poller_.Poll([this](uint64_t key, uint32_t events) {
    if (key == kListenerKey) {
      for (Acceptor& acceptor : acceptors_) Accept(acceptor);
      return;
    }
    if (key == kSameHostKey) return Accept(same_host_);
    const auto id = static_cast<EndpointId>(key - kFirstConnectionKey);
    if (Connection* connection = connections_.Find(id))
      HandleSocket(*connection, events);
  });
}

void TcpContext::HandleSocket(Connection& connection, uint32_t events) {
  if (connection.is_connecting) {
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return;
    const absl::Status connected = ConnectResult(connection.socket.get());
    if (!connected.ok()) {
      return Fail(connection, absl::UnavailableError(connected.message()));
    }
    connection.is_connecting = false;
    if (!connection.is_local) ChooseCongestion(connection);
  }
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    connection.is_ending = connection.is_readable = true;
  }
  if ((events & EPOLLIN) != 0) connection.is_readable = true;
  if ((events & EPOLLOUT) != 0) connection.is_writable = true;
  if (HasWork(connection)) Activate(connection);
}

void TcpContext::Work(bool reads) {
  working_.swap(active_);
  for (const EndpointId id : working_) {
    Connection* const connection = connections_.Find(id);
    if (connection == nullptr) continue;
    connection->is_active = false;
    Write(*connection);
    if (reads) Read(*connection);
    if (HasWork(*connection)) Activate(*connection);
  }
  working_.clear();
}

// What handlers and `done` have sent goes before this returns.
bool TcpContext::HandleEvents(bool is_complete) {
  is_progressing_ = true;
  num_events_ = num_moved_ = 0;
  if (is_complete || connections_.size() > kFewConnections ||
      ++num_polls_ % kPollsPerSocketPoll == 0) {
    PollSockets();
  } else {
    for (const auto& [id, connection] : connections_.all()) {
      if (connection->is_connecting || connection->has_ended) continue;
      connection->is_readable = true;
      Activate(*connection);
    }
  }
  Work(/*reads=*/true);
  CallDone();
  if (!active_.empty()) Work(/*reads=*/false);
  CallDone();
  AdvanceClosing();
  is_progressing_ = false;
  return num_events_ > 0;
}

bool TcpContext::Progress(TimePoint deadline) {
  TimePoint now = Clock::now();
  TimePoint poll_until = now + options_.poll;
  bool has_slept = false;
  while (true) {
    if (HandleEvents(/*is_complete=*/has_slept || now >= deadline)) return true;
    if (poller_.TakeWake()) return false;
    if (now >= deadline) return false;
    // Whoever else wants this core computes what we wait for.
    if (num_moved_ == 0) sched_yield();
    now = Clock::now();
    if (num_moved_ > 0) poll_until = now + options_.poll;  // parts of messages
    has_slept = now >= poll_until && active_.empty() && done_.empty();
    if (has_slept) {
      poller_.Sleep(std::min(deadline, connections_.NextTimer()));
      now = Clock::now();
    }
  }
}

}  // namespace telegrad::tcp
