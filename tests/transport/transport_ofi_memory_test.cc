#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/vendor.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/backend.h"
#include "tests/transport/bounce_pair.h"
#include "tests/transport/fake_hmem.h"
#include "transport/ofi/ofi_transport.h"
#include "transport/ofi/provider.h"
#include "transport/ofi/registration.h"
#include "transport/ofi/slot.h"

namespace telegrad::testing {

// The conformance suite goes from device to device by lanes.
std::vector<Backend> AllBackends() {
  GetFakeHmem().offers = true;
  Backend hmem = {"OfiHmem", "ofi", "tcp"};
  hmem.fragment_bytes = size_t{1} << 20;
  hmem.make = &MakeOfiTransport;
  hmem.memory = "direct";
  return {hmem};
}

namespace {

using absl::StatusCode;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TransportOptions Direct(const char* tls, const char* memory = "direct") {
  TransportOptions options;
  options.name = "ofi";
  options.tls = tls;
  options.memory = memory;
  return options;
}

TEST(OfiRegistration, IsDemandedByTheModeBits) {
  const auto demands = [](int mode) {
    return std::pair(ofi::NeedsRegistration(mode, DeviceKind::kCpu),
                     ofi::NeedsRegistration(mode, DeviceKind::kCuda));
  };
  EXPECT_EQ(demands(FI_MR_VIRT_ADDR | FI_MR_ALLOCATED),
            std::pair(false, false));
  EXPECT_EQ(demands(FI_MR_LOCAL), std::pair(true, true));
  EXPECT_EQ(demands(FI_MR_HMEM), std::pair(false, true));
  EXPECT_EQ(demands(FI_MR_HMEM | FI_MR_LOCAL), std::pair(true, true));
}

TEST(OfiRegistration, NamesTheDevice) {
  char bytes[100];
  const iovec part = {bytes, sizeof(bytes)};
  const fi_mr_attr host = ofi::AttributesOf(part, {}, 7);
  EXPECT_EQ(host.requested_key, 7u);
  EXPECT_EQ(host.mr_iov, &part);
  EXPECT_EQ(host.iov_count, 1u);
  EXPECT_EQ(host.access, FI_SEND | FI_RECV);
  EXPECT_EQ(host.iface, FI_HMEM_SYSTEM);
  EXPECT_EQ(host.device.reserved, 0u);
  const fi_mr_attr cuda = ofi::AttributesOf(part, {DeviceKind::kCuda, 3}, 8);
  EXPECT_EQ(cuda.mr_iov, &part);
  EXPECT_EQ(cuda.access, FI_SEND | FI_RECV);
  EXPECT_EQ(cuda.iface, FI_HMEM_CUDA);
  EXPECT_EQ(cuda.device.cuda, 3);
}

// Real providers: tcp has no FI_HMEM, shm has it and no lanes.
class OfiWithoutHmem : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    GetFakeHmem().offers = false;
    GetFakeHmem().num_asked = 0;
  }
  void TearDown() override { GetFakeHmem().offers = true; }
};

TEST_P(OfiWithoutHmem, AsksAndTakesTheProviderAsItIs) {
  Node plain(Direct(GetParam(), "host"), MakeOfiTransport);
  ASSERT_THAT(plain.status, IsOk());
  EXPECT_EQ(GetFakeHmem().num_asked, 0u);
  Node server(Direct(GetParam()), MakeOfiTransport);
  Node client(Direct(GetParam()), MakeOfiTransport);
  ASSERT_THAT(server.status, IsOk());
  EXPECT_GT(GetFakeHmem().num_asked, 1u);
  EXPECT_FALSE(server.context->TakesSome(DeviceKind::kCuda));
  EXPECT_THAT(server.context->info().details, HasSubstr(", memory: host, "));
  EXPECT_THAT(server.context->info().details, Not(HasSubstr("cuda")));
  const auto to_server = Connect(client, server);
  ASSERT_THAT(to_server, IsOk());
  char byte = 0;
  const Bytes on_device(&byte, 1, {DeviceKind::kCuda, 0});
  EXPECT_THAT(client.context->Send(*to_server, {}, on_device, nullptr),
              StatusIs(StatusCode::kUnimplemented, "host memory only"));
  const std::string text = Pattern(300'000, 1);
  ASSERT_THAT(client.Send(*to_server, "h", text), IsOk());
  ASSERT_TRUE(Drive({&server, &client}, [&] { return !server.heard.empty(); }));
  EXPECT_TRUE(server.heard[0].payload == text);
}

INSTANTIATE_TEST_SUITE_P(Over, OfiWithoutHmem, ::testing::Values("tcp", "shm"),
                         [](const auto& param) {
                           return std::string(param.param);
                         });

// The one provider of Debian's libfabric that offers FI_HMEM takes what we ask.
TEST(OfiRegistration, IsTakenByARealProviderWithHmem) {
  ASSERT_THAT(vendor::OpenOfi(), IsOk());
  ofi::InfoPtr hints(fi_allocinfo());
  hints->caps = FI_MSG | FI_HMEM;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_HMEM | FI_MR_LOCAL;
  hints->fabric_attr->prov_name = strdup("shm");
  GetFakeHmem().offers = false;
  fi_info* found = nullptr;
  const int result =
      fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found);
  const ofi::InfoPtr info(found);
  fid_fabric* fabric = nullptr;
  const bool has_fabric =
      result == 0 && fi_fabric(info->fabric_attr, &fabric, nullptr) == 0;
  GetFakeHmem().offers = true;
  if (!has_fabric) GTEST_SKIP() << "shm has no FI_HMEM here";
  const ofi::FidPtr<fid_fabric> fabric_owner(fabric);
  fid_domain* domain = nullptr;
  ASSERT_EQ(fi_domain(fabric, info.get(), &domain, nullptr), 0);
  const ofi::FidPtr<fid_domain> domain_owner(domain);
  std::string memory(100'000, 'm');
  const iovec part = {memory.data(), memory.size()};
  const fi_mr_attr attributes = ofi::AttributesOf(part, {}, 0);
  fid_mr* registered = nullptr;
  ASSERT_EQ(fi_mr_regattr(domain, &attributes, 0, &registered), 0);
  const ofi::FidPtr<fid_mr> owner(registered);
}

constexpr size_t kLarge = 300'000;

// Two contexts with devices over a libfabric that takes these.
class OfiDeviceMemory : public ::testing::Test {
 protected:
  OfiDeviceMemory()
      : server_(Direct("tcp"), Factory(theirs_)),
        client_(Direct("tcp"), Factory(ours_)) {
    FakeHmem& hmem = GetFakeHmem();
    MutexLock lock(&hmem.mutex);
    hmem.of_devices.clear();
  }
  ~OfiDeviceMemory() override { GetFakeHmem().error = 0; }

  TransportFactory Factory(FakeDevice& device) {
    device.is_host = true;  // libfabric's tcp copies like anybody else
    return [&device](const TransportOptions& options,
                     TransportHandler* handler) {
      return MakeBounceTransport(MakeOfiTransport, options,
                                 std::make_unique<FakeCopier>(device), handler);
    };
  }
  void SetUp() override {
    ASSERT_THAT(server_.status, IsOk());
    server_.place = [this](size_t size) {
      received_.push_back(std::string(size, '?'));
      return Bytes(received_.back().data(), size, {DeviceKind::kCuda, 1});
    };
    to_server_ = *Connect(client_, server_);
  }
  void Send(const std::string& text, int device = 2) {
    sent_.push_back(text);
    ASSERT_THAT(
        client_.context->Send(
            to_server_, {},
            {sent_.back().data(), text.size(), {DeviceKind::kCuda, device}},
            [this](const absl::Status& status) {
              EXPECT_THAT(status, IsOk());
              ++num_done_;
            }),
        IsOk());
  }
  bool SendsAll() {
    return Drive({&server_, &client_}, [&] {
      return num_done_ == sent_.size() && received_.size() == sent_.size() &&
             server_.heard.size() == sent_.size();
    });
  }
  size_t NumCopies() const { return ours_.num_copies + theirs_.num_copies; }
  // How often libfabric was asked to register memory of this device.
  static size_t NumAsked(int device) {
    FakeHmem& hmem = GetFakeHmem();
    MutexLock lock(&hmem.mutex);
    size_t count = 0;
    for (const fi_mr_attr& each : hmem.of_devices) {
      count += each.device.cuda == device;
    }
    return count;
  }
  // Sends large messages until both sides were asked so often.
  void SendUntilAsked(size_t count) {
    while (std::min(NumAsked(1), NumAsked(2)) < count && sent_.size() < 1000) {
      Send(Pattern(kLarge, static_cast<uint32_t>(sent_.size())));
      ASSERT_TRUE(SendsAll());
    }
    ASSERT_GE(std::min(NumAsked(1), NumAsked(2)), count);
  }

  FakeDevice ours_, theirs_;
  std::deque<std::string> sent_, received_;
  size_t num_done_ = 0;
  Node server_, client_;
  EndpointId to_server_ = 0;
};

TEST_F(OfiDeviceMemory, LargePayloadsGoStraightOnceAgreed) {
  EXPECT_THAT(client_.context->info().details,
              HasSubstr(", memory: host, cuda via FI_HMEM"));
  EXPECT_THAT(client_.context->info().details,
              EndsWith("device memory of large messages straight, else through "
                       "pinned memory"));
  size_t copies = 0;
  do {  // the first ones are copied: nobody waits for the agreement
    copies = NumCopies();
    Send(Pattern(kLarge, static_cast<uint32_t>(sent_.size())));
    ASSERT_TRUE(SendsAll());
  } while (NumCopies() > copies && sent_.size() < 1000);
  EXPECT_GT(sent_.size(), 1u);
  for (uint32_t i = 0; i < 20; ++i) Send(Pattern(kLarge, i));
  ASSERT_TRUE(SendsAll());
  EXPECT_EQ(NumCopies(), copies);
  Send("small");
  Send(Pattern(kLarge, 7));
  ASSERT_TRUE(SendsAll());
  EXPECT_GT(NumCopies(), copies);
  EXPECT_EQ(sent_, received_);
  EXPECT_GE(NumAsked(2), 21u);
  EXPECT_GE(NumAsked(1), 21u);
  FakeHmem& hmem = GetFakeHmem();
  EXPECT_EQ(hmem.num_held, 0u);
  MutexLock lock(&hmem.mutex);
  for (const fi_mr_attr& each : hmem.of_devices) {
    EXPECT_EQ(each.iface, FI_HMEM_CUDA);
  }
}

TEST_F(OfiDeviceMemory, WhatCannotBeRegisteredIsCopiedAndNotAskedForAgain) {
  GetFakeHmem().error = FI_ENOSYS;
  EXPECT_THAT(client_.context->info().details, Not(HasSubstr("cuda:")));
  SendUntilAsked(1);
  for (uint32_t i = 0; i < 20; ++i) {
    Send(Pattern(kLarge, i));
    ASSERT_TRUE(SendsAll());
  }
  EXPECT_EQ(NumAsked(2), 1u);
  EXPECT_EQ(NumAsked(1), 1u);
  Send(Pattern(kLarge, 7), /*device=*/3);
  ASSERT_TRUE(SendsAll());
  EXPECT_EQ(NumAsked(3), 1u);
  EXPECT_EQ(sent_, received_);
  EXPECT_EQ(ours_.num_copies, sent_.size());
  EXPECT_EQ(theirs_.num_copies, sent_.size());
  const std::string why = fi_strerror(FI_ENOSYS);
  EXPECT_THAT(
      client_.context->info().details,
      HasSubstr("cuda via FI_HMEM, not of cuda:2 (fi_mr_regattr: " + why +
                "), not of cuda:3 (fi_mr_regattr: " + why + "), 1 endpoints"));
  EXPECT_THAT(server_.context->info().details, HasSubstr("not of cuda:1 ("));
}

TEST_F(OfiDeviceMemory, WhatThereIsNoRoomForIsAskedForAgain) {
  GetFakeHmem().error = FI_ENOMEM;
  SendUntilAsked(2);
  EXPECT_EQ(ours_.num_copies, sent_.size());
  EXPECT_EQ(theirs_.num_copies, sent_.size());
  EXPECT_THAT(client_.context->info().details, Not(HasSubstr("cuda:")));
  GetFakeHmem().error = 0;
  const size_t copies = NumCopies();
  Send(Pattern(kLarge, 7));
  ASSERT_TRUE(SendsAll());
  EXPECT_EQ(NumCopies(), copies);
  EXPECT_EQ(sent_, received_);
}

TEST_F(OfiDeviceMemory, OneSideMayGoStraight) {
  server_.place = nullptr;
  for (size_t i = 0; i < 20; ++i) {
    Send(Pattern(kLarge, static_cast<uint32_t>(i)));
    ASSERT_TRUE(Drive({&server_, &client_},
                      [&] { return server_.heard.size() == i + 1; }));
    EXPECT_TRUE(server_.heard[i].payload == sent_[i]);
  }
  EXPECT_LT(ours_.num_copies, 20u);
  EXPECT_EQ(theirs_.num_copies, 0u);
}

TEST_F(OfiDeviceMemory, ClosedInTheMiddleHoldsNoRegistration) {
  for (uint32_t i = 0; i < 5; ++i) {
    Send(Pattern(kLarge, i));
    ASSERT_TRUE(SendsAll());
  }
  const std::string text = Pattern(size_t{4} << 20, 1);
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(
        client_.context->Send(
            to_server_, {}, {text.data(), text.size(), {DeviceKind::kCuda, 2}},
            nullptr),
        IsOk());
  }
  EXPECT_GT(GetFakeHmem().num_held, 0u);
  server_.context.reset();
  ASSERT_TRUE(Drive({&client_}, [&] { return !client_.closed.empty(); }));
  EXPECT_EQ(GetFakeHmem().num_held, 0u);
}

}  // namespace
}  // namespace telegrad::testing
