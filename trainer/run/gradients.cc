#include "trainer/run/gradients.h"

#include "kernels/device_scope.h"
#include "trainer/run/device_room.h"

namespace telegrad {

void WeighGradient(const Replica& replica, size_t index, int batch_size) {
  if (replica.batch_size == batch_size) return;
  const Network& network = *replica.network;
  const Parameter& parameter = network.parameters()[index];
  const size_t n = parameter.num_elements;
  const kernels::DeviceScope scope(network.device());
  KernelsOf(network.device())
      .scale_f32(static_cast<float>(replica.batch_size) /
                     static_cast<float>(batch_size),
                 n, Reached(network, parameter.grad, n), network.stream());
}

}  // namespace telegrad
