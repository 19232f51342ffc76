#include "trainer/report/progress.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "trainer/report/results.h"

namespace telegrad {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr size_t kLeastBarCells = 4;  // else none: what is left is seen
constexpr size_t kMostBarCells = 24;

size_t TerminalColumns(int fd) {
  winsize size{};
  const bool is_known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

double DoneShare(const Progress::State& state) {
  const double per_epoch = static_cast<double>(state.num_batches);
  const double total = per_epoch * state.num_epochs;
  if (total <= 0) return 0;
  const double done =
      per_epoch * state.epoch + static_cast<double>(state.batch);
  return std::clamp(done / total, 0.0, 1.0);
}

// What is left, by the speed since the first look.
class Remaining {
 public:
  void See(double share) {
    if (!start_) {
      start_ = Clock::now();
      share_at_start_ = share;
    }
    share_ = share;
  }
  // Seconds left of this run and `later` more like it. None before anything was
  // done.
  std::optional<double> Seconds(double later) const {
    const double done = share_ - share_at_start_;
    if (!start_ || done <= 0) return std::nullopt;
    return SecondsSince(*start_) * (1 - share_ + later) / done;
  }
  // " 2:41 left"
  std::string Text(double later) const {
    const std::optional<double> left = Seconds(later);
    if (!left) return "";
    const int64_t seconds = static_cast<int64_t>(std::min(*left, 3.6e6));
    return absl::StrFormat(" %d:%02d left", seconds / 60, seconds % 60);
  }

 private:
  std::optional<TimePoint> start_;
  double share_at_start_ = 0;
  double share_ = 0;
};

// Runs that follow, one after the other.
double Later(const Progress::Part& part) {
  return static_cast<double>(part.count - part.number) / part.jobs;
}

std::string Prefix(const std::string& text) {
  return text.empty() ? "" : absl::StrCat(text, "  ");
}

// Lines, those of --disp-batches; before the first one, where that is long in
// coming, another.
class LineProgress : public Progress {
 public:
  LineProgress(Output& display, const Part& part)
      : display_(display), part_(part) {}
  void Update(const State& state) final {
    remaining_.See(DoneShare(state));
    const bool is_early = is_told_ || state.samples_per_s <= 0 ||
                          SecondsSince(start_) < part_.silence_s;
    if (state.is_between && is_early) return;
    is_told_ = true;
    Show(state);
  }
  void Finish() override {}

 protected:
  virtual void Show(const State& state) = 0;
  Output& display_;
  const Part part_;
  Remaining remaining_;

 private:
  const TimePoint start_ = Clock::now();
  bool is_told_ = false;
};

class PlainProgress final : public LineProgress {
 public:
  using LineProgress::LineProgress;
  void Show(const State& state) override {
    std::string line =
        absl::StrFormat("Epoch[%d] Batch [%d]", state.epoch, state.batch);
    if (state.samples_per_s <= 0) {  // gradients without samples
      absl::StrAppend(&line, " of ", state.num_batches);
    } else {
      absl::StrAppendFormat(&line, " Speed: %.2f samples/sec",
                            state.samples_per_s);
      if (state.accuracy >= 0) {
        absl::StrAppendFormat(&line, " accuracy=%.6f", state.accuracy);
      }
    }
    std::string rest = remaining_.Text(Later(part_));
    if (part_.count > 1) {
      rest = absl::StrCat(" run ", part_.number, " of ", part_.count,
                          rest.empty() ? "" : ",", rest);
    }
    Line(rest.empty() ? line : absl::StrCat(line, " ", rest));
  }
  void Line(const std::string& text) override {
    display_.Write(absl::StrCat(Prefix(part_.label), text, "\n"));
  }
};

class BarProgress final : public Progress {
 public:
  BarProgress(Output& display, const Part& part)
      : display_(display),
        later_(Later(part)),
        prefix_(Prefix(part.count == 1
                           ? part.label
                           : absl::StrCat(part.number, " of ", part.count, "  ",
                                          part.label))) {}
  ~BarProgress() override { Finish(); }

  void Update(const State& state) override {
    remaining_.See(DoneShare(state));
    if (state.evaluated < 0 || !last_) {
      last_ = state;
    } else {  // the speed stays that of training
      last_->evaluated = state.evaluated;
    }
    if (is_drawn_ && SecondsSince(drawn_at_) < kRedrawSeconds) return;
    if (!display_.Flush()) return;  // the next one shows more
    Draw();
  }
  void Line(const std::string& text) override {
    display_.Write(absl::StrCat("\r\x1b[K", prefix_, text, "\n"));
    is_drawn_ = false;
  }
  void Finish() override {
    if (!last_) return;
    last_->evaluated = -1;
    Draw();
    display_.Write("\n");
    last_.reset();
    is_drawn_ = false;
  }

 private:
  void Draw() {
    std::string line =
        absl::StrFormat(" epoch %d/%d batch %d/%d", last_->epoch + 1,
                        last_->num_epochs, last_->batch, last_->num_batches);
    if (last_->samples_per_s > 0) {
      absl::StrAppendFormat(&line, " %.*f samples/s",
                            last_->samples_per_s < 10 ? 2 : 0,
                            last_->samples_per_s);
      if (last_->accuracy >= 0) {
        absl::StrAppendFormat(&line, " acc %.4f", last_->accuracy);
      }
    }
    if (last_->evaluated >= 0) {
      absl::StrAppendFormat(&line, " evaluating %.0f %%",
                            100 * last_->evaluated);
    }
    // The time that is left is training's.
    if (last_->evaluated < 0) line += remaining_.Text(later_);
    const size_t columns = TerminalColumns(display_.fd()) - 1;
    const size_t others = prefix_.size() + line.size() + 2;
    const size_t room = columns - std::min(columns, others);
    const size_t cells = std::min(room, kMostBarCells);
    const auto full =
        static_cast<size_t>(DoneShare(*last_) * static_cast<double>(cells));
    const std::string bar = absl::StrCat("[", std::string(full, '='),
                                         std::string(cells - full, ' '), "]");
    line = absl::StrCat(prefix_, cells < kLeastBarCells ? "" : bar, line);
    line.resize(std::min(line.size(), columns));
    display_.Write(absl::StrCat("\r", line, "\x1b[K"));
    drawn_at_ = Clock::now();
    is_drawn_ = true;
  }

  Output& display_;
  const double later_;
  const std::string prefix_;
  Remaining remaining_;
  std::optional<State> last_;
  TimePoint drawn_at_;
  bool is_drawn_ = false;
};

class JsonProgress final : public LineProgress {
 public:
  using LineProgress::LineProgress;
  void Show(const State& state) override {
    nlohmann::ordered_json event = Begin("progress");
    event["epoch"] = state.epoch;
    event["epochs"] = state.num_epochs;
    event["batch"] = state.batch;
    event["batches"] = state.num_batches;
    event["samples_per_s"] = state.samples_per_s;
    event["run_number"] = part_.number;
    event["runs"] = part_.count;
    const auto add = [&](const char* name, std::optional<double> value) {
      event[name] = nullptr;
      if (value) event[name] = *value;
    };
    add("accuracy",
        state.accuracy < 0 ? std::nullopt : std::optional(state.accuracy));
    add("seconds_left", remaining_.Seconds(0));
    add("seconds_left_all", remaining_.Seconds(Later(part_)));
    Write(event);
  }
  void Line(const std::string& text) override {
    nlohmann::ordered_json event = Begin("message");
    event["text"] = text;
    Write(event);
  }

 private:
  nlohmann::ordered_json Begin(const char* what) const {
    return {{"event", what}, {"run", part_.label}};
  }
  void Write(const nlohmann::ordered_json& event) const {
    using Handler = nlohmann::ordered_json::error_handler_t;
    display_.Write(event.dump(-1, ' ', false, Handler::replace) + "\n");
  }
};

}  // namespace

std::unique_ptr<Progress> MakeJsonProgress(Output& display,
                                           const Progress::Part& part) {
  return std::make_unique<JsonProgress>(display, part);
}

std::string ResultEvent(const RunSummary& run) {
  // The result is an object with fields, here without its first brace.
  return "{\"event\":\"result\"," + ToJson(run).substr(1);
}

std::unique_ptr<Progress> MakeProgress(Output& display, bool is_terminal,
                                       const Progress::Part& part) {
  if (is_terminal) return std::make_unique<BarProgress>(display, part);
  return std::make_unique<PlainProgress>(display, part);
}

}  // namespace telegrad
