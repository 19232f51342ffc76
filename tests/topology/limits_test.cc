#include "topology/limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/topology/trees.h"

namespace telegrad {
namespace {

// A container of Docker on version 1: its groups are what is mounted.
TEST(Limits, OfControlGroupsOfVersion1) {
  const std::string at = "sys/fs/cgroup/";
  Files files = {
      {"proc/self/cgroup", "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n"},
      {"proc/self/mountinfo",
       "1 0 0:1 /docker/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
       "2 0 0:2 /docker/a /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
       "3 0 0:3 / /dev/shm rw,nosuid - tmpfs shm rw,size=65536k\n"},
      {at + "memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {at + "cpu/cpu.cfs_quota_us", "-1\n"},
      {at + "cpu/cpu.cfs_period_us", "100000\n"}};
  Capabilities has = Detect(files).capabilities;
  EXPECT_EQ(has.memory_limit_bytes.value, UINT64_MAX);
  EXPECT_FALSE(has.cpu_limit.known());
  EXPECT_EQ(has.shm_bytes.value, uint64_t{64} << 20);
  files[at + "memory/memory.limit_in_bytes"] = "1048576\n";
  files[at + "cpu/cpu.cfs_quota_us"] = "150000\n";
  files["proc/self/status"] = "Cpus_allowed_list:\t0-3,8\n";
  has = Detect(files).capabilities;
  EXPECT_EQ(has.memory_limit_bytes.value, uint64_t{1} << 20);
  EXPECT_EQ(has.cpu_limit.value, 1.5);
  files[at + "cpu/cpu.cfs_quota_us"] = "800000\n";
  EXPECT_EQ(Detect(files).capabilities.cpu_limit.value, 5);
}

// A job of Slurm on version 2: each group above limits as well.
TEST(Limits, OfControlGroupsOfVersion2) {
  const std::string at = "sys/fs/cgroup/";
  Files files = {{"proc/self/cgroup", "0::/job_7/step_0\n"},
                 {"proc/self/mountinfo",
                  "1 0 0:1 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 "
                  "rw,nsdelegate\n"},
                 {at + "job_7/step_0/memory.max", "max\n"},
                 {at + "job_7/step_0/cpu.max", "max 100000\n"}};
  Capabilities has = Detect(files).capabilities;
  EXPECT_EQ(has.memory_limit_bytes.value, UINT64_MAX);
  EXPECT_FALSE(has.cpu_limit.known());
  files[at + "job_7/memory.max"] = "4294967296\n";
  files[at + "job_7/cpu.max"] = "50000 100000\n";
  has = Detect(files).capabilities;
  EXPECT_EQ(has.memory_limit_bytes.value, uint64_t{1} << 32);
  EXPECT_EQ(has.memory_limit_bytes.why.at(0).source,
            "/sys/fs/cgroup/job_7/memory.max");
  EXPECT_EQ(has.cpu_limit.value, 0.5);
}

TEST(Limits, WrongFilesOfControlGroupsLimitNothing) {
  const std::string at = "sys/fs/cgroup/";
  const std::string mounts =
      "\n - \nx - cgroup2\n"
      "1 0 0:1 /b /sys/fs/cgroup rw - cgroup2 c rw\n"
      "2 0 0:2 / /dev/shm rw - tmpfs shm rw,size=99999999999999999999k\n"
      "3 0 0:2 / /dev/shm rw - tmpfs shm rw,size=18446744073709551615k\n";
  for (const char* group :
       {"", "0:", "0::", "0::/../../a", "0::/a/b/", "0::/ba", "0::b//"}) {
    const Files files = {{"proc/self/cgroup", group},
                         {"proc/self/mountinfo", mounts},
                         {at + "memory.max", "-5 bytes"},
                         {at + "cpu.max", "1e9 0"},
                         {at + "cpu.cfs_quota_us", "5"},
                         {at + "cpu.cfs_period_us", "0"},
                         {"proc/self/status", "Cpus_allowed_list:\tmany\n"}};
    const Capabilities has = Detect(files).capabilities;
    EXPECT_FALSE(has.memory_limit_bytes.known()) << group;
    EXPECT_FALSE(has.cpu_limit.known()) << group;
    EXPECT_FALSE(has.shm_bytes.known()) << group;
  }
}

TEST(Limits, AProcessCanKeepACpuBusy) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_LE(static_cast<unsigned>(UsableCpus()),
            std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace telegrad
