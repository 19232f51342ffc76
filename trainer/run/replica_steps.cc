#include "trainer/run/replica_steps.h"

#include "base/status_macros.h"
#include "trainer/run/device_room.h"

namespace telegrad {

bool IsMuons(const Replica& replica, size_t index) {
  return replica.has_muon && replica.network->parameters()[index].is_hidden;
}

OptimizerKind KindOf(const Replica& replica, size_t index, OptimizerKind kind) {
  return IsMuons(replica, index) ? OptimizerKind::kNag : kind;
}

absl::Status MakeRooms(std::span<Replica> replicas, UpdateOn update_on,
                       OptimizerKind kind) {
  for (Replica& replica : replicas) {
    const auto& parameters = replica.network->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const size_t n = parameters[i].num_elements;
      if (update_on == UpdateOn::kWorker) {
        ASSIGN_OR_RETURN(
            replica.states.emplace_back(),
            MakeState(*replica.network, n, KindOf(replica, i, kind)));
        continue;
      }
      ASSIGN_OR_RETURN(replica.pulled.emplace_back(),
                       MakeRoom(*replica.network, 4 * n));
    }
  }
  return absl::OkStatus();
}

void StepTensor(Replica& replica, size_t index, const OptimizerConfig& config,
                const RateMultipliers& own) {
  const Parameter& parameter = replica.network->parameters()[index];
  OptimizerState& state = replica.states[index];
  if (!IsMuons(replica, index)) {
    StepOn(*replica.network, config, own, parameter.grad,
           parameter.num_elements, parameter.weight, state);
    return;
  }
  const SgdParameters& sgd = config.sgd;
  const float rate = sgd.learning_rate * own.lr;
  replica.network->StepByMuon(
      index,
      {.rescale = sgd.rescale,
       .momentum = sgd.momentum_rate,
       .rate = rate,
       .keep = static_cast<float>(1 - double{rate} * double{sgd.weight_decay} *
                                          double{own.wd})},
      reinterpret_cast<float*>(state.CountStep().data));
}

}  // namespace telegrad
