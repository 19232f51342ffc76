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

inline absl::Status CheckSizes(ConstBytes header, ConstBytes payload) {
  if (header.size <= kMaxHeaderBytes && payload.size <= kMaxPayloadBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "send: header ", header.size, " bytes, payload ", payload.size,
      " bytes; at most ", kMaxHeaderBytes, " and ", kMaxPayloadBytes));
}

inline absl::Status CheckOnHost(absl::string_view transport, Device device) {
  if (device.kind == DeviceKind::kCpu) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("transport ", transport, " takes host memory only"));
}

}  // namespace telegrad
