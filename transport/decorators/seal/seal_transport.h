#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

// Seals each message by keys of its connection, as options.encryption asks, so
// that nobody on the path can alter, repeat, reorder or add one, or, with kOn,
// read it: OnClosed says DataLoss, and the handler hears nothing of it. Peers
// in the memory of this machine need none. Header and payload have a tag each,
// as the header is judged before the payload has come. Each endpoint begins
// with an exchange of keys (greeting.h); what is sent before its end waits.
// Needs options.key, and transports that keep the order. Both ends have it.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeSealTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler);

}  // namespace telegrad
