#include "topology/system_root.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tests/topology/trees.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

// A folder of its own for each test, removed behind it.
class Folder : public ::testing::Test {
 protected:
  Folder() {
    std::string name = (fs::temp_directory_path() / "telegrad.XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() override { fs::remove_all(path_); }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void Link(const std::string& target, const std::string& name) {
    fs::create_directories((path_ / name).parent_path());
    fs::create_symlink(target, path_ / name);
  }
  SysRoot Open() {
    absl::StatusOr<SysRoot> root = SysRoot::Open(path_.string());
    EXPECT_TRUE(root.ok()) << root.status();
    return *std::move(root);
  }
  fs::path path_;
};

TEST_F(Folder, ReadsBelowItself) {
  Write("sys/class/net/eth0/mtu", "1500\n");
  Write("dev/x", "");
  const SysRoot root = Open();
  EXPECT_EQ(root.Read("/sys/class/net/eth0/mtu").text, "1500\n");
  EXPECT_EQ(root.Read("/sys/class/net/eth0/mtu", 2).text, "15");
  EXPECT_EQ(root.Read("/sys/class/net/eth0/speed").error, ENOENT);
  EXPECT_EQ(root.Read("/sys/class/net").error, EISDIR);
  EXPECT_EQ(root.List("/sys/class/net"), std::vector<std::string>{"eth0"});
  EXPECT_TRUE(root.List("/sys/class/none").empty());
  EXPECT_TRUE(root.Covers("/dev/infiniband"));
  EXPECT_FALSE(root.Covers("/proc/cpuinfo"));
  EXPECT_FALSE(root.is_live());
}

TEST_F(Folder, LinksStayInside) {
  const fs::path secret = fs::path(path_.string() + ".secret");
  std::ofstream(secret) << "outside";
  Write("sys/devices/a/name", "inside");
  Link("/devices/a", "sys/absolute");  // not there: the root is above sys
  Link("/sys/devices/a", "sys/rooted");
  Link("../../../../../../sys/devices/a", "sys/class/above");
  Link(secret.string(), "sys/stolen");
  Link("../../" + secret.filename().string(), "sys/stolen2");
  const SysRoot root = Open();
  EXPECT_EQ(root.Read("/sys/rooted/name").text, "inside");
  EXPECT_EQ(root.Read("/sys/class/above/name").text, "inside");
  EXPECT_EQ(root.RealPath("/sys/class/above/name"), "/sys/devices/a/name");
  EXPECT_EQ(root.Read("/sys/absolute/name").error, ENOENT);
  EXPECT_EQ(root.Read("/sys/stolen").error, ENOENT);
  EXPECT_EQ(root.Read("/sys/stolen2").error, ENOENT);
  EXPECT_EQ(root.Read("/sys/../../" + secret.filename().string()).error,
            ENOENT);
  EXPECT_TRUE(root.HasEntry("/sys/stolen"));
  EXPECT_FALSE(root.Exists("/sys/stolen"));
  EXPECT_EQ(root.LinkText("/sys/stolen"), secret.string());
  fs::remove(secret);
}

TEST_F(Folder, LoopsEnd) {
  Write("sys/a", "");
  Link("loop", "sys/loop");
  Link("two", "sys/one");
  Link("one/x", "sys/two");
  Link("deep/deep/deep", "sys/deep");
  const SysRoot root = Open();
  for (const char* path : {"/sys/loop", "/sys/one", "/sys/deep/deep"}) {
    EXPECT_EQ(root.Read(path).error, ELOOP) << path;
    EXPECT_EQ(root.RealPath(path), "") << path;
  }
}

TEST_F(Folder, PipesAndUnreadableFilesFailAtOnce) {
  Write("sys/none", "x");
  fs::permissions(path_ / "sys/none", fs::perms::none);
  ASSERT_EQ(::mkfifo((path_ / "sys/pipe").c_str(), 0600), 0);
  const SysRoot root = Open();
  EXPECT_NE(root.Read("/sys/pipe").error, 0);
  if (::geteuid() != 0) {
    EXPECT_EQ(root.Read("/sys/none").error, EACCES);
  }
}

TEST_F(Folder, ManifestNamesReadsThatFail) {
  Write("sys/class/net/eth0/speed", "1000");
  Write("ERRNO",
        "# a comment\nsys/class/net/eth0/speed\tEINVAL\n/dev/x\tENOENT\n"
        "sys/odd\tEWHAT\nnot a line\n\t\n");
  const SysRoot root = Open();
  EXPECT_EQ(root.Read("/sys/class/net/eth0/speed").error, EINVAL);
  EXPECT_EQ(root.Read("/dev/x").error, ENOENT);
  EXPECT_EQ(root.Read("/sys/odd").error, EIO);
  EXPECT_TRUE(root.Covers("/dev/x"));
}

TEST_F(Folder, WhatIsNoRootIsRefused) {
  Write("etc/passwd", "");
  Write("usr/x", "");
  const absl::StatusOr<SysRoot> root = SysRoot::Open(path_.string());
  EXPECT_EQ(root.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SysRoot::Open(path_.string() + "/none").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(SysRoot::Open("").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Folder, ASysfsAloneIsARoot) {
  Write("sysfs/class/net/lo/mtu", "65536");
  Write("sysfs/devices/x", "");
  const SysRoot root = Open();  // the one folder in it
  EXPECT_EQ(root.Read("/sys/class/net/lo/mtu").text, "65536");
  EXPECT_EQ(root.Read("/class/net/lo/mtu").error, ENOENT);
  EXPECT_EQ(root.RealPath("/sys/class/net"), "/sys/class/net");
}

TEST_F(Folder, RubbishIsNoArchive) {
  Write("x.tar.gz", std::string("\x1f\x8b\x08\0rubbish", 11));
  Write("y.tar", std::string(4096, '\xff'));
  Write("z.tar", "");
  // It held the reader up.
  ASSERT_EQ(mkfifo((path_ / "fifo.tar").c_str(), 0600), 0);
  for (const char* name : {"x.tar.gz", "y.tar", "z.tar", "fifo.tar"}) {
    const absl::StatusOr<SysRoot> root = SysRoot::Open((path_ / name).string());
    EXPECT_FALSE(root.ok()) << name;
    EXPECT_NE(root.status().message().find(name), std::string::npos);
  }
}

TEST(MemoryTree, ListsEachFolderOnce) {
  MemoryTree tree;
  EXPECT_TRUE(tree.AddFile("a/x/1", ""));
  EXPECT_TRUE(tree.AddFile("/a-b", ""));
  EXPECT_TRUE(tree.AddFile("./a/y", "text"));
  EXPECT_TRUE(tree.AddFolder("a.c"));
  EXPECT_EQ(tree.List(""), (std::vector<std::string>{"a", "a-b", "a.c"}));
  EXPECT_EQ(tree.List("a"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(tree.Read("a/y", 2).text, "te");
  EXPECT_EQ(tree.Read("a", 2).error, EISDIR);
  EXPECT_EQ(tree.Read("b", 2).error, ENOENT);
}

TEST(MemoryTree, RefusesPathsThatLeadOut) {
  MemoryTree tree;
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "a/";
  EXPECT_FALSE(tree.AddFile("../x", ""));
  EXPECT_FALSE(tree.AddFile("a/../../x", ""));
  EXPECT_FALSE(tree.AddFile("", ""));
  EXPECT_FALSE(tree.AddFile(deep, ""));
  EXPECT_FALSE(tree.AddFile(std::string(5000, 'x'), ""));
  EXPECT_EQ(tree.size(), 0U);
}

TEST(SysRoot, LiveHasProc) {
  const SysRoot root = SysRoot::Live();
  EXPECT_TRUE(root.is_live());
  EXPECT_TRUE(root.Exists("/proc/self/limits"));
  EXPECT_FALSE(root.Read("/proc/self/limits").text.empty());
}

}  // namespace
}  // namespace telegrad
