#include "kvstore/ps/server/aggregator.h"

#include "base/status_macros.h"

namespace telegrad {

void SendAgreed(const ChunkSum& sum, int worker, int32_t priority,
                size_t contributors, AnswerSink& sink) {
  RoundResult agreed;
  agreed.chunk.record.settings = sum.settings();
  agreed.chunk.record.agreed = sum.settings();
  sink.Send(sum.chunk(), sum.format(),
            {.worker = worker,
             .type = FrameType::kAgree,
             .step = sum.step(),
             .priority = priority,
             .result = agreed,
             .contributors = static_cast<uint16_t>(contributors)});
}

absl::Status ProposeOfAll(ChunkSum& sum, size_t num_workers, int worker,
                          const PushHeader& propose, AnswerSink& sink) {
  ASSIGN_OR_RETURN(const bool is_agreed,
                   sum.Propose(worker, propose.wish.scale));
  if (!is_agreed) return absl::OkStatus();
  for (size_t each = 0; each < num_workers; ++each) {
    SendAgreed(sum, static_cast<int>(each), propose.priority, num_workers,
               sink);
  }
  return absl::OkStatus();
}

}  // namespace telegrad
