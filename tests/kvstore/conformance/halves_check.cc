#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/kvstore/conformance/harness.h"

// Tensors of 16-bit floats.
namespace telegrad::testing {
namespace {

constexpr size_t kElems = 34;

// (large + 1) * 1.5 in float32, rounded once; large + 1 rounded to the type is
// `large`, so that sums of the type give another answer.
struct Numbers {
  Dtype dtype;
  uint16_t large;   // 2048, 256
  uint16_t one;     // 1
  uint16_t answer;  // 3073.5 and 385.5: the nearest are 3074 and 386
};
constexpr Numbers kNumbers[] = {{Dtype::kFloat16, 0x6800, 0x3C00, 0x6A01},
                                {Dtype::kBfloat16, 0x4380, 0x3F80, 0x43C1}};

void Fill(const Buffer& buffer, uint16_t bits) {
  std::fill_n(buffer.as<uint16_t>(), kElems, bits);
}

bool Holds(const Buffer& buffer, uint16_t bits) {
  return std::count(buffer.as<uint16_t>(), buffer.as<uint16_t>() + kElems,
                    bits) == kElems;
}

void RunRounds(const Party& party, const Numbers& numbers, Findings& findings) {
  KVStore& store = party.store;
  const std::vector<Buffer> memory = party.Make(kElems / 2);
  std::vector<TensorView> views = ViewsOf(memory);
  for (TensorView& view : views) {
    view.dtype = numbers.dtype;
    view.num_elems = kElems;
  }
  const auto expect = [&](uint16_t bits, const char* what) {
    for (const Buffer& each : memory) {
      findings.Expect(Holds(each, bits), absl::StrCat(ToString(numbers.dtype),
                                                      ": another ", what));
    }
  };
  // Before any round: a pull may already get what others broadcast next.
  for (const Buffer& each : memory) Fill(each, numbers.large);
  if (party.is_first()) Fill(memory[0], numbers.one);
  findings.ExpectOk(store.Broadcast(0, 0, views, 0).Wait(Soon()), "broadcast");
  expect(numbers.one, "value");
  for (const bool in_halves : {false, true}) {
    // Of two that are summed first, where there are such.
    for (int i = 0; i < party.count * party.devices; ++i) {
      const int part =
          (party.first * party.devices + i) * party.processes + party.process;
      Fill(memory[static_cast<size_t>(i)], part == 0   ? numbers.large
                                           : part == 1 ? numbers.one
                                                       : uint16_t{0});
    }
    if (in_halves) {
      findings.ExpectOk(store.Push(0, views, 0).Wait(Soon()), "push");
      findings.ExpectOk(store.Pull(0, views, 0).Wait(Soon()), "pull");
    } else {
      findings.ExpectOk(store.PushPull(0, views, views, 0).Wait(Soon()),
                        "round");
    }
    expect(numbers.answer, "sum");
  }
}

}  // namespace

std::string CheckHalves(const StoreKind& traits, const Wrap& wrap) {
  std::string found;
  for (const Numbers& numbers : kNumbers) {
    const StoreSetup setup = {.tensors = {{"a", kElems, numbers.dtype}},
                              .has_values = false,
                              .optimizer = {.result_scale = 1.5f}};
    absl::StrAppend(&found, RunParties(traits, setup, wrap,
                                       [&](Party party, Findings& findings) {
                                         RunRounds(party, numbers, findings);
                                       }));
  }
  return found;
}

}  // namespace telegrad::testing
