#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

// Harms messages on purpose, as TransportOptions::fault says; for tests. The
// inner transport always sees well-formed messages. What each fault takes from
// the contract of TransportContext:
//   drop       a message whose `done` is OK is never heard
//   duplicate  a message is heard twice
//   reorder    two messages are heard in the wrong order
//   flip       one bit of header or payload is not what was sent
//   delay      nothing: this message and those behind it come later
//   kill       nothing: the endpoint ends with Unavailable, as any may
// Each sender harms what it sends. What happens to the n-th message of a link
// follows from (seed, link, n) alone, where links are counted per context and
// by who has connected; so a run can be repeated.
// Errors: InvalidArgument for a specification that is malformed.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeFaultTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler);

}  // namespace telegrad
