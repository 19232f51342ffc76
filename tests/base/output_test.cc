#include "base/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/socket.h"

namespace telegrad {
namespace {

class SlowReader : public ::testing::Test {
 protected:
  SlowReader() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    reading_ = UniqueFd(fds[0]);
    writing_ = UniqueFd(fds[1]);
  }
  std::string Take(size_t size) {
    std::string text(size, '\0');
    const ssize_t got = read(reading_.get(), text.data(), size);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

  UniqueFd reading_;
  UniqueFd writing_;
};

TEST_F(SlowReader, GetsAllLaterAndHoldsNobodyUp) {
  Output output(writing_.get());
  output.Write("first\n");
  EXPECT_FALSE(output.is_behind());
  std::string all = "first\n";
  while (all.size() < 300'000) {  // a pipe has 65,536 bytes
    output.Write("some line of progress\n");
    all += "some line of progress\n";
  }
  EXPECT_TRUE(output.is_behind());
  EXPECT_FALSE(output.Flush());
  EXPECT_FALSE(output.Flush(std::chrono::milliseconds(20)));
  std::string taken;
  while (taken.size() < all.size()) {
    taken += Take(1000);
    output.Flush();
  }
  EXPECT_EQ(taken, all);
  EXPECT_TRUE(output.Flush());
  EXPECT_FALSE(output.is_behind());
}

TEST_F(SlowReader, MissesWhatIsMoreThanAMebibyte) {
  Output output(writing_.get());
  const std::string line = std::string(999, 'x') + "\n";
  for (int i = 0; i < 3000; ++i) output.Write(line);
  size_t taken = 0;
  while (!output.Flush()) taken += Take(65536).size();
  writing_.Close();
  for (size_t got; (got = Take(65536).size()) > 0;) taken += got;
  EXPECT_GT(taken, size_t{1} << 20);
  EXPECT_LT(taken, size_t{2} << 20);
  EXPECT_EQ(taken % line.size(), 0u);  // whole lines
}

TEST_F(SlowReader, ThatIsGoneTakesAll) {
  signal(SIGPIPE, SIG_IGN);
  Output output(writing_.get());
  output.Write(std::string(200'000, 'x'));
  EXPECT_FALSE(output.Flush());
  reading_.Close();
  EXPECT_TRUE(output.Flush());
  output.Write("more");
  EXPECT_TRUE(output.Flush());
}

TEST_F(SlowReader, OfLastWordsIsNotWaitedFor) {
  WriteWithin(writing_.get(), "last", std::chrono::hours(1));
  EXPECT_EQ(Take(100), "last");
  WriteWithin(writing_.get(), std::string(200'000, 'x'),
              std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace telegrad
