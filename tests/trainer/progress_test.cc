#include "trainer/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace telegrad {
namespace {

// What `use` makes a progress display write.
template <typename Use>
std::string Written(bool is_terminal, Use use) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  {
    const auto progress = MakeProgress(ends[1], is_terminal, "2bit, seed 0");
    use(*progress);
    progress->Finish();
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t got; (got = read(ends[0], part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  return text;
}

TEST(Progress, PlainLinesAreMxnets) {
  const std::string text = Written(false, [](Progress& progress) {
    progress.Update({.epoch = 0,
                     .num_epochs = 2,
                     .batch = 50,
                     .num_batches = 100,
                     .samples_per_s = 1234.56,
                     .accuracy = 0.912345});
    progress.Line("Epoch[0] Validation-accuracy=0.981200");
  });
  EXPECT_EQ(text,
            "2bit, seed 0  Epoch[0] Batch [50] Speed: 1234.56 samples/sec "
            "accuracy=0.912345\n"
            "2bit, seed 0  Epoch[0] Validation-accuracy=0.981200\n");
}

TEST(Progress, TheBarIsRedrawnAtMostTenTimesASecondAndEndsFull) {
  const std::string text = Written(true, [](Progress& progress) {
    for (int batch = 1; batch <= 1000; ++batch) {
      progress.Update({.epoch = 0,
                       .num_epochs = 1,
                       .batch = batch,
                       .num_batches = 1000,
                       .samples_per_s = 10,
                       .accuracy = 0.5});
    }
  });
  // 1000 updates take far below 5 s; each redraw starts with a return.
  EXPECT_LT(std::count(text.begin(), text.end(), '\r'), 50);
  EXPECT_NE(text.find("[========================]"), std::string::npos);
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace telegrad
