#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kvstore/optimizer.h"
#include "tests/kvstore/conformance/harness.h"
#include "tests/kvstore/row_buffers.h"

// Pushes and pulls of some rows of a tensor, beside those of all.
namespace telegrad::testing {
namespace {

constexpr Key kTable = 1;
constexpr size_t kTableElems = kRows * kRowElems;
constexpr int kRowSteps = 7;
// Steps after which nobody pulls, or the last worker alone.
constexpr int kUnreadStep = 1;
constexpr int kReadByLastStep = 3;
constexpr int kWholeStep = 4;

// What contributors' devices and processes push are parts, in their order.
int PartOf(const Party& party, int device) {
  return (party.first * party.devices + device) * party.processes +
         party.process;
}
int NumParts(const StoreKind& kind) {
  return kContributors * kind.processes *
         (kind.has_workers ? kind.max_devices : 1);
}

// In kWholeStep the first worker pushes the whole tensor.
int NumWholeParts(const StoreKind& kind) {
  return kind.processes > 1 ? 1 : NumParts(kind) / (kind.has_workers ? 2 : 1);
}

RowBuffer WithGradients(std::vector<int64_t> rows, int part, int step) {
  RowBuffer grad(std::move(rows));
  for (size_t i = 0; i < kRowElems * grad.rows.size(); ++i) {
    grad.memory.as<float>()[i] = GradOf(part, step, i);
  }
  return grad;
}

RowBuffer PartOfStep(const StoreKind& kind, int part, int step) {
  switch (step) {
    case kUnreadStep:  // no row of another part's
      return WithGradients({40 + part, part}, part, step);
    case 2:  // some without any row
      return part == 1 ? RowGradient(part, step) : RowBuffer({});
    case kReadByLastStep:  // all
      return RowBuffer({});
    case kWholeStep:
      if (part < NumWholeParts(kind)) {
        return WithGradients(AllRows(), part, step);
      }
      [[fallthrough]];
    default:  // some of others' rows, out of order, one of them twice
      return RowGradient(part, step);
  }
}

float BroadcastOf(size_t i) { return 2 * ValueOf(kTable, i); }

// What pulls give after each step: sums, or the optimizer's weights.
std::vector<std::vector<float>> ResultsOf(const StoreKind& kind,
                                          const OptimizerConfig& optimizer) {
  std::vector<float> weights(kTableElems);
  for (size_t i = 0; i < kTableElems; ++i) weights[i] = BroadcastOf(i);
  OptimizerState state;
  std::vector<std::vector<float>> results;
  for (int step = 0; step < kRowSteps; ++step) {
    std::vector<float> sums(kTableElems);
    for (int part = 0; part < NumParts(kind); ++part) {
      AddTo(PartOfStep(kind, part, step), sums);
    }
    if (optimizer.update_on == UpdateOn::kServer) {
      state.Step(optimizer, {}, sums.data(), kTableElems, weights.data(), {});
      sums = weights;
    }
    results.push_back(std::move(sums));
  }
  return results;
}

std::vector<TensorView> RowViews(const std::vector<RowBuffer>& buffers) {
  std::vector<TensorView> views;
  for (const RowBuffer& each : buffers) views.push_back(each.view());
  return views;
}

// The same rows on all of this worker's devices.
std::vector<RowBuffer> OnAll(const Party& party, std::vector<int64_t> rows,
                             float value = -1) {
  std::vector<RowBuffer> all;
  for (int i = 0; i < party.count * party.devices; ++i) {
    all.emplace_back(rows, value);
  }
  return all;
}

bool HasValues(const Buffer& buffer, const std::vector<float>& expected) {
  return std::memcmp(buffer.data(), expected.data(), 4 * expected.size()) == 0;
}

// Some rows, in any order, each device others; none; and the whole tensor.
void ExpectPulls(const Party& party, const std::vector<float>& expected,
                 const std::string& what, Findings& findings) {
  KVStore& store = party.store;
  std::vector<RowBuffer> asked;
  for (int i = 0; i < party.count * party.devices; ++i) {
    const int64_t part = PartOf(party, i);
    asked.emplace_back(std::vector<int64_t>{49, 3, 3, part, 0, 17, 22, 49}, -1);
  }
  findings.ExpectOk(store.Pull(kTable, RowViews(asked), 0).Wait(Soon()),
                    "pull of rows");
  for (const RowBuffer& got : asked) {
    for (size_t i = 0; i < got.rows.size(); ++i) {
      const auto row = static_cast<size_t>(got.rows[i]);
      findings.Expect(
          std::memcmp(got.memory.as<float>() + i * kRowElems,
                      expected.data() + row * kRowElems, 4 * kRowElems) == 0,
          absl::StrCat("row ", row, " is not ", what));
    }
  }
  findings.ExpectOk(
      store.Pull(kTable, RowViews(OnAll(party, {})), 0).Wait(Soon()),
      "pull of no row");
  const std::vector<Buffer> whole = party.Make(kTableElems, -1);
  findings.ExpectOk(store.Pull(kTable, ViewsOf(whole), 0).Wait(Soon()),
                    "pull of all");
  for (const Buffer& each : whole) {
    findings.Expect(HasValues(each, expected),
                    absl::StrCat("the whole tensor is not ", what));
  }
}

// The whole tensor is pushed and pulled at once, where it gives the result.
void PushStep(const Party& party, const StoreKind& kind, int step,
              const std::vector<float>& expected, Findings& findings) {
  std::vector<RowBuffer> grads;
  for (int i = 0; i < party.count * party.devices; ++i) {
    grads.push_back(PartOfStep(kind, PartOf(party, i), step));
  }
  std::vector<TensorView> views = RowViews(grads);
  const bool is_whole =
      step == kWholeStep && PartOf(party, 0) < NumWholeParts(kind);
  if (!is_whole) {
    findings.ExpectOk(party.store.Push(kTable, views, 0).Wait(Soon()),
                      "push of rows");
    return;
  }
  for (TensorView& view : views) view.rows.reset();
  findings.ExpectOk(party.store.PushPull(kTable, views, views, 0).Wait(Soon()),
                    "push of all");
  for (const RowBuffer& each : grads) {
    findings.Expect(kind.is_async || HasValues(each.memory, expected),
                    "another sum of rows and a whole tensor");
  }
}

// Values and what a worker broadcasts, then rounds. Asynchronous stores have
// the rounds' results once all have pushed.
std::string RunRowSteps(const StoreKind& kind, const Wrap& wrap,
                        const OptimizerConfig& optimizer) {
  const auto results = ResultsOf(kind, optimizer);
  std::vector<float> first(kTableElems);
  std::vector<float> given(kTableElems);
  for (size_t i = 0; i < kTableElems; ++i) {
    first[i] = ValueOf(kTable, i);
    given[i] = BroadcastOf(i);
  }
  const TensorSpec empty = {.name = "empty", .row_elems = kRowElems};
  const StoreSetup setup = {.tensors = {{"dense", 33}, Table(), empty},
                            .compression = {.type = "2bit"},  // not of rows
                            .optimizer = optimizer};
  return RunParties(kind, setup, wrap, [&](Party party, Findings& findings) {
    KVStore& store = party.store;
    const auto meet = [&] {
      findings.ExpectOk(store.group().Gather("rows", "").status(), "gather");
    };
    ExpectPulls(party, first, "the first value", findings);
    meet();
    const int root = store.group().num_workers() - 1;
    const std::vector<Buffer> values = party.Make(kTableElems);
    if (store.group().rank() == root) {
      std::copy(given.begin(), given.end(), values[0].as<float>());
    }
    findings.ExpectOk(
        store.Broadcast(kTable, root, ViewsOf(values), 0).Wait(Soon()),
        "broadcast");
    ExpectPulls(party, given, "what was broadcast", findings);
    const std::vector<RowBuffer> none = OnAll(party, {});
    findings.ExpectOk(store.Push(2, RowViews(none), 0).Wait(Soon()),
                      "push of a table without rows");
    findings.ExpectOk(store.Pull(2, RowViews(none), 0).Wait(Soon()),
                      "pull of a table without rows");
    if (kind.is_async) meet();
    for (int step = 0; step < kRowSteps; ++step) {
      const std::vector<float>& result = results[static_cast<size_t>(step)];
      PushStep(party, kind, step, result, findings);
      if (kind.is_async) meet();
      const bool is_read =
          step != kReadByLastStep || root == 0 || store.group().rank() == root;
      if (step != kUnreadStep && is_read) {
        ExpectPulls(party, result, absl::StrCat("that of step ", step),
                    findings);
      }
      if (kind.is_async) meet();
    }
  });
}

void CheckIds(const Party& party, Findings& findings) {
  KVStore& store = party.store;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto push = [&](Key key, const std::vector<TensorView>& views) {
    return store.Push(key, views, 0).Wait(Soon());
  };
  for (const int64_t row : {int64_t{-1}, int64_t{50}, INT64_MAX, INT64_MIN}) {
    // Of the last device, which the others' must not hide.
    std::vector<RowBuffer> rows = OnAll(party, {3, 1});
    rows.back().rows[1] = row;
    const std::string says =
        absl::StrCat("table has rows 0 to 49; a view has row ", row);
    findings.ExpectError(push(kTable, RowViews(rows)), invalid, says);
    findings.ExpectError(store.Pull(kTable, RowViews(rows), 0).Wait(Soon()),
                         invalid, says);
  }
  const std::vector<RowBuffer> one = OnAll(party, {0});
  findings.ExpectError(push(0, RowViews(one)), invalid,
                       "tensor dense has no rows");
  std::vector<RowBuffer> few = OnAll(party, {1, 2});
  few.back().rows.push_back(3);
  findings.ExpectError(push(kTable, RowViews(few)), invalid, "84 bytes");
  std::vector<TensorView> views = RowViews(one);
  views.back().dtype = Dtype::kFloat16;
  findings.ExpectError(push(kTable, views), invalid, "float16");
  views = RowViews(one);
  views.push_back(views[0]);
  findings.ExpectError(push(kTable, views), invalid, "views in a store of");
  if (one.size() < 2) return;
  const Buffer whole(4 * kTableElems);
  views = RowViews(one);
  views.back() = FloatTensor(whole.view());
  findings.ExpectError(push(kTable, views), invalid,
                       "views with row ids and without");
}

void CheckRowOperations(const Party& party, Findings& findings) {
  KVStore& store = party.store;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const std::vector<RowBuffer> one = OnAll(party, {0});
  const std::vector<TensorView> rows = RowViews(one);
  const std::vector<Buffer> memory = party.Make(kTableElems);
  const std::vector<TensorView> all = ViewsOf(memory);
  for (const auto& [in, out] : {std::pair(rows, all), std::pair(all, rows)}) {
    findings.ExpectError(store.PushPull(kTable, in, out, 0).Wait(Soon()),
                         invalid, "one after the other");
  }
  findings.ExpectError(store.Broadcast(kTable, 0, rows, 0).Wait(Soon()),
                       invalid, "some rows");
  if (!store.traits().is_async) {  // whose tensors have values
    findings.ExpectError(store.Pull(kTable, rows, 0).Wait(Soon()),
                         absl::StatusCode::kFailedPrecondition, "no value");
  }
  const std::vector<TensorSpec> odd = {
      {.name = "odd", .num_elems = 10, .row_elems = 3}};
  findings.ExpectError(store.Init(odd, {}).status(), invalid,
                       "odd of 10 elements in rows of 3");
}

constexpr uint8_t kByte = 0x3C;

// Tensors of which a store takes no rows, but all as of any other.
std::string RunDense(const StoreKind& kind, const Wrap& wrap, Dtype dtype) {
  TensorSpec table = Table();
  table.dtype = dtype;
  const StoreSetup setup = {.tensors = {table}, .has_values = false};
  return RunParties(kind, setup, wrap, [&](Party party, Findings& findings) {
    KVStore& store = party.store;
    const bool is_on_host = !party.is_on_device(party.first) &&
                            !party.is_on_device(party.first + party.count - 1);
    const std::vector<RowBuffer> one = OnAll(party, {0});
    const std::vector<TensorView> rows = RowViews(one);
    const auto refuse = [&](absl::StatusCode code, const std::string& word) {
      findings.ExpectError(store.Push(0, rows, 0).Wait(Soon()), code, word);
      findings.ExpectError(store.Pull(0, rows, 0).Wait(Soon()), code, word);
    };
    if (kind.needs_gpus) {
      refuse(absl::StatusCode::kInvalidArgument, "in stores that take them");
    } else if (dtype != Dtype::kFloat32 || !is_on_host) {
      refuse(absl::StatusCode::kUnimplemented,
             "rows are of float32 in host memory");
    }
    // Of one part alone numbers whose bytes are the same in each type.
    const std::vector<Buffer> memory =
        party.Make(kTableElems * SizeOf(dtype) / 4);
    if (party.is_first())
      std::memset(memory[0].data(), kByte, memory[0].size());
    std::vector<TensorView> views = ViewsOf(memory);
    for (TensorView& view : views) {
      view.dtype = dtype;
      view.num_elems = kTableElems;
    }
    findings.ExpectOk(store.PushPull(0, views, views, 0).Wait(Soon()),
                      "round of all rows");
    for (const Buffer& each : memory) {
      findings.Expect(
          std::all_of(each.data(), each.data() + each.size(),
                      [](std::byte byte) { return byte == std::byte{kByte}; }),
          absl::StrCat("another sum of ", ToString(dtype)));
    }
  });
}

}  // namespace

// With an optimizer as if whole tensors with zeros had been pushed.
std::string CheckRows(const StoreKind& kind, const Wrap& wrap) {
  OptimizerConfig optimizer = {.update_on = UpdateOn::kServer,
                               .sgd = {.learning_rate = 1, .rescale = -1}};
  if (kind.is_async) return RunRowSteps(kind, wrap, optimizer);
  optimizer.kind = OptimizerKind::kAdam;
  return RunRowSteps(kind, wrap, {}) + RunRowSteps(kind, wrap, optimizer);
}

std::string CheckRowMisuse(const StoreKind& kind, const Wrap& wrap) {
  const StoreSetup setup = {.tensors = {{"dense", 33}, Table()},
                            .has_values = false};
  return RunParties(kind, setup, wrap, [&](Party party, Findings& findings) {
    KVStore& store = party.store;
    CheckIds(party, findings);
    CheckRowOperations(party, findings);
    // As if nothing had happened.
    const std::vector<RowBuffer> rows = OnAll(party, {4, 49}, 0.5f);
    findings.ExpectOk(store.Push(kTable, RowViews(rows), 0).Wait(Soon()),
                      "push of rows");
    findings.ExpectOk(store.group().Gather("pushed", "").status(), "gather");
    findings.ExpectOk(store.Pull(kTable, RowViews(rows), 0).Wait(Soon()),
                      "pull of rows");
    const float start = kind.is_async ? ValueOf(kTable, 49 * kRowElems) : 0.0f;
    findings.Expect(rows[0].memory.as<float>()[kRowElems] ==
                        start + 0.5f * static_cast<float>(NumParts(kind)),
                    "another sum");
    store.Close();
    findings.ExpectError(store.Push(kTable, RowViews(rows), 0).Wait(Soon()),
                         absl::StatusCode::kFailedPrecondition, "closed");
  });
}

std::string CheckDenseRows(const StoreKind& kind, const Wrap& wrap) {
  std::string found;
  for (const Dtype dtype :
       {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
    absl::StrAppend(&found, RunDense(kind, wrap, dtype));
  }
  return found;
}

}  // namespace telegrad::testing
