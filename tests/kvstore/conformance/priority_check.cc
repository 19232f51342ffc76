#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/kvstore/conformance/harness.h"

// Larger priorities go first.
namespace telegrad::testing {
namespace {

constexpr size_t kUrgencies = 16;
constexpr size_t kUrgentElems = size_t{1} << 16;
// Of pairs of tensors. All would be in the order of priorities but for those
// with what has begun before others were started; where priorities are ignored,
// at most a half, which answers that come together can turn around.
constexpr size_t kEnough = kUrgencies * (kUrgencies - 1) / 3;  // two thirds
// A thread that is long without a core starts a tensor when all before are
// done; that it does so each time is as good as impossible.
constexpr int kTries = 20;

// Starts all tensors, the most urgent last. Of how many pairs it was done first
// that was started later.
size_t PairsByPriority(KVStore& store, const std::vector<TensorView>& views,
                       Findings& findings) {
  const size_t devices = views.size() / kUrgencies;
  CompletionQueue queue;
  for (size_t i = 0; i < kUrgencies; ++i) {
    const TensorViews mine = TensorViews(views).subspan(i * devices, devices);
    store.PushPull(static_cast<Key>(i), mine, mine, static_cast<int>(i))
        .NotifyTo(queue, i);
  }
  size_t pairs = 0;
  std::vector<uint64_t> order;
  for (size_t i = 0; i < kUrgencies; ++i) {
    const uint64_t done = queue.Next(Soon()).value_or(kUrgencies);
    findings.Expect(done < kUrgencies, "a tensor is not done");
    pairs += static_cast<size_t>(
        std::count_if(order.begin(), order.end(),
                      [done](uint64_t before) { return before > done; }));
    order.push_back(done);
  }
  return pairs;
}

}  // namespace

std::string CheckPriorities(const StoreKind& traits, const Wrap& wrap) {
  StoreSetup setup = {.tensors = {}, .chunk_elems = kUrgentElems / 4};
  for (size_t i = 0; i < kUrgencies; ++i) {
    setup.tensors.push_back({absl::StrCat("t", i), kUrgentElems});
  }
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    std::vector<Buffer> memory;
    for (size_t i = 0; i < kUrgencies; ++i) {
      for (Buffer& each : party.Make(kUrgentElems)) {
        memory.push_back(std::move(each));
      }
    }
    const std::vector<TensorView> views = ViewsOf(memory);
    bool is_seen = false;
    for (int i = 0; i < kTries && !is_seen; ++i) {
      const bool is_enough =
          PairsByPriority(party.store, views, findings) > kEnough;
      const auto all =
          party.store.group().Gather("seen", is_enough ? "yes" : "no");
      findings.ExpectOk(all.status(), "gather");
      if (!all.ok()) return;
      is_seen = std::find(all->begin(), all->end(), "yes") != all->end();
    }
    findings.Expect(is_seen, "tensors are done in the order of their start");
  });
}

}  // namespace telegrad::testing
