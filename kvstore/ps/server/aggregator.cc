#include "kvstore/ps/server/aggregator.h"

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

}  // namespace telegrad
