#include "trainer/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "trainer/results.h"

namespace telegrad {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr size_t kLeastBarCells = 4;  // so that what is left is seen, too
constexpr size_t kMostBarCells = 24;

// A display that is gone must not end the training: errors are dropped.
void WriteText(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

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
  // None before anything was done.
  std::optional<double> Seconds() const {
    const double done = share_ - share_at_start_;
    if (!start_ || done <= 0) return std::nullopt;
    return SecondsSince(*start_) * (1 - share_) / done;
  }

 private:
  std::optional<TimePoint> start_;
  double share_at_start_ = 0;
  double share_ = 0;
};

class PlainProgress final : public Progress {
 public:
  PlainProgress(int fd, const std::string& label)
      : fd_(fd), prefix_(label.empty() ? "" : absl::StrCat(label, "  ")) {}

  void Update(const State& state) override {
    if (state.is_between) return;
    if (state.samples_per_s <= 0) {  // gradients without samples
      Line(absl::StrFormat("Epoch[%d] Batch [%d] of %d", state.epoch,
                           state.batch, state.num_batches));
      return;
    }
    Line(absl::StrFormat(
        "Epoch[%d] Batch [%d] Speed: %.2f samples/sec accuracy=%.6f",
        state.epoch, state.batch, state.samples_per_s, state.accuracy));
  }
  void Line(const std::string& text) override {
    WriteText(fd_, absl::StrCat(prefix_, text, "\n"));
  }
  void Finish() override {}

 private:
  const int fd_;
  const std::string prefix_;
};

class BarProgress final : public Progress {
 public:
  BarProgress(int fd, const std::string& label)
      : fd_(fd), prefix_(label.empty() ? "" : absl::StrCat(label, "  ")) {}
  ~BarProgress() override { Finish(); }

  void Update(const State& state) override {
    remaining_.See(DoneShare(state));
    if (state.evaluated < 0 || !last_) {
      last_ = state;
    } else {  // the speed stays that of training
      last_->evaluated = state.evaluated;
    }
    if (is_drawn_ && SecondsSince(drawn_at_) < kRedrawSeconds) return;
    Draw();
  }
  void Line(const std::string& text) override {
    WriteText(fd_, absl::StrCat("\r\x1b[K", prefix_, text, "\n"));
    is_drawn_ = false;
  }
  void Finish() override {
    if (!last_) return;
    last_->evaluated = -1;
    Draw();
    WriteText(fd_, "\n");
    last_.reset();
    is_drawn_ = false;
  }

 private:
  void Draw() {
    std::string line =
        absl::StrFormat(" epoch %d/%d batch %d/%d", last_->epoch + 1,
                        last_->num_epochs, last_->batch, last_->num_batches);
    if (last_->samples_per_s > 0) {
      absl::StrAppendFormat(&line, " %.0f samples/s", last_->samples_per_s);
      if (last_->accuracy >= 0) {
        absl::StrAppendFormat(&line, " acc %.4f", last_->accuracy);
      }
    }
    if (last_->evaluated >= 0) {
      absl::StrAppendFormat(&line, " evaluating %.0f %%",
                            100 * last_->evaluated);
    }
    if (last_->evaluated < 0) line += TimeLeft();  // of training
    const size_t columns = TerminalColumns(fd_) - 1;
    const size_t others = prefix_.size() + line.size() + 2;
    const size_t cells = std::clamp(columns - std::min(columns, others),
                                    kLeastBarCells, kMostBarCells);
    const auto full =
        static_cast<size_t>(DoneShare(*last_) * static_cast<double>(cells));
    line = absl::StrCat(prefix_, "[", std::string(full, '='),
                        std::string(cells - full, ' '), "]", line);
    line.resize(std::min(line.size(), columns));
    WriteText(fd_, absl::StrCat("\r", line, "\x1b[K"));
    drawn_at_ = Clock::now();
    is_drawn_ = true;
  }
  std::string TimeLeft() const {
    const std::optional<double> left = remaining_.Seconds();
    if (!left) return "";
    const int64_t seconds = static_cast<int64_t>(std::min(*left, 3.6e6));
    return absl::StrFormat(" %d:%02d left", seconds / 60, seconds % 60);
  }

  const int fd_;
  const std::string prefix_;
  Remaining remaining_;
  std::optional<State> last_;
  TimePoint drawn_at_;
  bool is_drawn_ = false;
};

class JsonProgress final : public Progress {
 public:
  JsonProgress(int fd, std::string label) : fd_(fd), label_(std::move(label)) {}

  void Update(const State& state) override {
    remaining_.See(DoneShare(state));
    if (state.is_between) return;
    nlohmann::ordered_json event = Begin("progress");
    event["epoch"] = state.epoch;
    event["epochs"] = state.num_epochs;
    event["batch"] = state.batch;
    event["batches"] = state.num_batches;
    event["samples_per_s"] = state.samples_per_s;
    event["accuracy"] = state.accuracy;
    const std::optional<double> left = remaining_.Seconds();
    event["seconds_left"] = nullptr;
    if (left) event["seconds_left"] = *left;
    Write(event);
  }
  void Line(const std::string& text) override {
    nlohmann::ordered_json event = Begin("message");
    event["text"] = text;
    Write(event);
  }
  void Finish() override {}

 private:
  nlohmann::ordered_json Begin(const char* what) const {
    return {{"event", what}, {"run", label_}};
  }
  void Write(const nlohmann::ordered_json& event) const {
    using Handler = nlohmann::ordered_json::error_handler_t;
    WriteText(fd_, event.dump(-1, ' ', false, Handler::replace) + "\n");
  }

  const int fd_;
  const std::string label_;
  Remaining remaining_;
};

}  // namespace

std::unique_ptr<Progress> MakeJsonProgress(int fd, const std::string& label) {
  return std::make_unique<JsonProgress>(fd, label);
}

std::string ResultEvent(const RunSummary& run) {
  // Of an object with fields, without its first brace.
  return "{\"event\":\"result\"," + ToJson(run).substr(1);
}

std::unique_ptr<Progress> MakeProgress(int fd, bool is_terminal,
                                       const std::string& label) {
  if (is_terminal) return std::make_unique<BarProgress>(fd, label);
  return std::make_unique<PlainProgress>(fd, label);
}

}  // namespace telegrad
