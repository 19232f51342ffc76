#include "kvstore/ps/worker/server_questions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr int kUrgent = INT32_MAX;

}  // namespace

absl::StatusOr<Buffer> ServerQuestions::Ask(FrameHeader header,
                                            std::string text, int server) {
  if (text.size() > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", text.size(), " bytes to servers, at most ",
        kMaxPayloadBytes, ": fewer tensors in one Init, or smaller chunks"));
  }
  auto question = std::make_shared<Question>();
  question->text = std::move(text);
  if (header.type == FrameType::kAskState) {
    question->answer_type = FrameType::kState;
  }
  question->is_answered.resize(links_.size(), server != kAllServers);
  question->num_left = server == kAllServers ? links_.size() : 1;
  if (server != kAllServers) {
    question->is_answered[static_cast<size_t>(server)] = false;
  }
  question->ticket = std::make_shared<Ticket::State>();
  question->ticket->describe = [] {
    return std::string("a server did not answer between rounds");
  };
  {
    MutexLock lock(&mutex_);
    if (failure_.is_set()) return failure_.status();  // nobody would end it
    current_ = question;
  }
  header.payload_bytes = static_cast<uint32_t>(question->text.size());
  links_.Post([this, question, header] {
    const ConstBytes payload(question->text.data(), question->text.size());
    for (size_t i = 0; i < links_.size(); ++i) {
      if (question->is_answered[i]) continue;
      const int to = static_cast<int>(i);
      links_.Send(
          to, {.header = SerializeFrame(links_.Addressed(to, header), payload),
               .payload = payload,
               .keep_alive = question,
               .priority = kUrgent});
    }
  });
  absl::Status status = Ticket(question->ticket).Wait(Clock::now() + timeout_);
  if (absl::IsDeadlineExceeded(status)) {
    // What still comes would be taken for the next answer.
    status = WithExitCode(ExitCode::kTimeout, status);
    failure_.FailJob(status);
  }
  RETURN_IF_ERROR(status);
  return std::move(question->answer);
}

// Without a payload that is all; else OnState ends it.
absl::StatusOr<Bytes> ServerQuestions::OnHeader(int server,
                                                const FrameHeader& header) {
  const std::shared_ptr<Question> question = current();
  const auto index = static_cast<size_t>(server);
  const bool has_payload = header.type == FrameType::kState;
  if (question == nullptr || question->is_answered[index] ||
      header.type != question->answer_type ||
      has_payload != (header.payload_bytes > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "answer of type ", static_cast<int>(header.type), ", ",
        header.payload_bytes, " bytes: nothing of the kind was asked for"));
  }
  question->is_answered[index] = true;
  if (has_payload) {
    ASSIGN_OR_RETURN(question->answer, Buffer::Create(header.payload_bytes));
    return question->answer.view();
  }
  if (--question->num_left == 0) question->ticket->Finish(absl::OkStatus());
  return Bytes();
}

void ServerQuestions::OnState(ConstBytes header_bytes, Bytes payload) {
  current()->ticket->Finish(CheckFramePayload(header_bytes, payload));
}

void ServerQuestions::End(const absl::Status& why) {
  if (const auto question = current()) question->ticket->Finish(why);
}

}  // namespace telegrad
