#include "absl/strings/str_cat.h"
#include "tests/kvstore/conformance/harness.h"

// Tensors without elements, beside one that has some.
namespace telegrad::testing {
namespace {

constexpr size_t kSizes[] = {0, 33, 0};
constexpr int kEmptySteps = 3;

// One round of all keys, in one of the two ways.
void RunRound(const Party& party, int step, bool in_halves,
              Findings& findings) {
  KVStore& store = party.store;
  std::vector<std::vector<Buffer>> memory;
  std::vector<Ticket> tickets;
  for (Key key = 0; key < 3; ++key) {
    memory.push_back(party.Grads(kSizes[key], step));
    const std::vector<TensorView> views = ViewsOf(memory[key]);
    tickets.push_back(in_halves ? store.Push(key, views, 0)
                                : store.PushPull(key, views, views, 0));
    // Processes of a host hand it on, which takes a moment.
    findings.Expect(key == 1 || party.processes > 1 || tickets[key].is_done(),
                    "not done at once");
  }
  for (Key key = 0; key < 3; ++key) {
    findings.ExpectOk(tickets[key].Wait(Soon()), "round");
    if (!in_halves) continue;
    findings.ExpectOk(store.Pull(key, ViewsOf(memory[key]), 0).Wait(Soon()),
                      "pull");
  }
  if (store.traits().is_async) return;
  findings.Expect(
      memory[1][0].as<float>()[7] == GradOf(0, step, 7) + GradOf(1, step, 7),
      absl::StrCat("another sum, step ", step));
}

void CheckRules(const Party& party, Findings& findings) {
  KVStore& store = party.store;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const std::vector<Buffer> one = party.Make(1);
  findings.ExpectError(store.Push(0, ViewsOf(one), 0).Wait(Soon()), invalid,
                       "has 0 bytes");
  const std::vector<Buffer> none = party.Make(0);
  findings.ExpectError(store.Broadcast(0, 9, ViewsOf(none), 0).Wait(Soon()),
                       invalid, "broadcast by worker/9");
  findings.ExpectOk(store.Broadcast(0, 0, ViewsOf(none), 0).Wait(Soon()),
                    "broadcast");
  const std::vector<TensorReport> reports = store.codecs().Report();
  findings.Expect(reports.size() == 3 || store.traits().needs_gpus,
                  "no report of it");
  if (store.traits().is_async) return;  // whose tensors have values
  findings.ExpectOk(store.Init(party.Put({{"late", 0}}), {}).status(), "Init");
  findings.ExpectError(store.Pull(3, ViewsOf(none), 0).Wait(Soon()),
                       absl::StatusCode::kFailedPrecondition, "no value");
  findings.ExpectOk(store.Push(3, ViewsOf(none), 0).Wait(Soon()), "push");
  findings.ExpectOk(store.Pull(3, ViewsOf(none), 0).Wait(Soon()), "pull");
}

// What codecs keep of it, where that can be had.
void CheckCodecStates(const Party& party, Findings& findings) {
  KVStore& store = party.store;
  CodecStates* const states =
      store.states() == nullptr ? nullptr : store.states()->codec_states();
  if (store.traits().is_async || states == nullptr || party.processes > 1) {
    return;
  }
  findings.ExpectOk(store.group().Gather("before", "").status(), "gather");
  const auto text = states->SaveCodec(0);
  findings.ExpectOk(text.status(), "codec saved");
  if (text.ok()) findings.ExpectOk(states->LoadCodec(0, *text), "and loaded");
  findings.ExpectOk(store.group().Gather("after", "").status(), "gather");
}

std::string RunEmpty(const StoreKind& traits, const Wrap& wrap) {
  const StoreSetup setup = {
      .tensors = {{"nothing", 0}, {"some", 33}, {"void", 0}}};
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    for (int step = 0; step < kEmptySteps; ++step) {
      RunRound(party, step, /*in_halves=*/step == 1, findings);
    }
    CheckRules(party, findings);
    CheckCodecStates(party, findings);
  });
}

// Beside an optimizer in the store: its states come and go.
std::string RunWithStates(const StoreKind& traits, const Wrap& wrap) {
  const StoreSetup setup = {
      .tensors = {{"nothing", 0}, {"some", 33}, {"void", 0}},
      .optimizer = {.update_on = UpdateOn::kServer,
                    .sgd = {.learning_rate = 0.5f, .momentum_rate = 0.5f}}};
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    const std::vector<Buffer> none = party.Make(0);
    const std::vector<Buffer> some = party.Grads(33, 0);
    KVStore& store = party.store;
    findings.ExpectOk(store.Push(0, ViewsOf(none), 0).Wait(Soon()), "push");
    findings.ExpectOk(store.Push(1, ViewsOf(some), 0).Wait(Soon()), "push");
    findings.ExpectOk(store.group().Gather("pushed", "").status(), "gather");
    const auto text = store.states()->Save();
    findings.ExpectOk(text.status(), "states saved");
    if (text.ok()) findings.ExpectOk(store.states()->Load(*text), "and loaded");
    findings.ExpectOk(store.Pull(2, ViewsOf(none), 0).Wait(Soon()), "pull");
  });
}

}  // namespace

std::string CheckEmpty(const StoreKind& traits, const Wrap& wrap) {
  std::string found = RunEmpty(traits, wrap);
  if (!traits.needs_gpus) absl::StrAppend(&found, RunWithStates(traits, wrap));
  return found;
}

}  // namespace telegrad::testing
