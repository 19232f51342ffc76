#include "kvstore/ps/server/served_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/rows/row_codec.h"
#include "kvstore/engine/rows/rows.h"

namespace telegrad {

absl::StatusOr<ServedRows> ServedRows::Make(
    const Chunk& chunk, size_t row_elems,
    const std::optional<CodecSetting>& codec, int num_workers) {
  ServedRows made;
  made.chunk_ = chunk;
  if (row_elems == 0) return made;
  made.row_elems_ = row_elems;
  made.codec_ = codec;
  made.pulls_.resize(static_cast<size_t>(num_workers));
  made.most_pushed_ = MaxRowBytes(chunk, row_elems, true);
  if (codec.has_value()) {
    ASSIGN_OR_RETURN(made.most_pushed_,
                     MaxEncodedRowBytes(*codec, chunk, row_elems));
  }
  return made;
}

absl::Status ServedRows::CheckFrame(const FrameHeader& header,
                                    size_t most) const {
  if (header.payload_bytes >= 8 && header.payload_bytes <= most) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "rows of key ", header.key, " chunk ", header.chunk, " in ",
      header.payload_bytes, " bytes; ",
      row_elems_ == 0 ? "it has no rows" : absl::StrCat("at most ", most)));
}

absl::Status ServedRows::Admit(const FrameHeader& header,
                               PushHeader& push) const {
  RETURN_IF_ERROR(CheckFrame(header, most_pushed_));
  push.payload_bytes = 4 * chunk_.num_elems;
  if (!codec_.has_value()) return absl::OkStatus();
  const PayloadFormat own = FormatOfRows(*codec_);
  if (push.format != own) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of key ", header.key, " chunk ", header.chunk,
                     " by codec ", push.format.codec, " version ",
                     push.format.codec_version, "; this chunk takes codec ",
                     own.codec, " version ", own.codec_version));
  }
  ASSIGN_OR_RETURN(const Codec* const dense, FindCodec("none"));
  push.format = FormatOfRows({.codec = dense});
  return absl::OkStatus();
}

absl::Status ServedRows::Spread(ConstBytes payload, Bytes dense) const {
  Buffer rows;
  if (codec_.has_value()) {
    ASSIGN_OR_RETURN(rows, DecodeRows(*codec_, chunk_, row_elems_, payload));
    payload = rows.view();
  }
  return SpreadRows(chunk_, row_elems_, payload,
                    reinterpret_cast<float*>(dense.data));
}

absl::StatusOr<Bytes> ServedRows::BeginPull(int worker,
                                            const FrameHeader& header) {
  RETURN_IF_ERROR(CheckFrame(
      header, row_elems_ == 0 ? 0 : MaxRowBytes(chunk_, row_elems_, false)));
  Pull& pull = pulls_[static_cast<size_t>(worker)];
  if (pull.arriving.size() > 0 || pull.rows.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a second pull of rows of key ", header.key, " before the answer"));
  }
  ASSIGN_OR_RETURN(pull.arriving, Buffer::Create(header.payload_bytes));
  return pull.arriving.view();
}

absl::Status ServedRows::EndPull(int worker, ConstBytes payload) {
  Pull& pull = pulls_[static_cast<size_t>(worker)];
  ASSIGN_OR_RETURN(pull.rows, ReadRows(chunk_, row_elems_, payload));
  if (payload.size != 8 * (pull.rows->size() + 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(payload.size, " bytes for ", pull.rows->size(), " rows"));
  }
  pull.arriving = Buffer();
  return absl::OkStatus();
}

std::shared_ptr<Buffer> ServedRows::Collect(int worker, ConstBytes dense) {
  if (row_elems_ == 0) return nullptr;
  const std::optional<std::vector<uint64_t>> rows =
      std::exchange(pulls_[static_cast<size_t>(worker)].rows, std::nullopt);
  if (!rows.has_value() || dense.size != 4 * chunk_.num_elems) return nullptr;
  const RowRange range = RowsIn(chunk_, row_elems_, *rows);
  const auto floats = std::make_shared<Buffer>(4 * range.num_elems);
  CollectRows(chunk_, row_elems_, *rows,
              reinterpret_cast<const float*>(dense.data), floats->as<float>());
  return floats;
}

}  // namespace telegrad
