#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/ps/worker/server_links.h"
#include "kvstore/ticket_state.h"

namespace telegrad {

// What worker 0 tells or asks servers between rounds: one question at a time.
class ServerQuestions {
 public:
  static constexpr int kAllServers = -1;

  // Both outlive it. So long answers are waited for.
  ServerQuestions(ServerLinks& links, WorkerFailure& failure, Duration timeout)
      : links_(links), failure_(failure), timeout_(timeout) {}

  // Sends this to a server, or to all, until they have answered; what the last
  // one said. DeadlineExceeded ends the job.
  absl::StatusOr<Buffer> Ask(FrameHeader header, std::string text, int server);

  // The io thread's: answers, and the end of whoever waits for them.
  absl::StatusOr<Bytes> OnHeader(int server, const FrameHeader& header);
  void OnState(ConstBytes header_bytes, Bytes payload);
  void End(const absl::Status& why);

 private:
  struct Question {
    std::string text;
    FrameType answer_type = FrameType::kDeclared;
    Buffer answer;
    std::vector<bool> is_answered;  // by server
    size_t num_left = 0;
    std::shared_ptr<Ticket::State> ticket;
  };
  std::shared_ptr<Question> current() const {
    MutexLock lock(&mutex_);
    return current_;
  }

  ServerLinks& links_;
  WorkerFailure& failure_;
  const Duration timeout_;
  mutable Mutex mutex_;
  std::shared_ptr<Question> current_ ABSL_GUARDED_BY(mutex_);  // or the last
};

}  // namespace telegrad
