#include <cstring>

#include "tests/simt/steps.h"

// What a store queues for a device comes behind what it must not overtake,
// however late that is.
namespace telegrad {
namespace {

using testing::IsOk;
using testing::Soon;
using testing::Steps;

// A result on the device, with a stream of the caller's.
class Output {
 public:
  Output(kernels::DeviceQueue& queue, Dtype dtype, size_t num_elems)
      : queue_(queue),
        dtype_(dtype),
        num_elems_(num_elems),
        stream_(queue.MakeStream(0)),
        host_(kernels::HostMemory(queue, SizeOf(dtype) * num_elems)),
        memory_(queue.MakeMemory(host_.size(), stream_)) {}

  cudaStream_t stream() const {
    return static_cast<cudaStream_t>(stream_.handle);
  }
  Ticket Pull(KVStore& store, Key key) const {
    const TensorView view = {.bytes = memory_.view(),
                             .dtype = dtype_,
                             .num_elems = static_cast<int64_t>(num_elems_),
                             .stream = stream_};
    return store.Pull(key, TensorViews(&view, 1), 0);
  }
  // Queues it.
  void Fill(int byte) {
    std::memset(host_.data(), byte, host_.size());
    queue_.Copy(memory_.view(), host_.view(), stream_);
  }
  std::vector<std::byte> Read() {
    queue_.Copy(host_.view(), memory_.view(), stream_);
    cudaStreamSynchronize(stream());
    return {host_.data(), host_.data() + host_.size()};
  }

 private:
  kernels::DeviceQueue& queue_;
  const Dtype dtype_;
  const size_t num_elems_;
  const Stream stream_;
  Buffer host_;
  const Buffer memory_;
};

std::vector<TensorSpec> TwoTensors(Dtype dtype) {
  constexpr size_t kElems = 1000;
  return {{.name = "a",
           .num_elems = kElems,
           .dtype = dtype,
           .devices = {testing::kGpu}},
          {.name = "b",
           .num_elems = kElems,
           .dtype = dtype,
           .devices = {testing::kGpu}}};
}

// It is copied there, or decoded, from what was copied up or the network has
// put there.
TEST(SimtStoreOrder, WritesAResultBehindItsStream) {
  for (const auto& [type, memory] :
       {std::pair("none", "host"), {"2bit", "host"}, {"2bit", "staged"}}) {
    SCOPED_TRACE(::testing::Message() << type << " " << memory);
    const std::vector<TensorSpec> tensors = TwoTensors(Dtype::kFloat32);
    Steps steps(type, tensors, testing::kChunk, memory);
    for (int step = 0; step < 3; ++step) ASSERT_THAT(steps.Run(), IsOk());
    Output out(steps.queue(), Dtype::kFloat32, tensors[0].num_elems);
    ASSERT_THAT(out.Pull(steps.store(), 0).Wait(Soon()), IsOk());
    const std::vector<std::byte> expected = out.Read();
    simt::Hold(out.stream(), true);
    out.Fill(0xFF);
    const Ticket ticket = out.Pull(steps.store(), 0);
    ASSERT_TRUE(ticket.WaitUntilQueued(Soon()));
    simt::RunAll();
    simt::Hold(out.stream(), false);
    ASSERT_THAT(ticket.Wait(Soon()), IsOk());
    EXPECT_EQ(out.Read(), expected);
  }
}

// What comes as float32 is copied to memory that kernels take again and again.
TEST(SimtStoreOrder, CopiesNothingOverWhatAKernelHasToRead) {
  const std::vector<TensorSpec> tensors = TwoTensors(Dtype::kFloat16);
  Steps steps("none", tensors);
  for (int step = 0; step < 2; ++step) ASSERT_THAT(steps.Run(), IsOk());
  Output outs[2] = {{steps.queue(), Dtype::kFloat16, tensors[0].num_elems},
                    {steps.queue(), Dtype::kFloat16, tensors[1].num_elems}};
  std::vector<std::byte> expected[2];
  for (Key key = 0; key < 2; ++key) {
    ASSERT_THAT(outs[key].Pull(steps.store(), key).Wait(Soon()), IsOk());
    expected[key] = outs[key].Read();
  }
  ASSERT_NE(expected[0], expected[1]);
  simt::HoldKernels(true);
  std::vector<Ticket> tickets;
  for (Key key = 0; key < 2; ++key) {
    tickets.push_back(outs[key].Pull(steps.store(), key));
    EXPECT_TRUE(tickets[key].WaitUntilQueued(Soon()));
    simt::RunAll();
  }
  simt::HoldKernels(false);
  for (Key key = 0; key < 2; ++key) {
    ASSERT_THAT(tickets[key].Wait(Soon()), IsOk());
    EXPECT_EQ(outs[key].Read(), expected[key]) << key;
  }
}

}  // namespace
}  // namespace telegrad
