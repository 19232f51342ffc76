#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "transport/tcp/wire.h"

namespace telegrad::tcp {

// The record that one connection is receiving, made of bytes that come in
// pieces of any size: Take until kHead, then End it, or Begin its payload, End
// after kWhole. One thread.
class Incoming {
 public:
  enum class Event : uint8_t {
    kNone,   // more is to come
    kHello,  // the first of all, once
    kHead,   // a record is here, with its header
    kWhole,  // its payload is where it belongs
  };

  Incoming(bool is_local, size_t max_header_bytes)
      : is_local_(is_local), max_header_bytes_(max_header_bytes) {}

  // Takes from the beginning of `bytes`, up to the next event. InvalidArgument:
  // the peer says what it may not.
  absl::StatusOr<Event> Take(ConstBytes* bytes);

  // From kHead to End.
  const Record& record() const { return record_; }
  const std::byte* extra() const { return head_.data() + kRecordBytes; }
  ConstBytes header() const {  // the message's header
    const size_t place = record_.kind == Kind::kExposed ? kPlaceBytes : 0;
    return {extra() + place, record_.header_bytes - place};
  }
  Bytes payload() const {
    return {target_.data, record_.payload_bytes, target_.device};
  }

  void Begin(Bytes target) {
    target_ = target;
    num_received_ = 0;
    is_begun_ = true;
  }
  // Where what is left of a payload may be read to, if that is much; empty:
  // Take it. AddDirect what was read there.
  Bytes direct() const {
    constexpr size_t kDirectBytes = size_t{4} << 10;
    const size_t left = record_.payload_bytes - num_received_;
    if (!is_begun_ || left < kDirectBytes) return {};
    return {target_.data + num_received_, left};
  }
  bool has_greeted() const { return has_greeted_; }  // the peer
  Event AddDirect(size_t bytes) {
    num_received_ += bytes;
    return num_received_ == record_.payload_bytes ? Event::kWhole
                                                  : Event::kNone;
  }
  void End() {
    num_head_ = 0;
    is_begun_ = false;
  }

 private:
  const bool is_local_;
  const size_t max_header_bytes_;
  bool has_greeted_ = false;

  std::array<std::byte, kMaxHeadBytes> head_;
  size_t num_head_ = 0;  // bytes that have come
  Record record_ = {};   // valid from kRecordBytes on
  bool is_begun_ = false;
  Bytes target_ = {};
  size_t num_received_ = 0;  // bytes of the payload so far
};

}  // namespace telegrad::tcp
