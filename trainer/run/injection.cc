#include "trainer/run/injection.h"

#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/device_scope.h"
#include "trainer/run/device_room.h"

namespace telegrad {

void Injection::Apply(int rank, int64_t at_step, const Network& network,
                      size_t index) const {
  const Parameter& parameter = network.parameters()[index];
  if (at_step != step || rank != worker || parameter.name != tensor ||
      element >= parameter.num_elements) {
    return;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const kernels::DeviceScope scope(network.device());
  KernelsOf(network.device())
      .put(&nan, sizeof(nan), Reached(network, parameter.grad + element, 1),
           network.stream());
}

void Injection::Delay(int rank) const {
  if (delay_ms == 0 || rank != worker) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
}

absl::StatusOr<Injection> ParseInjection(absl::string_view text) {
  Injection injection;
  if (text.empty()) return injection;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() == 3 && parts[0] == "slow" &&
      absl::SimpleAtoi(parts[1], &injection.worker) &&
      absl::SimpleAtoi(parts[2], &injection.delay_ms) &&
      injection.delay_ms > 0) {
    return injection;
  }
  if (parts.size() != 5 || parts[0] != "nan" ||
      !absl::SimpleAtoi(parts[1], &injection.worker) ||
      !absl::SimpleAtoi(parts[3], &injection.element) ||
      !absl::SimpleAtoi(parts[4], &injection.step)) {
    return absl::InvalidArgumentError(
        "--inject takes nan:WORKER:TENSOR:INDEX:STEP or "
        "slow:WORKER:MILLISECONDS");
  }
  injection.tensor = std::string(parts[2]);
  return injection;
}

}  // namespace telegrad
