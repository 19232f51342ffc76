#include "base/metrics.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/metrics_endpoint.h"
#include "base/socket.h"

namespace telegrad {
namespace {

constexpr Metric kSent{"sent_total", MetricType::kCounter, "bytes that left"};
constexpr Metric kTook{"took_seconds", MetricType::kHistogram, "how long"};

TEST(MetricsPage, IsPrometheusText) {
  Metrics metrics(MetricLabels{{"node", "n1"}});
  const auto added = metrics.Add([](MetricsPage& page) {
    page.SetScope({{"rank", "0"}});
    page.Add(kSent, 1e12, {{"codec", "a\"b\\c\nd"}});
    page.Add(kSent, std::numeric_limits<double>::quiet_NaN());
    page.Add(kSent, 7);  // the same labels: the first counts
  });
  EXPECT_EQ(
      metrics.Text(),
      "# HELP sent_total bytes that left\n# TYPE sent_total counter\n"
      "sent_total{node=\"n1\",rank=\"0\",codec=\"a\\\"b\\\\c?d\"} 1e+12\n"
      "sent_total{node=\"n1\",rank=\"0\"} NaN\n"
      "# HELP telegrad_series_left_out series beyond the most that a process "
      "shows\n# TYPE telegrad_series_left_out gauge\n"
      "telegrad_series_left_out 0\n");
}

TEST(MetricsPage, HistogramsAreCumulative) {
  DurationHistogram took;
  took.Add(std::chrono::milliseconds(1));  // a bound belongs to its bucket
  took.Add(std::chrono::milliseconds(3));
  took.Add(std::chrono::seconds(60));
  MetricsPage page({});
  page.Add(kTook, took);
  const std::string text = page.Text();
  for (const char* line :
       {"took_seconds_bucket{le=\"0.0005\"} 0\n",
        "took_seconds_bucket{le=\"0.001\"} 1\n",
        "took_seconds_bucket{le=\"0.005\"} 2\n",
        "took_seconds_bucket{le=\"10\"} 2\n",
        "took_seconds_bucket{le=\"+Inf\"} 3\n", "took_seconds_sum 60.004\n",
        "took_seconds_count 3\n"}) {
    EXPECT_TRUE(absl::StrContains(text, line)) << line << text;
  }
}

TEST(MetricsPage, HasABoundedNumberOfSeries) {
  MetricsPage page({});
  for (int i = 0; i < 1000; ++i) {
    page.Add(kSent, 1, {{"tensor", absl::StrCat(i)}});
  }
  page.Add(kTook, DurationHistogram());
  const std::string text = page.Text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'),
            MetricsPage::kMostSeries + 2 + 3);
  EXPECT_TRUE(absl::StrContains(text, "telegrad_series_left_out 517\n"));
}

TEST(Metrics, ForgetsWhoHasGone) {
  Metrics metrics;
  {
    const auto added =
        metrics.Add([](MetricsPage& page) { page.Add(kSent, 1); });
    EXPECT_TRUE(absl::StrContains(metrics.Text(), "sent_total 1"));
  }
  EXPECT_FALSE(absl::StrContains(metrics.Text(), "sent_total"));
  // But for who asks for the last numbers, unless there are newer ones.
  EXPECT_TRUE(absl::StrContains(metrics.TextOfAll(), "sent_total 1\n"));
  const auto again = metrics.Add([](MetricsPage& page) { page.Add(kSent, 2); });
  EXPECT_TRUE(absl::StrContains(metrics.TextOfAll(), "sent_total 2\n"));
  EXPECT_FALSE(absl::StrContains(metrics.TextOfAll(), "sent_total 1"));
  EXPECT_FALSE(absl::StrContains(Metrics().Text(), "sent_total"));
}

// A scraper, or somebody who is none.
class Visit {
 public:
  explicit Visit(const std::string& address) {
    fd_ = *BeginConnect(*ParseIpPort(address));
    Wait(POLLOUT);
  }
  void Say(const std::string& text) {
    EXPECT_EQ(send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // All until the end of the connection.
  std::string Hear() {
    std::string heard;
    char bytes[4096];
    for (;;) {
      Wait(POLLIN);
      const ssize_t count = recv(fd_.get(), bytes, sizeof(bytes), 0);
      if (count <= 0) return heard;
      heard.append(bytes, static_cast<size_t>(count));
    }
  }

 private:
  void Wait(short events) {
    pollfd polled{.fd = fd_.get(), .events = events, .revents = 0};
    EXPECT_EQ(poll(&polled, 1, 20000), 1);
  }
  UniqueFd fd_;
};

class Endpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    added_ = metrics_.Add([](MetricsPage& page) { page.Add(kSent, 1); });
    auto made = MetricsEndpoint::Start(metrics_, {.port = 0});
    ASSERT_TRUE(made.ok()) << made.status();
    endpoint_ = *std::move(made);
  }
  std::string Ask(const std::string& text) {
    Visit visit(endpoint_->address());
    visit.Say(text);
    return visit.Hear();
  }
  Metrics metrics_;
  Metrics::Registration added_;
  std::unique_ptr<MetricsEndpoint> endpoint_;
};

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

TEST_F(Endpoint, AnswersScrapes) {
  const std::string answer = Ask(kGet);
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  const size_t body = answer.find("\r\n\r\n") + 4;
  EXPECT_EQ(answer.substr(body), metrics_.Text());
  EXPECT_TRUE(absl::StrContains(
      answer, absl::StrCat("Content-Length: ", answer.size() - body, "\r\n")));
}

TEST_F(Endpoint, RefusesWhatIsNoScrape) {
  const std::pair<std::string, const char*> wrong[] = {
      {"POST /metrics HTTP/1.1\r\n\r\n", "405"},
      {"GET /etc/passwd HTTP/1.1\r\n\r\n", "404"},
      {std::string("\0\xff\r\n\r\n", 6), "400"},
      {"GET /metrics\r\n\r\n", "400"},
      {"GET " + std::string(8000, '/'), "431"}};
  for (const auto& [request, code] : wrong) {
    EXPECT_TRUE(absl::StartsWith(Ask(request), absl::StrCat("HTTP/1.1 ", code)))
        << request;
  }
  EXPECT_TRUE(absl::StrContains(Ask(kGet), "200 OK"));
}

// Those that say nothing keep nobody away: the oldest give way.
TEST_F(Endpoint, HasAFewConnectionsAtMost) {
  std::vector<std::unique_ptr<Visit>> silent;
  for (size_t i = 0; i < 3 * MetricsEndpoint::kMost; ++i) {
    silent.push_back(std::make_unique<Visit>(endpoint_->address()));
  }
  EXPECT_TRUE(absl::StrContains(Ask(kGet), "200 OK"));
  EXPECT_EQ(silent.front()->Hear(), "");
}

TEST_F(Endpoint, TakesThePortBehindOneThatIsTaken) {
  const int port = ParseHostPort(endpoint_->address())->port;
  if (port == 65535) GTEST_SKIP() << "no port behind the last one";
  const auto second = MetricsEndpoint::Start(metrics_, {.port = port});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GT(ParseHostPort((*second)->address())->port, port);
}

TEST(MetricsFile, IsWrittenAtTheBeginningAndAtTheEnd) {
  const std::string folder = ::testing::TempDir();
  const std::string path = absl::StrCat(folder, "/telegrad-metrics.prom");
  const auto read = [&path] {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  Metrics metrics;
  auto made = MetricsEndpoint::Start(metrics, {.file = path});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->address(), "");
  EXPECT_EQ(read(), metrics.Text());
  {
    const auto added =
        metrics.Add([](MetricsPage& page) { page.Add(kSent, 1); });
  }
  made->reset();
  EXPECT_TRUE(absl::StrContains(read(), "sent_total 1\n"));
  std::filesystem::remove(path);
  EXPECT_FALSE(
      MetricsEndpoint::Start(metrics, {.file = folder + "/none/a.prom"}).ok());
  EXPECT_EQ(*MetricsEndpoint::Start(metrics, {}), nullptr);
}

}  // namespace
}  // namespace telegrad
