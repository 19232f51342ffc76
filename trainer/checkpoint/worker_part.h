#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/kvstore.h"
#include "trainer/checkpoint/checkpoint_part.h"
#include "trainer/run/gradient_exchange.h"
#include "trainer/run/local_steps.h"

namespace telegrad {

class Resharding;

// The fields of a worker's part behind its cursor, in the order of
// docs/checkpoints.md.
struct WorkerPart {
  KVStore& store;
  std::span<Replica> replicas;
  LocalSteps* alone = nullptr;  // for --local-steps; else null
  OptimizerKind kind = OptimizerKind::kSgd;
};

// `optimizer` is what StateAccess::Save gave; empty: none. While the store is
// idle.
absl::Status WritePart(const WorkerPart& part, absl::string_view optimizer,
                       PartWriter& writer);

// Before the store has tensors: weights, buffers and the optimizer's states,
// with a look at whether the rest is there.
absl::Status ReadTensors(const WorkerPart& part, PartReader& reader);
// Afterwards: all of it, of a run with other numbers by way of `resharding`,
// else null. Returns what StateAccess::Load shall get. After an error the store
// is of no use.
absl::StatusOr<std::string> ReadAll(const WorkerPart& part, PartReader& reader,
                                    Resharding* resharding);
// What codecs keep of a tensor, of a part that is read for nothing else.
absl::StatusOr<std::string> ReadCodec(const Parameter& parameter,
                                      PartReader& reader);

}  // namespace telegrad
