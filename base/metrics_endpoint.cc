#include "base/metrics_endpoint.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/atomic_file.h"
#include "base/log.h"
#include "base/socket.h"
#include "base/start_thread.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr Duration kFilePeriod = std::chrono::seconds(10);
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

std::string Answer(absl::string_view status, absl::string_view body) {
  return absl::StrCat(
      "HTTP/1.1 ", status,
      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
      "\r\nContent-Length: ",
      body.size(), "\r\nConnection: close\r\n\r\n", body);
}

std::string AnswerTo(absl::string_view request, const Metrics& metrics) {
  const std::vector<absl::string_view> words = absl::StrSplit(
      request.substr(0, request.find("\r\n")), absl::MaxSplits(' ', 2));
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) {
    return Answer("400 Bad Request", "not a request\n");
  }
  if (words[0] != "GET") {
    return Answer("405 Method Not Allowed", "GET alone\n");
  }
  const absl::string_view path = words[1].substr(0, words[1].find('?'));
  if (path != "/metrics" && path != "/") {
    return Answer("404 Not Found", "/metrics\n");
  }
  return Answer("200 OK", metrics.Text());
}

// A connection; what was read of its request, then what is left to write.
struct Visitor {
  UniqueFd fd;
  TimePoint until;
  std::string request = {};
  std::string answer = {};
  size_t num_written = 0;
  bool has_answered = false;  // what still comes is not read for anything
  size_t num_drained = 0;
};

// Whether the connection goes on.
bool ReadRequest(Visitor& visitor, const Metrics& metrics) {
  char bytes[1024];
  const ssize_t count = recv(visitor.fd.get(), bytes, sizeof(bytes), 0);
  if (count <= 0) return count < 0 && (errno == EAGAIN || errno == EINTR);
  if (visitor.has_answered) {
    visitor.num_drained += static_cast<size_t>(count);
    return visitor.num_drained <= size_t{64} << 10;
  }
  visitor.request.append(bytes, static_cast<size_t>(count));
  if (visitor.request.find("\r\n\r\n") != std::string::npos) {
    visitor.answer = AnswerTo(visitor.request, metrics);
  } else if (visitor.request.size() > MetricsEndpoint::kMostBytes) {
    visitor.answer =
        Answer("431 Request Header Fields Too Large", "too large\n");
  }
  return true;
}

bool WriteAnswer(Visitor& visitor) {
  const ssize_t count =
      send(visitor.fd.get(), visitor.answer.data() + visitor.num_written,
           visitor.answer.size() - visitor.num_written, MSG_NOSIGNAL);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  visitor.num_written += static_cast<size_t>(count);
  if (visitor.num_written < visitor.answer.size()) return true;
  // A close with unread bytes would take the answer back.
  visitor.has_answered = true;
  return shutdown(visitor.fd.get(), SHUT_WR) == 0;
}

bool Serve(Visitor& visitor, short events, const Metrics& metrics) {
  if (events == 0) return true;
  if (!visitor.answer.empty() && !visitor.has_answered) {
    return WriteAnswer(visitor);
  }
  if (!ReadRequest(visitor, metrics)) return false;
  return visitor.answer.empty() || visitor.has_answered || WriteAnswer(visitor);
}

class EndpointThread : public MetricsEndpoint {
 public:
  EndpointThread(const Metrics& metrics, std::string file, UniqueFd listener,
                 std::string address)
      : metrics_(metrics),
        file_(std::move(file)),
        address_(std::move(address)),
        listener_(std::move(listener)),
        next_file_(Clock::now() + kFilePeriod),
        thread_(StartThread([this] { Run(); })) {}
  ~EndpointThread() override {
    is_stopping_ = true;
    wake_.Notify();
    thread_.join();
    WriteFile();
  }
  std::string address() const override { return address_; }

 private:
  void Run() {
    while (!is_stopping_) {
      const TimePoint now = Clock::now();
      if (!file_.empty() && now >= next_file_) {
        WriteFile();
        next_file_ = Clock::now() + kFilePeriod;
      }
      std::erase_if(visitors_, [now](const Visitor& visitor) {
        return visitor.until <= now;
      });
      PollOnce(now);
    }
  }

  void PollOnce(TimePoint now) {
    std::vector<pollfd> polled = {
        {.fd = wake_.fd(), .events = POLLIN, .revents = 0},
        {.fd = now < accept_after_ ? -1 : listener_.get(),
         .events = POLLIN,
         .revents = 0}};
    TimePoint until = now + std::chrono::seconds(1);
    if (!file_.empty()) until = std::min(until, next_file_);
    for (const Visitor& visitor : visitors_) {
      const bool writes = !visitor.answer.empty() && !visitor.has_answered;
      polled.push_back({.fd = visitor.fd.get(),
                        .events = static_cast<short>(writes ? POLLOUT : POLLIN),
                        .revents = 0});
      until = std::min(until, visitor.until);
    }
    if (poll(polled.data(), polled.size(), PollTimeoutMs(now, until)) <= 0) {
      return;
    }
    std::deque<Visitor> stay;
    for (size_t i = 0; i < visitors_.size(); ++i) {
      if (!Serve(visitors_[i], polled[i + 2].revents, metrics_)) continue;
      stay.push_back(std::move(visitors_[i]));
    }
    visitors_ = std::move(stay);
    if (polled[1].revents != 0) Accept();
  }

  void Accept() {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.is_open()) {  // others may have taken the last descriptors
      accept_after_ = Clock::now() + kAcceptPause;
      return;
    }
    if (visitors_.size() >= kMost) visitors_.pop_front();
    visitors_.push_back(
        {.fd = std::move(fd), .until = Clock::now() + kPatience});
  }

  void WriteFile() {
    if (file_.empty()) return;
    const absl::Status written =
        WriteFileAtomically(file_, metrics_.TextOfAll());
    if (!written.ok() && !std::exchange(has_complained_, true)) {
      LogWarning("--metrics-file: ", written.message());
    }
  }

  const Metrics& metrics_;
  const std::string file_;
  const std::string address_;
  const UniqueFd listener_;
  WakeEvent wake_;
  std::atomic<bool> is_stopping_{false};
  // The thread's.
  std::deque<Visitor> visitors_;  // the oldest first
  TimePoint accept_after_;
  TimePoint next_file_;
  bool has_complained_ = false;
  std::thread thread_;
};

absl::StatusOr<UniqueFd> Listen(const MetricsOutlet& outlet) {
  const int last =
      outlet.port == 0
          ? 0
          : std::min(outlet.port + MetricsOutlet::kPorts, 65536) - 1;
  absl::Status why;
  for (int port = outlet.port; port <= last; ++port) {
    ASSIGN_OR_RETURN(const SocketAddress address, ParseIp(outlet.ip, port));
    absl::StatusOr<UniqueFd> listener = ListenOn(address);
    if (!absl::IsAlreadyExists(listener.status())) return listener;
    why = listener.status();
  }
  return absl::AlreadyExistsError(absl::StrCat(
      "no port is free from ", outlet.port, " to ", last, ": ", why.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const Metrics& metrics, const MetricsOutlet& outlet) {
  if (outlet.port == MetricsOutlet::kNoPort && outlet.file.empty()) {
    return nullptr;
  }
  UniqueFd listener;
  std::string address;
  if (outlet.port != MetricsOutlet::kNoPort) {
    ASSIGN_OR_RETURN(listener, Listen(outlet));
    ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(listener.get()));
    address = ToString(bound);
  }
  if (!outlet.file.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(outlet.file, metrics.Text()));
  }
  return std::make_unique<EndpointThread>(
      metrics, outlet.file, std::move(listener), std::move(address));
}

}  // namespace telegrad
