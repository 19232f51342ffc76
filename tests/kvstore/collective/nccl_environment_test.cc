#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "kvstore/collective/nccl/environment.h"

namespace telegrad::testing {
namespace {

// NCCL reads nothing here: only its variables are looked at.
TEST(NcclEnvironment, TakesPortsAndRowUnlessTheUserSetThem) {
  const auto set = [](const TransportOptions& options) {
    unsetenv("NCCL_IB_HCA");
    unsetenv("NCCL_IB_GID_INDEX");
    return collective::SetNcclEnvironment(options);
  };
  TransportOptions options;
  EXPECT_EQ(set(options), "");
  options.rdma_ports.clear();
  EXPECT_EQ(set(options), "");
  options.rdma_ports = {"mlx5_0:1", "mlx5_1:1"};
  options.gid_rows = {{"mlx5_0:1", 3}, {"mlx5_1:1", 4}};
  EXPECT_EQ(set(options), "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1");
  options.gid_rows["mlx5_1:1"] = 3;
  EXPECT_EQ(set(options), "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1 NCCL_IB_GID_INDEX=3");
  EXPECT_STREQ(getenv("NCCL_IB_HCA"), "=mlx5_0:1,mlx5_1:1");
  setenv("NCCL_IB_HCA", "^mlx5_9", 1);
  setenv("NCCL_IB_GID_INDEX", "1", 1);
  EXPECT_EQ(collective::SetNcclEnvironment(options), "");
  EXPECT_STREQ(getenv("NCCL_IB_GID_INDEX"), "1");
  unsetenv("NCCL_IB_HCA");
  unsetenv("NCCL_IB_GID_INDEX");
}

}  // namespace
}  // namespace telegrad::testing
