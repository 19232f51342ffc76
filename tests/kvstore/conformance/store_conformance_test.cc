#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kvstore/ticket_state.h"
#include "tests/kvstore/conformance/harness.h"

// Every type of store passes every check; and the checks find planted faults.
// With TELEGRAD_CONFORMANCE=whole in every place and element type.
namespace telegrad {
namespace {

using testing::AllChecks;
using testing::CheckCancel;
using testing::CheckPriorities;
using testing::CheckRows;
using testing::CheckSums;
using testing::NamedCheck;
using testing::Place;
using testing::StoreKind;
using testing::Wrap;

// Workers have one device each, or two, which are summed before; and two
// processes of a host.
std::vector<StoreKind> Types() {
  std::vector<StoreKind> types;
  for (const StoreTraits& each : StoreTypes()) {
    types.emplace_back(each);
    if (each.has_workers) types.back().max_devices = 1;
  }
  for (const char* type : {"dist_sync", "dist_async", "allreduce"}) {
    types.emplace_back(*FindStoreType(type));
    types.back().max_devices = 2;
  }
  for (const char* type : {"dist_sync", "allreduce"}) {
    types.emplace_back(*FindStoreType(type), 2);
    types.back().max_devices = 1;
  }
  return types;
}

std::string NameOf(const StoreKind& kind) {
  return absl::StrCat(
      kind.type,
      kind.has_workers && kind.max_devices > 1 ? "_with_two_devices" : "",
      kind.processes > 1 ? "_with_two_processes" : "");
}

bool TakesTheEmulatedDevice(const StoreKind& kind) {
  return kind.takes_devices && !kind.needs_gpus && kind.has_one_device_each();
}

// Why this type is left out of this check; empty: it is not.
std::string LeftOut(const StoreTraits& traits, const NamedCheck& check) {
  if (check.needs_sums && traits.is_async) return "has no sums of rounds";
  if (check.needs_codecs && traits.needs_gpus) {
    return "has neither codecs nor an optimizer";
  }
  if (check.needs_rows && traits.needs_gpus) {
    return "sums whole tensors alone, as its library does";
  }
  return "";
}

TEST(StoreSuite, HasNoCheckThatAllTypesAreLeftOutOf) {
  const std::vector<StoreTraits> types = StoreTypes();
  for (const NamedCheck& check : AllChecks()) {
    EXPECT_TRUE(std::any_of(types.begin(), types.end(), [&](const auto& each) {
      return LeftOut(each, check).empty();
    })) << check.name;
  }
}

using StoreCase = std::tuple<StoreKind, NamedCheck, Place, Dtype>;

class Store : public ::testing::TestWithParam<StoreCase> {};

TEST_P(Store, Conforms) {
  const auto& [traits, check, place, dtype] = GetParam();
  const std::string left_out = LeftOut(traits, check);
  if (!left_out.empty()) GTEST_SKIP() << traits.type << " " << left_out;
  Wrap wrap = nullptr;
  wrap.place = place;
  wrap.dtype = dtype;
  EXPECT_EQ(check.check(traits, wrap), "");
}

bool IsWhole() {
  const char* const text = std::getenv("TELEGRAD_CONFORMANCE");
  return text != nullptr && absl::string_view(text) == "whole";
}

// The whole cross, or of it: every check with all tensors on a device; those of
// what two contributors make together also with one of them there; with each
// element type every check in `local` but those that end operations, and codes
// on devices.
bool IsMeant(const StoreKind& kind, const NamedCheck& check, Place place,
             Dtype dtype) {
  const std::set<absl::string_view> together = {"Codecs", "CodecSwitch",
                                                "NonFinite", "Broadcast"};
  // These have types of their own, or look at what a start takes, in which
  // other types are made here.
  const std::set<absl::string_view> typed = {"Halves", "Misuse", "Priorities",
                                             "DenseRows"};
  // They are of float32 in host memory; DenseRows sees to the others.
  const bool is_plain = place == Place::kHost && dtype == Dtype::kFloat32;
  if (check.needs_rows && !is_plain) return false;
  if (place != Place::kHost && !TakesTheEmulatedDevice(kind)) return false;
  if (dtype != Dtype::kFloat32 && typed.contains(check.name)) return false;
  if (IsWhole()) return true;
  if (dtype != Dtype::kFloat32) {
    // What ends operations does not look at their type.
    const std::set<absl::string_view> ended = {"Cancel", "Timeout"};
    const bool is_local = absl::string_view(kind.type) == "local";
    return place == Place::kHost ? is_local && !ended.contains(check.name)
                                 : place == Place::kDevice &&
                                       absl::string_view(check.name) == "Order";
  }
  return place != Place::kMixed || together.contains(check.name);
}

std::vector<StoreCase> Cases() {
  std::vector<StoreCase> cases;
  for (const StoreKind& kind : Types()) {
    for (const NamedCheck& check : AllChecks()) {
      for (const Place place : {Place::kHost, Place::kDevice, Place::kMixed}) {
        for (const Dtype dtype :
             {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
          if (!IsMeant(kind, check, place, dtype)) continue;
          cases.emplace_back(kind, check, place, dtype);
        }
      }
    }
  }
  return cases;
}

std::string NameOfCase(const ::testing::TestParamInfo<StoreCase>& test) {
  const auto& [kind, check, place, dtype] = test.param;
  return absl::StrCat(NameOf(kind), "_", check.name,
                      place == Place::kHost ? "" : ToString(place),
                      dtype == Dtype::kFloat32 ? "" : "_",
                      dtype == Dtype::kFloat32 ? "" : ToString(dtype));
}

INSTANTIATE_TEST_SUITE_P(Types, Store, ::testing::ValuesIn(Cases()),
                         NameOfCase);

enum class Fault {
  kWrongSum,
  kEarlyTicket,
  kLostCancel,
  kNoPriority,
  kHostRead,
  kLostRow
};

// A store with one fault.
class FaultyStore : public testing::ForwardingStore {
 public:
  FaultyStore(KVStore& inner, Fault fault)
      : ForwardingStore(inner), fault_(fault) {}
  ~FaultyStore() override {
    for (std::thread& thread : threads_) thread.join();
  }

  Ticket PushPull(Key key, TensorViews grads, TensorViews outs,
                  int priority) override {
    if (fault_ == Fault::kHostRead) {
      const volatile std::byte* const first = grads[0].bytes.data;
      static_cast<void>(*first);
      return inner_.PushPull(key, grads, outs, priority);
    }
    if (fault_ == Fault::kNoPriority) {
      return inner_.PushPull(key, grads, outs, 0);
    }
    if (fault_ != Fault::kWrongSum) return OnCopies(key, grads, outs);
    const Ticket ticket = inner_.PushPull(key, grads, outs, priority);
    const absl::Status status = ticket.Wait(testing::Soon());
    reinterpret_cast<float*>(outs[0].bytes.data)[0] += 1;
    return FinishedTicket(status);
  }

  // Of rows all but the last.
  Ticket Push(Key key, TensorViews grads, int priority) override {
    std::vector<TensorView> views(grads.begin(), grads.end());
    for (TensorView& view : views) {
      if (fault_ != Fault::kLostRow || !view.rows || view.rows->empty()) {
        continue;
      }
      view.bytes.size -= view.bytes.size / view.rows->size();
      view.rows = view.rows->first(view.rows->size() - 1);
      view.num_elems = static_cast<int64_t>(view.bytes.size / 4);
    }
    return inner_.Push(key, views, priority);
  }

 private:
  // On copies, so that the fault is found by values: a ticket that is done
  // before there are any, or one that cannot be cancelled.
  Ticket OnCopies(Key key, TensorViews grads, TensorViews outs) {
    for (std::thread& thread : threads_) thread.join();  // outs still live
    threads_.clear();
    struct Kept {
      std::vector<Buffer> grads;
      std::vector<Buffer> outs;
    };
    auto kept = std::make_shared<Kept>();
    std::vector<TensorView> targets(outs.begin(), outs.end());
    for (const TensorView& view : grads) {
      Buffer copy(view.bytes.size);
      std::copy_n(view.bytes.data, view.bytes.size, copy.data());
      kept->grads.push_back(std::move(copy));
      kept->outs.emplace_back(view.bytes.size);
    }
    auto state = std::make_shared<Ticket::State>();
    const Ticket real = inner_.PushPull(key, testing::ViewsOf(kept->grads),
                                        testing::ViewsOf(kept->outs), 0);
    const bool is_early = fault_ == Fault::kEarlyTicket;
    if (is_early) state->Finish(absl::OkStatus());
    threads_.emplace_back([real, state, kept, targets, is_early] {
      const absl::Status status = real.Wait(testing::Soon());
      if (is_early) return;
      for (size_t i = 0; i < targets.size(); ++i) {
        std::copy_n(kept->outs[i].data(), targets[i].bytes.size,
                    targets[i].bytes.data);
      }
      state->Finish(status);
    });
    return Ticket(state);
  }

  const Fault fault_;
  std::vector<std::thread> threads_;
};

Wrap With(Fault fault) {
  return [fault](KVStore& inner) {
    return std::make_unique<FaultyStore>(inner, fault);
  };
}

class PlantedFault : public ::testing::TestWithParam<StoreKind> {};

TEST_P(PlantedFault, OfAWrongSumIsFound) {
  if (GetParam().is_async) GTEST_SKIP() << "has no sums of rounds";
  EXPECT_NE(CheckSums(GetParam(), With(Fault::kWrongSum)), "");
}
TEST_P(PlantedFault, OfATicketThatIsDoneTooEarlyIsFound) {
  if (GetParam().is_async) GTEST_SKIP() << "has no sums of rounds";
  EXPECT_NE(CheckSums(GetParam(), With(Fault::kEarlyTicket)), "");
}
TEST_P(PlantedFault, OfACancelThatIsLostIsFound) {
  EXPECT_NE(CheckCancel(GetParam(), With(Fault::kLostCancel)), "");
}
TEST_P(PlantedFault, OfAPriorityThatIsLostIsFound) {
  EXPECT_NE(CheckPriorities(GetParam(), With(Fault::kNoPriority)), "");
}

TEST_P(PlantedFault, OfARowThatIsLostIsFound) {
  if (GetParam().needs_gpus) GTEST_SKIP() << "takes no rows";
  EXPECT_NE(CheckRows(GetParam(), With(Fault::kLostRow)), "");
}

TEST_P(PlantedFault, OfAHostsReadOfADevicesMemoryIsFound) {
  if (!TakesTheEmulatedDevice(GetParam())) {
    GTEST_SKIP() << "takes no tensors there";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Wrap wrap = With(Fault::kHostRead);
  wrap.place = Place::kDevice;
  EXPECT_DEATH(CheckSums(GetParam(), wrap), "");
}

INSTANTIATE_TEST_SUITE_P(Types, PlantedFault, ::testing::ValuesIn(Types()),
                         [](const auto& test) { return NameOf(test.param); });

}  // namespace
}  // namespace telegrad
