#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "kernels/device_copy.h"

namespace telegrad::testing {

// Memory that the CPU cannot touch by the address that it has on the device:
// whoever tries gets SIGSEGV. `host()` is a second view of it.
class FakeDeviceMemory {
 public:
  explicit FakeDeviceMemory(size_t size) : size_(size) {
    file_ = memfd_create("device", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file_, static_cast<off_t>(size)), 0);
    device_ = Map(PROT_NONE);
    host_ = Map(PROT_READ | PROT_WRITE);
  }
  ~FakeDeviceMemory() {
    munmap(device_, size_);
    munmap(host_, size_);
    close(file_);
  }
  FakeDeviceMemory(const FakeDeviceMemory&) = delete;
  FakeDeviceMemory& operator=(const FakeDeviceMemory&) = delete;

  Bytes view() const { return {device_, size_, {DeviceKind::kCuda, 0}}; }
  char* host() const { return static_cast<char*>(host_); }
  std::string text() const { return {host(), size_}; }

 private:
  void* Map(int protection) const {
    void* address = mmap(nullptr, size_, protection, MAP_SHARED, file_, 0);
    EXPECT_NE(address, MAP_FAILED);
    return address;
  }

  const size_t size_;
  int file_ = -1;
  void* device_ = nullptr;
  void* host_ = nullptr;
};

// What all copiers of a test know, and what it may ask of them.
struct FakeDevice {
  std::unique_ptr<FakeDeviceMemory> Allocate(size_t size) {
    auto memory = std::make_unique<FakeDeviceMemory>(size);
    begins[memory->view().data] = memory->host();
    return memory;
  }
  std::byte* HostAddress(const std::byte* address) const {
    if (is_host) return const_cast<std::byte*>(address);
    const auto next = begins.upper_bound(const_cast<std::byte*>(address));
    if (next == begins.begin()) return nullptr;
    const auto& [begin, host] = *std::prev(next);
    return reinterpret_cast<std::byte*>(host) + (address - begin);
  }

  std::map<std::byte*, char*> begins;
  bool is_host = false;  // its memory is the host's, by another name
  int polls_per_copy = 3;
  bool is_stuck = false;  // no copy ends
  int fail_after = -1;    // copies that are well; -1: all are
  bool has_host_memory = true;
  size_t num_copies = 0;
  size_t num_vain_polls = 0;  // while it is stuck
  size_t num_running = 0;
  size_t most_running = 0;
  size_t num_pinned = 0;  // buffers
  size_t pinned_bytes = 0;
  size_t most_pinned_bytes = 0;
};

// The bytes move when a copy is polled for the last time, so that a buffer
// which is used too early is seen.
class FakeCopier : public kernels::DeviceCopier {
 public:
  explicit FakeCopier(FakeDevice& device) : device_(device) {}
  ~FakeCopier() override {
    device_.num_running -= copies_.size();
    while (!host_.empty()) FreeHost(host_.begin()->first);
  }

  DeviceKind device() const override { return DeviceKind::kCuda; }

  std::byte* AllocateHost(size_t size) override {
    if (!device_.has_host_memory) return nullptr;
    auto memory = std::make_unique<std::byte[]>(size);
    std::byte* const address = memory.get();
    host_[address] = {std::move(memory), size};
    ++device_.num_pinned;
    device_.pinned_bytes += size;
    device_.most_pinned_bytes =
        std::max(device_.most_pinned_bytes, device_.pinned_bytes);
    return address;
  }
  void FreeHost(std::byte* memory) override {
    const auto found = host_.find(memory);
    ASSERT_NE(found, host_.end());
    --device_.num_pinned;
    device_.pinned_bytes -= found->second.second;
    host_.erase(found);
  }

  Ticket Start(Bytes to, ConstBytes from) override {
    EXPECT_NE(to.device.kind, from.device.kind);
    EXPECT_GE(to.size, from.size);
    copies_[++last_] = {to, from, device_.polls_per_copy};
    device_.most_running =
        std::max(device_.most_running, ++device_.num_running);
    return last_;
  }
  State Poll(Ticket ticket) override {
    const auto found = copies_.find(ticket);
    if (found == copies_.end()) return State::kFailed;
    Copy& copy = found->second;
    if (device_.is_stuck) {
      ++device_.num_vain_polls;
      return State::kRunning;
    }
    if (--copy.polls_left > 0) return State::kRunning;
    const bool is_well =
        device_.fail_after < 0 ||
        device_.num_copies < static_cast<size_t>(device_.fail_after);
    ++device_.num_copies;
    --device_.num_running;
    if (is_well) Move(copy);
    copies_.erase(found);
    return is_well ? State::kDone : State::kFailed;
  }
  std::string error() const override { return "the fake device is broken"; }

 private:
  struct Copy {
    Bytes to;
    ConstBytes from;
    int polls_left = 0;
  };

  void Move(const Copy& copy) {
    const bool to_device = copy.to.device.kind == DeviceKind::kCuda;
    std::byte* const to =
        to_device ? device_.HostAddress(copy.to.data) : copy.to.data;
    const std::byte* const from =
        to_device ? copy.from.data : device_.HostAddress(copy.from.data);
    std::memcpy(to, from, copy.from.size);
  }

  FakeDevice& device_;
  std::map<Ticket, Copy> copies_;
  std::map<std::byte*, std::pair<std::unique_ptr<std::byte[]>, size_t>> host_;
  Ticket last_ = 0;
};

}  // namespace telegrad::testing
