#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/networks/network.h"

namespace telegrad {

// A NaN put into one gradient of one worker at one step, to try the policies
// for non-finite gradients: "nan:WORKER:TENSOR:INDEX:STEP"; or a worker that
// computes so much longer in each step: "slow:WORKER:MILLISECONDS". Empty for
// none.
struct Injection {
  int worker = -1;
  std::string tensor;
  size_t element = 0;
  int64_t step = -1;
  int delay_ms = 0;

  // To the gradient of tensor `index`.
  void Apply(int rank, int64_t at_step, const Network& network,
             size_t index) const;
  void Delay(int rank) const;
};

absl::StatusOr<Injection> ParseInjection(absl::string_view text);

}  // namespace telegrad
