#pragma once

#include <string>

#include "topology/planner/exchange.h"

namespace telegrad {

// How gradients of `step_bytes` are summed as they are, and why.
Aggregation DenseAggregation(const Estimate& estimate, double step_bytes,
                             std::string* why);

// How gradients are summed with a codec, where `dense` is how they are without:
// codes of constant width that add go round a ring like floats; others are
// summed where their shard lives.
Aggregation CodecAggregation(Aggregation dense, const CodecFigures& codec,
                             const CodecCost& cost);

}  // namespace telegrad
