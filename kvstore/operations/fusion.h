#pragma once

#include <cstddef>
#include <vector>

#include "kvstore/operations/negotiation.h"

namespace telegrad::operations {

// What is run as one: allreduces of one type, op and process set, allgathers of
// a process set, or one operation of another kind. `due` has no errors. They
// share a batch up to `fusion_bytes`, and all of a group that are alike do,
// however large. The same on all ranks that have the same part of `due`.
std::vector<std::vector<Response>> Fuse(std::vector<Response> due,
                                        size_t fusion_bytes);

}  // namespace telegrad::operations
