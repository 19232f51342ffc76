#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "transport/transport.h"

// What Send and receivers of OnHeader's answer refuse, in the words of all
// transports.
namespace telegrad {

inline absl::Status NotOpen(EndpointId to) {
  return absl::FailedPreconditionError(
      absl::StrCat("send: endpoint ", to, " is not open"));
}

// The largest header that a context made with `options` sends and takes.
inline size_t MaxHeaderBytes(const TransportOptions& options) {
  return kMaxHeaderBytes + options.prefix_bytes;
}

inline absl::Status CheckSizes(ConstBytes header, ConstBytes payload,
                               size_t max_header_bytes = kMaxHeaderBytes) {
  if (header.size <= max_header_bytes && payload.size <= kMaxPayloadBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "send: header ", header.size, " bytes, payload ", payload.size,
      " bytes; at most ", max_header_bytes, " and ", kMaxPayloadBytes));
}

inline absl::Status CheckOnHost(absl::string_view transport, Device device) {
  if (device.kind == DeviceKind::kCpu) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("transport ", transport, " takes host memory only"));
}

// What OnHeader gave for a payload; `takes_device`: its memory, if it is on
// one.
inline absl::Status CheckTarget(Bytes target, size_t payload_bytes,
                                bool takes_device = false) {
  const bool is_taken = target.device.kind == DeviceKind::kCpu || takes_device;
  if (target.size >= payload_bytes && is_taken) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("OnHeader gave ", target.size,
                                          " bytes for ", payload_bytes,
                                          ", or no host memory"));
}
// Checks an answer that may be an error, which stays.
inline void CheckTarget(absl::StatusOr<Bytes>& target, size_t payload_bytes,
                        bool takes_device = false) {
  if (!target.ok()) return;
  const absl::Status checked =
      CheckTarget(*target, payload_bytes, takes_device);
  if (!checked.ok()) target = checked;
}

}  // namespace telegrad
