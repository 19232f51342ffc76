#pragma once

#include <string>

#include "base/crc32c.h"
#include "tests/transport/transport_node.h"
#include "transport/decorators/resend/wire.h"
#include "transport/transport.h"

// For a peer that numbers, answers and harms each message by itself.
namespace telegrad::testing {

// Takes headers as long as those below.
inline TransportOptions BareResendOptions() {
  TransportOptions options;
  options.name = "inproc";
  options.prefix_bytes = resend::kPrefixBytes;
  return options;
}

inline std::string Framed(const resend::Prefix& prefix,
                          const std::string& header = "") {
  std::string text(resend::kPrefixBytes, '\0');
  PackPrefix(prefix, {header.data(), header.size()},
             reinterpret_cast<std::byte*>(text.data()));
  return text + header;
}

// The header of a message with that payload.
inline std::string FramedMessage(uint32_t sequence, const std::string& header,
                                 const std::string& payload) {
  return Framed({.kind = resend::Kind::kMessage,
                 .sequence = sequence,
                 .body = Crc32c(payload.data(), payload.size())},
                header);
}

inline resend::Prefix PrefixOf(const Heard& heard) {
  const auto prefix = resend::ParsePrefix(
      {heard.header.data(), heard.header.size()}, heard.payload.size());
  return prefix.ok() ? *prefix : resend::Prefix{};
}

}  // namespace telegrad::testing
