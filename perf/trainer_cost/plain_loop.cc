// A plain training loop of libtorch, the peer of `telegrad-train --compare none
// --workers 1`: synthetic images of MNIST's shape, SGD with momentum.
//
//   plain_loop lenet|mlp BATCH STEPS
//
// Prints {"samples_per_s": ...} of all steps but the first ten.
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr int64_t kNumImages = 6000;
constexpr int64_t kWarmup = 10;

namespace nn = torch::nn;

// LeNet's layers as in trainer/networks/small.cc.
nn::Sequential LeNet() {
  return nn::Sequential(nn::Conv2d(1, 20, 5), nn::Tanh(), nn::MaxPool2d(2),
                        nn::Conv2d(20, 50, 5), nn::Tanh(), nn::MaxPool2d(2),
                        nn::Flatten(), nn::Linear(800, 500), nn::Tanh(),
                        nn::Linear(500, 10));
}

nn::Sequential Mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(784, 128), nn::ReLU(),
                        nn::Linear(128, 64), nn::ReLU(), nn::Linear(64, 10));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const int64_t batch = argc > 2 ? std::atoll(argv[2]) : 0;
  const int64_t steps = argc > 3 ? std::atoll(argv[3]) : 0;
  if ((name != "lenet" && name != "mlp") || batch < 1 || batch > kNumImages ||
      steps <= kWarmup || argc > 4) {
    std::fprintf(stderr,
                 "plain_loop lenet|mlp BATCH STEPS: at least %d steps\n",
                 static_cast<int>(kWarmup) + 1);
    return 2;
  }
  torch::set_num_threads(1);
  torch::manual_seed(0);
  const torch::Tensor images = torch::randn({kNumImages, 1, 28, 28});
  const torch::Tensor labels = torch::randint(10, {kNumImages});
  nn::Sequential network = name == "lenet" ? LeNet() : Mlp();
  torch::optim::SGD optimizer(
      network->parameters(),
      torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4));
  auto start = std::chrono::steady_clock::now();
  double loss_sum = 0;
  for (int64_t step = 0; step < steps; ++step) {
    if (step == kWarmup) start = std::chrono::steady_clock::now();
    const int64_t first = step * batch % (kNumImages - batch + 1);
    const torch::Tensor loss = nn::functional::cross_entropy(
        network->forward(images.slice(0, first, first + batch)),
        labels.slice(0, first, first + batch));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    loss_sum += loss.item<double>();
  }
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  std::printf("{\"samples_per_s\": %.1f, \"loss\": %.4f}\n",
              static_cast<double>((steps - kWarmup) * batch) / taken.count(),
              loss_sum / static_cast<double>(steps));
  return 0;
}
