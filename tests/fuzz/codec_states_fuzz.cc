// libFuzzer: what codecs keep between rounds, as a file may hold it; with what
// was taken a round must end.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "kvstore/engine/device/buffer_pool.h"
#include "kvstore/engine/state/codec_state.h"
#include "kvstore/engine/state/recut.h"
#include "kvstore/kvstore.h"

namespace {

// What is read of a state can be cut into other chunks.
void Recut(const telegrad::TensorSpec& tensor,
           const telegrad::CompressionConfig& config,
           const std::string& state) {
  const auto layout = [&](size_t chunk_elems) {
    return (*telegrad::MakeShardPlan({&tensor, 1}, 1, chunk_elems, config))[0];
  };
  telegrad::BufferPool buffers;
  const telegrad::EngineConfig engine{.compression = config,
                                      .buffers = &buffers};
  const telegrad::OldCodecs old{.texts = {{0, state}}};
  const telegrad::Recut recut{tensor, layout(64), layout(32), &engine};
  const auto text = telegrad::RecutCodecs(recut, old, true);
  (void)telegrad::HeldNorm(recut, old);
  // And back: what was written can be read.
  const telegrad::Recut back{tensor, recut.to, recut.from, &engine};
  if (!text.ok()) return;
  if (!telegrad::HeldNorm(back, {.texts = {{0, *text}}}).ok()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  using telegrad::Buffer;
  constexpr const char* kCodecs[] = {"2bit", "threshold", "dgc", "powersgd"};
  constexpr size_t kElems = 33;
  telegrad::StoreOptions options;
  options.num_threads = 0;
  auto store = telegrad::MakeKVStore("local", options, nullptr);
  const telegrad::CompressionConfig config{
      .type = kCodecs[data[0] % 4], .reply = telegrad::ReplyMode::kReencode};
  const telegrad::TensorSpec tensor{.name = "a", .num_elems = kElems};
  if (!store.ok() || !(*store)->SetCompression(config).ok() ||
      !(*store)->Init({&tensor, 1}, {}).ok()) {
    return 0;
  }
  const std::string text(reinterpret_cast<const char*>(data + 2), size - 2);
  const size_t cut = data[1] % (text.size() + 1);
  const std::string state =
      telegrad::CodecSectionsText(3, {text.substr(0, cut), text.substr(cut)});
  Recut(tensor, config, state);
  (void)(*store)->states()->codec_states()->LoadCodec(
      0, text);  // without its head
  if (!(*store)->states()->codec_states()->LoadCodec(0, state).ok()) return 0;
  const Buffer grad(4 * kElems);
  (void)(*store)
      ->PushPull(0, grad.view(), grad.view(), 0)
      .Wait(telegrad::Clock::now() + std::chrono::seconds(30));
  return 0;
}
