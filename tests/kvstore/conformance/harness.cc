#include "tests/kvstore/conformance/harness.h"

#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kvstore/nccl/group_store.h"

namespace telegrad::testing {
namespace {

// Buffers of the emulated device by their open addresses.
struct OpenBuffers {
  Mutex mutex;
  std::map<std::byte*, Buffer> closed ABSL_GUARDED_BY(mutex);
};
OpenBuffers& AllOpen() {
  static auto* const buffers = new OpenBuffers;
  return *buffers;
}
void CloseBuffer(std::byte* open) {
  MutexLock lock(&AllOpen().mutex);
  AllOpen().closed.erase(open);
}

absl::StatusOr<std::unique_ptr<KVStore>> MakeStore(const StoreKind& traits,
                                                   const StoreOptions& options,
                                                   WorkerGroup* group) {
  if (!traits.needs_gpus) return MakeKVStore(traits.type, options, group);
  return std::make_unique<GroupStore>(options, traits, group, "host");
}

void RunParty(std::unique_ptr<KVStore> made, const StoreSetup& setup,
              const Wrap& wrap, const Body& body, Party shape,
              Findings& findings) {
  const std::unique_ptr<KVStore> typed =
      wrap.dtype == Dtype::kFloat32
          ? nullptr
          : std::make_unique<TypedStore>(*made, wrap.dtype);
  KVStore* const store = typed == nullptr ? made.get() : typed.get();
  CompressionConfig compression = setup.compression;
  OptimizerConfig optimizer = setup.optimizer;
  const bool is_async = store->traits().is_async;
  if (is_async && compression.reply == ReplyMode::kSum) compression.reply = {};
  if (is_async && optimizer.update_on == UpdateOn::kWorker) {
    optimizer = {.update_on = UpdateOn::kServer,
                 .sgd = {.learning_rate = 1, .rescale = -1}};
  }
  const bool has_values = setup.has_values || is_async;
  findings.ExpectOk(store->SetCompression(compression), "compression");
  findings.ExpectOk(store->SetOptimizer(optimizer), "optimizer");
  std::vector<std::vector<Buffer>> values;
  std::vector<TensorView> views;
  for (size_t key = 0; has_values && key < setup.tensors.size(); ++key) {
    values.push_back(shape.Make(setup.tensors[key].num_elems, -1));
    if (shape.is_first()) {
      for (size_t i = 0; i < setup.tensors[key].num_elems; ++i) {
        values.back()[0].as<float>()[i] = ValueOf(key, i);
      }
    }
    for (const TensorView& view : ViewsOf(values.back())) views.push_back(view);
  }
  const auto keys = store->Init(shape.Put(setup.tensors), views);
  findings.ExpectOk(keys.status(), "Init");
  if (keys.ok()) {
    const std::unique_ptr<KVStore> wrapped = wrap ? wrap(*store) : nullptr;
    KVStore& used = wrapped != nullptr ? *wrapped : *store;
    body({used, shape.first, shape.count, shape.devices, shape.place,
          shape.process, shape.processes},
         findings);
  }
  store->Close();
}

}  // namespace

const char* ToString(Place place) {
  switch (place) {
    case Place::kHost:
      return "Host";
    case Place::kDevice:
      return "Device";
    case Place::kMixed:
      return "Mixed";
  }
  return "?";
}

Buffer MakeOpenBuffer(size_t size) {
  Buffer closed = MakeEmulatedBuffer(size);
  std::byte* const open = Reach(closed.view()).data;
  MutexLock lock(&AllOpen().mutex);
  AllOpen().closed[open] = std::move(closed);
  return Buffer(open, size, Device{}, &CloseBuffer);
}

std::vector<TensorView> ViewsOf(const std::vector<Buffer>& buffers) {
  std::vector<TensorView> views;
  MutexLock lock(&AllOpen().mutex);
  for (const Buffer& buffer : buffers) {
    const auto closed = AllOpen().closed.find(buffer.data());
    views.push_back(FloatTensor(closed == AllOpen().closed.end()
                                    ? buffer.view()
                                    : closed->second.view()));
  }
  return views;
}

std::string RunParties(const StoreKind& traits, const StoreSetup& setup,
                       const Wrap& wrap, const Body& body) {
  Findings findings;
  if (!traits.has_workers) {
    StoreOptions options;
    options.num_devices = kContributors;
    options.chunk_elems = setup.chunk_elems;
    auto store = MakeStore(traits, options, nullptr);
    if (!store.ok()) return std::string(store.status().message());
    KVStore& one = **store;
    RunParty(*std::move(store), setup, wrap, body,
             {one, 0, kContributors, 1, wrap.place}, findings);
    return findings.text();
  }
  ClusterConfig config;
  config.workers = kContributors * traits.processes;
  config.transport = setup.transport;
  if (traits.hosts_parts) config.servers = config.workers;
  Cluster cluster(config);
  if (!traits.hosts_parts) cluster.StartServers();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < config.workers; ++rank) {
    threads.emplace_back([&, rank] {
      const int contributor = rank / traits.processes;
      DistOptions options = cluster.Options();
      options.wanted_rank = rank;
      options.path.host = absl::StrCat("host", contributor);
      if (traits.processes > 1) options.path.tier_one = std::nullopt;
      options.chunk_elems = setup.chunk_elems;
      options.num_devices = traits.max_devices;
      if (traits.hosts_parts) options.part = HostPart(options.num_threads);
      auto group = JoinWorkers(options);
      if (!group.ok()) return findings.ExpectOk(group.status(), "join");
      auto store = MakeStore(traits, options, group->get());
      if (!store.ok()) return findings.ExpectOk(store.status(), "make");
      KVStore& one = **store;
      RunParty(*std::move(store), setup, wrap, body,
               {one, contributor, 1, traits.max_devices, wrap.place,
                rank % traits.processes, traits.processes},
               findings);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return findings.text();
}

}  // namespace telegrad::testing
