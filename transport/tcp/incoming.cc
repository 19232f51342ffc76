#include "transport/tcp/incoming.h"

#include <algorithm>

#include "absl/status/status.h"
#include "base/status_macros.h"

namespace telegrad::tcp {

absl::StatusOr<Incoming::Event> Incoming::Take(ConstBytes* bytes) {
  const auto take = [bytes](std::byte* to, size_t most) {
    const size_t taken = std::min(bytes->size, most);
    std::copy_n(bytes->data, taken, to);
    *bytes = {bytes->data + taken, bytes->size - taken};
    return taken;
  };
  if (is_begun_) {
    return AddDirect(take(target_.data + num_received_,
                          record_.payload_bytes - num_received_));
  }
  // The record first, then the header, whose size it tells.
  const bool is_record = num_head_ < kRecordBytes;
  const size_t due = kRecordBytes + (is_record ? 0 : record_.header_bytes);
  num_head_ += take(head_.data() + num_head_, due - num_head_);
  if (num_head_ < due) return Event::kNone;
  if (!is_record) return Event::kHead;
  if (!has_greeted_) {
    if (!IsHello(head_.data())) {
      return absl::InvalidArgumentError("no hello of this version");
    }
    has_greeted_ = true;
    num_head_ = 0;
    return Event::kHello;
  }
  ASSIGN_OR_RETURN(record_,
                   ParseRecord(head_.data(), is_local_, max_header_bytes_));
  return record_.header_bytes == 0 ? Event::kHead : Event::kNone;
}

}  // namespace telegrad::tcp
