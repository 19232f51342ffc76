#include "kvstore/ps/wire/link_probe.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <vector>

// On links that are made up, in a time that is made up.
namespace telegrad {
namespace {

using std::chrono::milliseconds;

struct LinkModel {
  double out = 0;         // bytes/s
  double in = 0;          // bytes/s
  double delay_s = 0;     // one way
  double burst = 0;       // bytes that go out at `burst_rate`, once
  double burst_rate = 0;  // bytes/s
};

// Seconds of a core.
struct CpuModel {
  double frame_s = 0;  // sent or received
  double byte_s = 0;   // sent or received
  bool polls = false;
};

// Servers that answer at once, behind links that send one message after the
// other.
class Simulation {
 public:
  explicit Simulation(std::vector<LinkModel> models, const CpuModel& cpu = {})
      : models_(std::move(models)),
        cpu_(cpu),
        out_free_(models_.size(), 0),
        in_free_(models_.size(), 0),
        probe_(
            models_.size(), kMost, milliseconds(150),
            [this](size_t server, const ProbeFrame& frame) {
              Send(server, frame);
            },
            [this] { return cpu_.polls ? now_ : cpu_s_; }) {}

  void Run() {
    probe_.Start(At(0));
    while (!answers_.empty()) {
      const auto next = std::min_element(
          answers_.begin(), answers_.end(),
          [](const Answer& a, const Answer& b) { return a.at < b.at; });
      const Answer answer = *next;
      answers_.erase(next);
      now_ = answer.at;
      ASSERT_TRUE(probe_.BeginAnswer(answer.server, answer.bytes));
      probe_.OnAnswer(answer.server, At(now_));
    }
    ASSERT_TRUE(probe_.is_done());
  }

  double now() const { return now_; }
  int64_t bytes() const { return bytes_; }
  LinkProbe& probe() { return probe_; }

  static constexpr uint32_t kMost = 1 << 20;

 private:
  struct Answer {
    double at = 0;
    size_t server = 0;
    uint32_t bytes = 0;
  };

  static TimePoint At(double seconds) {
    return TimePoint() + std::chrono::hours(1) + FromSeconds(seconds);
  }

  void Send(size_t server, const ProbeFrame& frame) {
    EXPECT_LE(frame.payload_bytes, kMost);
    EXPECT_LE(frame.answer_bytes, kMost);
    LinkModel& model = models_[server];
    bytes_ += frame.payload_bytes + frame.answer_bytes;
    cpu_s_ += 2 * cpu_.frame_s +
              cpu_.byte_s * (frame.payload_bytes + frame.answer_bytes);
    double bytes = frame.payload_bytes;
    double takes = 0;
    if (model.burst > 0) {
      const double quick = std::min(model.burst, bytes);
      model.burst -= quick;
      bytes -= quick;
      takes += quick / model.burst_rate;
    }
    takes += bytes / model.out;
    out_free_[server] = std::max(out_free_[server], now_) + takes;
    const double there = out_free_[server] + model.delay_s;
    in_free_[server] =
        std::max(in_free_[server], there) + frame.answer_bytes / model.in;
    answers_.push_back(
        {in_free_[server] + model.delay_s, server, frame.answer_bytes});
  }

  std::vector<LinkModel> models_;
  CpuModel cpu_;
  double cpu_s_ = 0;
  std::vector<double> out_free_;
  std::vector<double> in_free_;
  std::deque<Answer> answers_;
  double now_ = 0;
  int64_t bytes_ = 0;
  LinkProbe probe_;
};

TEST(LinkProbe, FindsBothRatesAndTheLatency) {
  for (const double rate : {1.25e6, 12.5e6, 125e6, 1.25e9, 12.5e9}) {
    Simulation simulation({{.out = rate, .in = rate / 2, .delay_s = 50e-6}});
    simulation.Run();
    const LinkProbe::Speeds speeds = simulation.probe().speeds()[0];
    EXPECT_NEAR(speeds.round_trip_s, 100e-6, 1e-9) << rate;
    EXPECT_LE(speeds.send, rate * 1.0001);
    EXPECT_GE(speeds.send, rate * 0.9);
    EXPECT_LE(speeds.receive, rate / 2 * 1.0001);
    EXPECT_GE(speeds.receive, rate / 2 * 0.9);
    EXPECT_LT(simulation.now(), 0.2) << rate;
  }
}

TEST(LinkProbe, ADistantLinkIsNotTakenForASlowOne) {
  Simulation simulation({{.out = 12.5e6, .in = 12.5e6, .delay_s = 5e-3}});
  simulation.Run();
  const LinkProbe::Speeds speeds = simulation.probe().speeds()[0];
  EXPECT_NEAR(speeds.round_trip_s, 10e-3, 1e-6);
  EXPECT_NEAR(speeds.send, 12.5e6, 1.25e6);
  EXPECT_NEAR(speeds.receive, 12.5e6, 1.25e6);
}

TEST(LinkProbe, LeavesOutTheBurstOfAShapedLink) {
  Simulation simulation({{.out = 125e6,
                          .in = 125e6,
                          .delay_s = 50e-6,
                          .burst = 2e6,
                          .burst_rate = 5e9}});
  simulation.Run();
  const LinkProbe::Speeds speeds = simulation.probe().speeds()[0];
  EXPECT_LE(speeds.send, 125e6 * 1.0001);
  EXPECT_GE(speeds.send, 125e6 * 0.9);
}

TEST(LinkProbe, MeasuresAllServersAtOnce) {
  Simulation simulation({{.out = 10e6, .in = 10e6, .delay_s = 1e-3},
                         {.out = 200e6, .in = 200e6, .delay_s = 10e-6}});
  simulation.Run();
  const std::vector<LinkProbe::Speeds> speeds = simulation.probe().speeds();
  EXPECT_NEAR(speeds[0].send, 10e6, 1e6);
  EXPECT_NEAR(speeds[1].send, 200e6, 20e6);
  EXPECT_NEAR(speeds[0].round_trip_s, 2e-3, 1e-6);
  EXPECT_NEAR(speeds[1].round_trip_s, 20e-6, 1e-6);
  EXPECT_LT(simulation.now(), 0.2);
}

TEST(LinkProbe, CountsWhatFramesAndBytesTakeOfCores) {
  for (const size_t servers : {1, 3}) {
    const std::vector<LinkModel> links(
        servers, {.out = 1.25e9, .in = 1.25e9, .delay_s = 50e-6});
    Simulation simulation(links, {.frame_s = 4e-6, .byte_s = 2e-10});
    simulation.Run();
    EXPECT_NEAR(simulation.probe().costs().frame_s, 4e-6, 1e-9);
    EXPECT_NEAR(simulation.probe().costs().byte_s, 2e-10, 1e-13);
  }
}

TEST(LinkProbe, ThreadsThatPollSayNothingOfCosts) {
  Simulation simulation({{.out = 1.25e9, .in = 1.25e9, .delay_s = 50e-6}},
                        {.polls = true});
  simulation.Run();
  EXPECT_EQ(simulation.probe().costs(), LinkProbe::Costs());
}

TEST(LinkProbe, EndsOnALinkOfAnySpeed) {
  Simulation slow({{.out = 1e4, .in = 1e4, .delay_s = 0.5}});
  slow.Run();
  EXPECT_LT(slow.bytes(), 150e3);
  EXPECT_GT(slow.probe().speeds()[0].send, 0);
  Simulation fast({{.out = 1e14, .in = 1e14, .delay_s = 1e-9}});
  fast.Run();
  EXPECT_LT(fast.bytes(), int64_t{5} << 28);
}

TEST(LinkProbe, TakesNoAnswerThatItDidNotAskFor) {
  std::vector<ProbeFrame> sent;
  LinkProbe probe(
      2, 1 << 20, milliseconds(150),
      [&](size_t, const ProbeFrame& frame) { sent.push_back(frame); });
  EXPECT_FALSE(probe.BeginAnswer(0, 0));  // nothing was sent
  probe.Start(TimePoint());
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0], ProbeFrame());
  EXPECT_FALSE(probe.BeginAnswer(2, 0));
  EXPECT_FALSE(probe.BeginAnswer(0, 1));
  EXPECT_TRUE(probe.BeginAnswer(0, 0));
  EXPECT_FALSE(probe.BeginAnswer(0, 0));  // there was one
  EXPECT_TRUE(probe.BeginAnswer(1, 0));
}

TEST(LinkProbe, KeepsAllBuffersOfAMemberSmall) {
  EXPECT_EQ(MaxProbeBytes(1, 1), kMostProbeBytes);
  EXPECT_EQ(MaxProbeBytes(64, 1), 512u << 10);
  EXPECT_EQ(MaxProbeBytes(1, 64), 512u << 10);
  EXPECT_EQ(MaxProbeBytes(32767, 1), kLeastProbeBytes);
  EXPECT_EQ(MaxProbeBytes(0, 0), kMostProbeBytes);
}

}  // namespace
}  // namespace telegrad
