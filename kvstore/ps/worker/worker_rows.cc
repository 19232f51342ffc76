#include "kvstore/ps/worker/worker_rows.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kvstore/engine/rows/row_codec.h"
#include "kvstore/engine/rows/rows.h"

namespace telegrad {

absl::Status WorkerRows::Take(ChunkPipeline& pipeline, WorkerTensor& tensor,
                              const TensorView& view, WorkerOp& op) {
  const TensorSpec& spec = tensor.spec();
  op.rows = std::make_shared<WorkerRows>();
  WorkerRows& rows = *op.rows;
  rows.given_.assign(view.rows->begin(), view.rows->end());
  rows.sorted_ = SortedRows(rows.given_);
  rows.payloads_.resize(tensor.chunks.size());
  if (op.kind != OpKind::kPush) {
    rows.values_ = Buffer(4 * spec.row_elems * rows.sorted_.size());
    return absl::OkStatus();
  }
  rows.values_ = AddRows(spec, view, rows.sorted_);
  return rows.CheckFinite(pipeline, spec);
}

absl::Status WorkerRows::CheckFinite(ChunkPipeline& pipeline,
                                     const TensorSpec& spec) {
  const NonFinitePolicy policy = pipeline.engine().compression.nonfinite;
  if (policy == NonFinitePolicy::kPropagate) return absl::OkStatus();
  float* const values = values_.as<float>();
  const size_t count = spec.row_elems * sorted_.size();
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) continue;
    if (policy == NonFinitePolicy::kZero) {
      values[i] = 0;
      pipeline.CountNonFinite(1);
      continue;
    }
    const absl::Status status =
        WithExitCode(ExitCode::kNumericFault,
                     absl::DataLossError(absl::StrCat(
                         ToString(pipeline.group().id()), ": gradient of ",
                         spec.name, " holds NaN or infinity, the first in row ",
                         sorted_[i / spec.row_elems])));
    pipeline.failure().FailJob(status);
    return status;
  }
  return absl::OkStatus();
}

void WorkerRows::Send(ChunkPipeline& pipeline, WorkerChunk& chunk,
                      FrameType type, Buffer rows) {
  Buffer& payload = payloads_[chunk.plan().index];
  payload = std::move(rows);
  chunk.memory = {};
  pipeline.SendFrame(chunk, type, payload.view(), ChunkPhase::kSent);
}

void WorkerRows::Push(ChunkPipeline& pipeline, WorkerChunk& chunk) {
  // Without any row it is a push all the same.
  static constexpr float kNone = 0;
  Buffer rows = PackRows(chunk.plan(), chunk.tensor->spec().row_elems, sorted_,
                         sorted_.empty() ? &kNone : values_.as<float>());
  if (chunk.tensor->codec->row_codec().has_value()) {
    absl::StatusOr<Buffer> encoded = Encode(pipeline, chunk, std::move(rows));
    if (!encoded.ok()) return pipeline.failure().FailJob(encoded.status());
    rows = *std::move(encoded);
  }
  Send(pipeline, chunk, FrameType::kPushRows, std::move(rows));
}

absl::StatusOr<Buffer> WorkerRows::Encode(ChunkPipeline& pipeline,
                                          const WorkerChunk& chunk,
                                          Buffer rows) const {
  const TensorCodec& tensor = *chunk.tensor->codec;
  return EncodeRows(
      *tensor.row_codec(), chunk.plan(), tensor.spec().row_elems, rows.view(),
      ParamsOfRows(pipeline.engine().compression, chunk.plan(), chunk.op->step,
                   static_cast<uint64_t>(pipeline.group().rank())));
}

size_t WorkerRows::RawBytes(const WorkerChunk& chunk) const {
  const RowRange range =
      RowsIn(chunk.plan(), chunk.tensor->spec().row_elems, sorted_);
  return RowIdBytes(range.end - range.begin) + 4 * range.num_elems;
}

void WorkerRows::Pull(ChunkPipeline& pipeline, WorkerTensor& tensor) {
  const size_t row_elems = tensor.spec().row_elems;
  for (auto& chunk : tensor.chunks) {
    const RowRange range = RowsIn(chunk->plan(), row_elems, sorted_);
    if (range.begin == range.end) {
      pipeline.FinishChunk(*chunk);
    } else {
      Send(pipeline, *chunk, FrameType::kPullRows,
           PackRows(chunk->plan(), row_elems, sorted_, nullptr));
    }
  }
}

absl::StatusOr<Bytes> WorkerRows::Target(int contributors, WorkerChunk& chunk,
                                         const FrameHeader& header,
                                         const ReplyRecord& reply) const {
  const RowRange range =
      RowsIn(chunk.plan(), chunk.tensor->spec().row_elems, sorted_);
  if (header.payload_bytes != 4 * range.num_elems ||
      reply.format != ReplyFormat::kDense ||
      header.contributors != contributors) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", header.key, " chunk ", header.chunk, ": answer of ",
        header.payload_bytes, " bytes, ", header.contributors,
        " contributors, to a pull of rows with ", 4 * range.num_elems));
  }
  ASSIGN_OR_RETURN(Buffer value, Buffer::Create(header.payload_bytes));
  chunk.answer = header.type;
  chunk.record = reply;
  chunk.value = std::make_shared<Buffer>(std::move(value));
  chunk.reply_payload = chunk.value->view();
  return chunk.value->view();
}

void WorkerRows::Place(const WorkerChunk& chunk) {
  PlaceRows(chunk.plan(), chunk.tensor->spec().row_elems, sorted_,
            chunk.value->as<float>(), values_.as<float>());
}

void WorkerRows::Give(const WorkerTensor& tensor, WorkerOp& op) const {
  const BorrowedMemory::Use use = op.memory.Begin();
  GiveRows(tensor.spec(), sorted_, values_.as<float>(),
           {.bytes = use.out, .rows = given_});
  op.memory.End(use.is_borrowed);
}

}  // namespace telegrad
