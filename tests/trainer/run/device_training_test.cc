#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/device_access.h"
#include "base/exit_code.h"
#include "kvstore/nccl/group_store.h"
#include "tests/testing/status_matchers.h"
#include "trainer/networks/network.h"
#include "trainer/networks/torch_framework.h"
#include "trainer/run/device_room.h"
#include "trainer/run/gradient_exchange.h"
#include "trainer/run/replica_steps.h"

// Behind names that it would hide.
#include "tests/trainer/networks/network_batches.h"

// Training on a device is training on the CPU, bit by bit: the emulated device
// computes as a CPU does, and its memory is closed to the host.
namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;

constexpr int kSteps = 3;

std::unique_ptr<Network> MakeOn(const std::string& name, Device device) {
  ConfigureFramework(1).IgnoreError();
  NetworkSpec spec = *DefaultSpec(name);
  spec.seed = 7;
  spec.device = device;
  auto network = MakeNetwork(spec);
  EXPECT_THAT(network, IsOk());
  return network.ok() ? std::move(*network) : nullptr;
}

std::vector<float> ValuesOf(Network& network,
                            const std::vector<Parameter>& tensors) {
  std::vector<float> all;
  for (const Parameter& each : tensors) {
    std::vector<float> values(each.num_elements);
    network.Read(each.weight, values.size(), values.data());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

struct Trained {
  std::vector<float> initial;
  std::vector<float> weights;
  std::vector<float> buffers;
  BatchResult training;
  BatchResult test;
};

// Some steps of one worker with a store of one process.
Trained Train(const std::string& name, Device device, const std::string& codec,
              bool on_servers, bool has_muon = false) {
  std::vector<Replica> replicas(1);
  replicas[0].has_muon = has_muon;
  replicas[0].network = MakeOn(name, device);
  Network& network = *replicas[0].network;
  const auto& parameters = network.parameters();
  auto store = *MakeKVStore("local", {}, nullptr);
  CompressionConfig compression;
  compression.type = codec;
  EXPECT_THAT(store->SetCompression(compression), IsOk());
  OptimizerConfig optimizer;
  optimizer.sgd = {.learning_rate = 0.05f, .momentum_rate = 0.9f};
  if (on_servers) optimizer.update_on = UpdateOn::kServer;
  EXPECT_THAT(store->SetOptimizer(optimizer), IsOk());
  std::vector<TensorSpec> specs;
  std::vector<TensorView> values;
  for (const Parameter& each : parameters) {
    specs.push_back({.name = each.name, .num_elems = each.num_elements});
    if (device != Device{}) specs.back().devices = {device};
    values.push_back(ViewOf(network, each.weight, each.num_elements));
  }
  EXPECT_THAT(MakeRooms(replicas, optimizer.update_on, optimizer.kind), IsOk());
  Trained trained;
  trained.initial = ValuesOf(network, parameters);
  EXPECT_THAT(store->Init(specs, values), IsOk());
  {
    GradientExchange exchange(*store, replicas, std::chrono::seconds(60));
    exchange.set_optimizer(optimizer);
    const Batch batch = MakeBatch(*DefaultSpec(name));
    for (int step = 0; step < kSteps; ++step) {
      const BatchResult result = network.ForwardBackward(
          batch.images.data(), batch.labels.data(), kBatch,
          {.gradient_ready = [&](size_t index) { exchange.Push(index, 0); }});
      trained.training.loss_sum += result.loss_sum;
      trained.training.num_correct += result.num_correct;
      trained.training.num_samples += result.num_samples;
      EXPECT_THAT(exchange.FinishAll(), IsOk());
    }
    if (device != Device{}) {
      EXPECT_EQ(trained.training.num_samples, 0);
      trained.training = network.TakeResults();
      EXPECT_EQ(network.TakeResults().num_samples, 0);
    }
    trained.test =
        network.Evaluate(batch.images.data(), batch.labels.data(), kBatch);
  }
  EXPECT_THAT(network.status(), IsOk());
  trained.weights = ValuesOf(network, parameters);
  trained.buffers = ValuesOf(network, network.buffers());
  store->Close();
  return trained;
}

TEST(DeviceTraining, GivesTheBitsOfTheCpu) {
  struct Case {
    const char* network;
    const char* codec;
    bool on_servers;
    bool has_muon = false;
  };
  for (const Case& test : {Case{"lenet", "none", false},
                           {"lenet", "2bit", false},
                           {"mlp", "2bit", true},
                           {"mlp", "int8", false, true},
                           {"resnet20", "2bit", false}}) {
    SCOPED_TRACE(std::string(test.network) + " " + test.codec);
    const Trained here = Train(test.network, Device{}, test.codec,
                               test.on_servers, test.has_muon);
    const Trained there = Train(test.network, kEmulatedDevice, test.codec,
                                test.on_servers, test.has_muon);
    EXPECT_EQ(there.initial, here.initial);
    EXPECT_NE(here.weights, here.initial);
    EXPECT_EQ(there.weights, here.weights);
    EXPECT_EQ(there.buffers, here.buffers);
    EXPECT_EQ(there.training.loss_sum, here.training.loss_sum);
    EXPECT_EQ(there.training.num_correct, here.training.num_correct);
    EXPECT_EQ(there.training.num_samples, kSteps * kBatch);
    EXPECT_EQ(there.test.loss_sum, here.test.loss_sum);
    EXPECT_EQ(there.test.num_correct, here.test.num_correct);
  }
}

// Weights of two devices, which have different samples, after some steps.
std::vector<float> TrainTwo(KVStore& store) {
  std::vector<Replica> replicas(2);
  for (Replica& replica : replicas) replica.network = MakeOn("lenet", Device{});
  OptimizerConfig optimizer;
  optimizer.sgd = {.learning_rate = 0.05f, .momentum_rate = 0.9f};
  EXPECT_THAT(store.SetOptimizer(optimizer), IsOk());
  std::vector<TensorSpec> specs;
  std::vector<TensorView> values;
  for (size_t i = 0; i < replicas[0].network->parameters().size(); ++i) {
    for (Replica& replica : replicas) {
      const Parameter& each = replica.network->parameters()[i];
      values.push_back(
          ViewOf(*replica.network, each.weight, each.num_elements));
      replica.states.push_back(
          *MakeState(*replica.network, each.num_elements, optimizer.kind));
    }
    const Parameter& each = replicas[0].network->parameters()[i];
    specs.push_back({.name = each.name, .num_elems = each.num_elements});
  }
  EXPECT_THAT(store.Init(specs, values), IsOk());
  GradientExchange exchange(store, replicas, std::chrono::seconds(60));
  exchange.set_optimizer(optimizer);
  Batch batch = MakeBatch(*DefaultSpec("lenet"));
  for (int step = 0; step < kSteps; ++step) {
    for (Replica& replica : replicas) {
      std::ranges::reverse(batch.labels);
      const bool is_last = &replica == &replicas.back();
      replica.network->ForwardBackward(batch.images.data(), batch.labels.data(),
                                       kBatch,
                                       {.gradient_ready = [&](size_t index) {
                                         if (is_last) exchange.Push(index, 0);
                                       }});
    }
    EXPECT_THAT(exchange.FinishAll(), IsOk());
  }
  const auto weights = [](Replica& replica) {
    return ValuesOf(*replica.network, replica.network->parameters());
  };
  EXPECT_EQ(weights(replicas[0]), weights(replicas[1]));
  return weights(replicas[0]);
}

// The sum of two has the same bits in any order.
TEST(DeviceTraining, BySumsOfAGroupOfDevicesGivesThoseOfLocal) {
  StoreOptions options;
  options.num_devices = 2;
  GroupStore group(options, *FindStoreType("nccl"), nullptr, "host");
  const auto local = *MakeKVStore("local", options, nullptr);
  const std::vector<float> weights = TrainTwo(*local);
  EXPECT_EQ(TrainTwo(group), weights);
  local->Close();
}

TEST(DeviceTraining, BuffersAreReadAndWrittenThere) {
  const auto network = MakeOn("lenet", kEmulatedDevice);
  const Parameter& first = network->parameters()[0];
  const std::vector<float> values(first.num_elements, 0.25f);
  network->Write(values.data(), values.size(), first.weight);
  std::vector<float> read(first.num_elements);
  network->Read(first.weight, read.size(), read.data());
  EXPECT_EQ(read, values);
}

// What the framework says of a device ends the run with its exit code.
TEST(DeviceTraining, AFaultIsTheNetworksStatus) {
  const auto network = MakeOn("lenet", kEmulatedDevice);
  Batch batch = MakeBatch();
  batch.labels[0] = 1000;  // no class
  network->ForwardBackward(batch.images.data(), batch.labels.data(), kBatch,
                           {});
  EXPECT_EQ(ExitCodeOf(network->status()), ExitCode::kDeviceFault)
      << network->status();
  EXPECT_THAT(std::string(network->status().message()),
              ::testing::HasSubstr("the emulated device: "));
}

// Before there is a network, too.
TEST(DeviceTraining, AGpuThatIsNotThereIsAFault) {
  ConfigureFramework(1).IgnoreError();
  NetworkSpec spec = *DefaultSpec("lenet");
  spec.device = {DeviceKind::kCuda, 99};
  const auto network = MakeNetwork(spec);
  ASSERT_FALSE(network.ok());
  EXPECT_EQ(ExitCodeOf(network.status()), ExitCode::kDeviceFault)
      << network.status();
  EXPECT_THAT(std::string(network.status().message()),
              ::testing::HasSubstr("cuda:99 ("));
}

}  // namespace
}  // namespace telegrad
