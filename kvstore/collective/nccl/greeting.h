#pragma once

#include <nccl.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

// What ranks of an NCCL group tell each other, before their address, in the
// exchange of addresses: "nccl 22809 ID\n"; ID is NCCL's unique id in 256
// hexadecimal digits, of rank 0 only, "-" of all others.
namespace telegrad::collective {

// `id` is null on all ranks but 0.
std::string Greet(int version, const ncclUniqueId* id,
                  const std::string& address);

// Reduces the greeting of each rank to its address, and takes rank 0's id.
// FailedPrecondition (exit code 31) for ranks without NCCL or with another
// version, InvalidArgument for an id that is none; both name the rank.
absl::Status ReceiveGreetings(int version, std::vector<std::string>* texts,
                              ncclUniqueId* id);

}  // namespace telegrad::collective
