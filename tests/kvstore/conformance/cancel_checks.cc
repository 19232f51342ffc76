#include <algorithm>
#include <chrono>
#include <cmath>

#include "tests/kvstore/conformance/harness.h"

// Operations that are ended while they run.
namespace telegrad::testing {
namespace {

// With a sanitizer some milliseconds of a store's work.
constexpr size_t kLarge = size_t{1} << 18;

// What is under way when the operation is ended: what this worker sends, where
// the others come later; else also what comes back.
enum class Direction : uint8_t { kThere, kBack };

// Ends an operation while it runs, by `end`, after `before`; its memory must be
// the caller's then. The round goes on without it, and the next one works.
std::string Ended(const StoreKind& traits, const Wrap& wrap,
                  const CompressionConfig& compression, Direction direction,
                  const std::string& transport,
                  const std::function<void(const Ticket&)>& end,
                  Duration before) {
  StoreSetup setup = {.tensors = {{"a", kLarge}},
                      .chunk_elems = kLarge / 64,
                      .compression = compression,
                      .transport = transport};
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    KVStore& store = party.store;
    const bool waits = store.group().num_workers() > 1 && !party.is_first();
    const auto go = [&] {
      findings.ExpectOk(store.group().Gather("go", "").status(), "go");
    };
    if (waits && direction == Direction::kThere) go();
    std::vector<Buffer> grads = party.Make(kLarge, 0.5f);
    std::vector<Buffer> outs = party.Make(kLarge, -7);
    const Ticket ticket = store.PushPull(0, ViewsOf(grads), ViewsOf(outs), 0);
    if (direction == Direction::kBack) go();
    if (waits) {
      findings.ExpectOk(ticket.Wait(Soon()), "round of the others");
      findings.Expect(std::abs(outs[0].as<float>()[0]) > 0, "empty sum");
      // What was pushed counts, also of the operation that is ended.
      const auto sum = 0.5f * static_cast<float>(kContributors * party.devices *
                                                 party.processes);
      const bool is_sum =
          std::all_of(outs[0].as<float>(), outs[0].as<float>() + kLarge,
                      [sum](float x) { return x == sum; });
      findings.Expect(traits.is_async || compression.type != "none" || is_sum,
                      "a sum without what the ended operation pushed");
    } else {
      ticket.WaitUntil(Clock::now() + before);
      end(ticket);
      // Ours again: what we write stays, what we free is not touched.
      for (Buffer& out : outs) std::fill_n(out.as<float>(), kLarge, 3.0f);
      grads.clear();
      if (direction == Direction::kThere) go();
    }
    // The key takes operations again once the old round is over.
    std::vector<Buffer> next = party.Make(kLarge, 0.25f);
    const std::vector<TensorView> views = ViewsOf(next);
    absl::Status status;
    const TimePoint deadline = Soon();
    do {
      status = store.PushPull(0, views, views, 0).Wait(Soon());
    } while (absl::IsFailedPrecondition(status) && Clock::now() < deadline);
    findings.ExpectOk(status, "the next round");
    for (const Buffer& out : outs) {
      const bool is_touched =
          !waits && std::any_of(out.as<float>(), out.as<float>() + kLarge,
                                [](float x) { return x != 3.0f; });
      findings.Expect(!is_touched, "memory was written after the end");
    }
  });
}

}  // namespace

std::string CheckTimeout(const StoreKind& traits, const Wrap& wrap) {
  // At once, so that a store of one process is not done either.
  return Ended(
      traits, wrap, {}, Direction::kThere, "inproc",
      [](const Ticket& ticket) { ticket.Wait(Clock::now()).IgnoreError(); },
      Duration::zero());
}

std::string CheckCancel(const StoreKind& traits, const Wrap& wrap) {
  std::vector<std::string> transports = {"inproc"};
  // What was copied from a device leaves as all does.
  if (traits.has_workers && wrap.place == Place::kHost) {
    transports.push_back("tcp");
  }
  for (const std::string& transport : transports) {
    for (const Direction direction : {Direction::kThere, Direction::kBack}) {
      // Nothing comes back to a store of one process.
      if (direction == Direction::kBack && !traits.has_workers) continue;
      // The codecs take turns: every delay has both.
      bool is_coded = (direction == Direction::kBack) != (transport == "tcp");
      for (const int64_t us : {0, 200, 1000, 5000, 20000}) {
        CompressionConfig compression;
        compression.type = is_coded && !traits.needs_gpus ? "2bit" : "none";
        compression.reply = ReplyMode::kSum;
        is_coded = !is_coded;
        std::string found = Ended(
            traits, wrap, compression, direction, transport,
            [](const Ticket& ticket) { ticket.Cancel(); },
            std::chrono::microseconds(us));
        if (!found.empty()) return found;
      }
    }
  }
  return "";
}

}  // namespace telegrad::testing
