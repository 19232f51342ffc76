#pragma once

#include "absl/status/status.h"
#include "transport/transport.h"

namespace telegrad {

// Whether MakeTransport takes such options, as far as that is known without a
// context. NotFound names the transports, or network devices, that there are;
// InvalidArgument: rails for one that takes none, numbers out of range, and
// what the transport refuses by itself.
absl::Status CheckTransport(const TransportOptions& options);

// CheckTransport for options whose transport is yet to be chosen, whatever the
// name says.
absl::Status CheckOpenTransport(TransportOptions options);

// InvalidArgument for one that seals what it carries and has no secret.
absl::Status CheckEncryption(const TransportOptions& options, bool has_secret);

// InvalidArgument for a transport that reaches contexts of its process only.
absl::Status CheckBetweenProcesses(absl::string_view name);

// ResourceExhausted where this process may not have the files open that the
// transport needs in a job of so many workers and servers; for one that says
// late that it could not open them.
absl::Status CheckFilesOfTransport(absl::string_view name, int num_members);

}  // namespace telegrad
