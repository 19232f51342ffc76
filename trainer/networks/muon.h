#pragma once

#include <torch/torch.h>

#include "trainer/networks/network.h"

namespace telegrad {

// As Network::StepByMuon; all are [rows, cols] f32 on one device.
void StepByMuon(const MuonStep& step, const torch::Tensor& grad,
                torch::Tensor m, torch::Tensor weight);

}  // namespace telegrad
