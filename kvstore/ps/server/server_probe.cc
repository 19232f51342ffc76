#include "absl/strings/str_cat.h"
#include "kvstore/ps/server/server.h"

namespace telegrad {
namespace {

// Of one worker, without an answer that has left; a worker has four at once.
constexpr size_t kMaxProbes = 256;

}  // namespace

absl::StatusOr<Bytes> DistServer::BeginProbe(Session& session,
                                             const FrameHeader& header) {
  const uint32_t most = MaxProbeBytes(worker_sessions_.size(),
                                      control_->membership().servers.size());
  if (header.payload_bytes > most || header.step > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("probe of ", header.payload_bytes, " bytes that asks for ",
                     header.step, "; at most ", most));
  }
  if (*session.num_probes >= kMaxProbes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "probes beyond the ", kMaxProbes, " that were not answered yet"));
  }
  ++*session.num_probes;
  if (header.payload_bytes == 0) return Bytes();
  // Nobody reads what comes, so several may come at once.
  if (session.probe_buffer.size() == 0) session.probe_buffer = Buffer(most);
  return session.probe_buffer.view();
}

void DistServer::AnswerProbe(Session& session, const FrameHeader& probe) {
  if (echo_ == nullptr && probe.step > 0) {
    echo_ = std::make_shared<Buffer>(ProbePayload(MaxProbeBytes(
        worker_sessions_.size(), control_->membership().servers.size())));
  }
  const ConstBytes payload =
      probe.step == 0 ? ConstBytes() : ConstBytes(echo_->data(), probe.step);
  const FrameHeader header{
      .type = FrameType::kEcho,
      .epoch = epoch_,
      .payload_bytes = static_cast<uint32_t>(payload.size),
      .source = static_cast<uint16_t>(rank_),
      .destination = static_cast<uint16_t>(session.worker),
  };
  session.sender->Enqueue(
      {.header = SerializeFrame(header, payload),
       .payload = payload,
       .keep_alive = echo_,
       .priority = 0,
       .on_sent = [count = session.num_probes] { --*count; }});
}

}  // namespace telegrad
