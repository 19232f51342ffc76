#include "kvstore/job/control/fatal_exit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"
#include "base/start_thread.h"
#include "kvstore/job/control/scheduler.h"

namespace telegrad {
namespace {

// The signal that ends this process: what on_fatal and the signal's thread both
// must know.
std::atomic<int> ending_signal{0};

// Open MPI kills a second after it has sent SIGTERM.
constexpr auto kUntilToldToAll = std::chrono::milliseconds(600);

// Nobody may read standard error.
constexpr auto kUntilSaid = std::chrono::milliseconds(500);

constexpr int kEndingSignals[] = {SIGTERM, SIGINT, SIGHUP};

// Libraries have threads from before main, so signals are not blocked but
// handled, on whichever thread they come.
std::atomic<int> handler_pipe{-1};

void OnSignal(int number) {
  const int error = errno;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = write(handler_pipe, &byte, 1);
  errno = error;
}

// Signals that are ignored, as nohup does, stay so.
void Handle(void (*handler)(int)) {
  for (const int number : kEndingSignals) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
}

}  // namespace

void ExitFatally(FatalEvent event, const FatalListener& tell) {
  static std::atomic<bool> is_ending{false};
  if (is_ending.exchange(true)) {
    for (;;) pause();  // the first caller is ending the process
  }
  if (event.code == ExitCode::kCancelled && ending_signal != 0) {
    event.code = static_cast<ExitCode>(128 + ending_signal);
  }
  const std::string line = tell ? "" : FatalLine(event) + "\n";
  if (tell) tell(event);
  WriteWithin(STDERR_FILENO, line, kUntilSaid);
  _exit(static_cast<int>(event.code));
}

void ExitWithStatus(const absl::Status& status, NodeId self,
                    const FatalListener& tell, Scheduler* scheduler) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  FatalEvent event{.code = ExitCodeOf(status)};
  // Who has not joined may have no rank.
  event.self = self.rank < 0 ? RoleName(self.role) : ToString(self);
  event.message = std::string(status.message());
  event.epoch = EpochOf(status);
  if (scheduler != nullptr) scheduler->FailAndTell(event);
  ExitFatally(event, tell);
}

EndBySignal::EndBySignal(std::string self,
                         std::shared_ptr<Cancellation> cancellation)
    : self_(std::move(self)), cancellation_(std::move(cancellation)) {
  int fds[2] = {-1, -1};
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    LogWarning("signals end this process without a word: ",
               std::strerror(errno));
    return;
  }
  signals_ = UniqueFd(fds[0]);
  writing_ = UniqueFd(fds[1]);
  handler_pipe = fds[1];
  thread_ = StartThread([this] { Run(); });
  Handle(OnSignal);
}

EndBySignal::~EndBySignal() {
  if (!thread_.joinable()) return;
  Handle(SIG_DFL);
  stop_.Notify();
  thread_.join();
}

void EndBySignal::Run() {
  unsigned char number = 0;
  while (read(signals_.get(), &number, 1) != 1) {
    pollfd polled[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                       {.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
    poll(polled, 2, 1000);
    if (polled[1].revents != 0) return;
  }
  ending_signal = number;
  FatalEvent event{.code = ExitCode::kCancelled};
  event.message = absl::StrCat(self_, "@", OwnHostName(), ":", getpid(),
                               " was ended by SIG", sigabbrev_np(number));
  event.self = self_;
  cancellation_->Cancel(event);
  // The job's verdict, on_fatal's, comes first where there is a job: it names
  // a death that made the launcher send the signal.
  std::this_thread::sleep_for(kUntilToldToAll);
  ExitFatally(event);
}

}  // namespace telegrad
