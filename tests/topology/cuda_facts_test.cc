// With a libcuda.so.1 of the tests' own in the place of NVIDIA's.
#include "topology/nvidia/cuda_facts.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/topology/fake_cuda.h"

namespace telegrad {
namespace {

Machine WithGpus(const std::vector<uint8_t>& buses) {
  Machine machine;
  for (const uint8_t bus : buses) machine.gpus.push_back({.bdf = {.bus = bus}});
  AddCudaFacts({.probe = true}, machine);
  return machine;
}

class CudaFacts : public ::testing::Test {
 protected:
  void SetUp() override { TheFakeCuda() = {}; }
};

TEST_F(CudaFacts, GpusTellWhetherTheyExportDmabuf) {
  Machine machine = WithGpus({1, 2});
  EXPECT_EQ(machine.gpus[0].dmabuf.value, true);
  EXPECT_EQ(machine.gpus[1].dmabuf.value, true);
  EXPECT_EQ(machine.capabilities.gdr_dmabuf_gpu, Tri::kYes);
  EXPECT_EQ(machine.capabilities.why.at("gdr_dmabuf_gpu").size(), 2U);
  TheFakeCuda().dmabuf[1] = 0;
  machine = WithGpus({1, 2});
  EXPECT_EQ(machine.gpus[0].dmabuf.value, true);
  EXPECT_EQ(machine.gpus[1].dmabuf.value, false);
  EXPECT_EQ(machine.capabilities.gdr_dmabuf_gpu, Tri::kNo);
}

TEST_F(CudaFacts, AGpuThatTheDriverHidesIsUnknown) {
  const Machine machine = WithGpus({1, 9});
  EXPECT_EQ(machine.gpus[0].dmabuf.value, true);
  EXPECT_FALSE(machine.gpus[1].dmabuf.known());
  EXPECT_EQ(machine.gpus[1].dmabuf.why.at(0).raw, "CUresult 101");
  EXPECT_EQ(machine.capabilities.gdr_dmabuf_gpu, Tri::kUnknown);
}

TEST_F(CudaFacts, ADriverThatDoesNotStartChangesNothing) {
  TheFakeCuda().init_error = 999;
  const Machine machine = WithGpus({1});
  EXPECT_FALSE(machine.gpus[0].dmabuf.known());
  EXPECT_EQ(machine.capabilities, Capabilities());
}

TEST_F(CudaFacts, TheDriverIsStartedForProbesAlone) {
  Machine machine;
  machine.gpus.resize(1);
  AddCudaFacts({.probe = false}, machine);
  EXPECT_EQ(TheFakeCuda().num_starts, 0);
  EXPECT_FALSE(machine.gpus[0].dmabuf.known());
}

}  // namespace
}  // namespace telegrad
