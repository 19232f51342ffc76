#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "transport/transport.h"

// What Send and RegisterMemory refuse, in the words of all transports.
namespace telegrad {

inline absl::Status NotOpen(EndpointId to) {
  return absl::FailedPreconditionError(
      absl::StrCat("send: endpoint ", to, " is not open"));
}

// That a context made with `options` sends and takes.
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

}  // namespace telegrad
