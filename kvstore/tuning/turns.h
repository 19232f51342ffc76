#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace telegrad {

// After which of `num_steps` local steps each tensor of a model begins its
// exchange, where `num_fragments` parts of the model take turns: 1 to
// num_steps. A fragment is neighbours, of about as many bytes as others, by
// their middles. A tensor that is larger stays whole, as its chunks agree on
// scales: it begins with the first fragment that it fills, and has time until
// the next tensor's.
std::vector<int64_t> TurnsOf(std::span<const uint64_t> sizes, int64_t num_steps,
                             int64_t num_fragments);

}  // namespace telegrad
