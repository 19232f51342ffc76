#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace telegrad {
namespace {

TEST(ThreadPool, LargerPriorityFirstThenOrderOfPosting) {
  ThreadPool pool(1);
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  std::promise<void> started;
  std::promise<void> finished;
  std::vector<int> order;
  pool.Post(100, [&] {
    started.set_value();
    opened.wait();
  });
  started.get_future().wait();
  pool.Post(1, [&] { order.push_back(1); });
  pool.Post(5, [&] { order.push_back(5); });
  pool.Post(1, [&] { order.push_back(2); });
  pool.Post(-9, [&] { finished.set_value(); });
  gate.set_value();
  finished.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{5, 1, 2}));
}

TEST(ThreadPool, WithoutThreadsJobsRunInPost) {
  ThreadPool pool(0);
  int runs = 0;
  pool.Post(0, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace telegrad
