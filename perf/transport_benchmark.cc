// Two threads of this process, a context each: half the round trip of small
// messages, and the bandwidth of large ones. One JSON line per measurement.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "transport/transport.h"

namespace telegrad {
namespace {

constexpr size_t kPingBytes = 8;
constexpr int kWarmUp = 500;
constexpr int kPings = 10000;
constexpr int kInFlight = 16;  // messages per window
constexpr int64_t kBandwidthBytes = int64_t{2} << 30;

// One end; answers pings when `is_echo`.
class End : public TransportHandler {
 public:
  End(const TransportOptions& options, bool is_echo)
      : is_echo_(is_echo), in_(kMaxPayloadBytes), out_(kMaxPayloadBytes) {
    auto made = MakeTransport(options, this);
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
      std::exit(1);
    }
    context = *std::move(made);
  }
  void OnAccept(EndpointId endpoint) override { peer = endpoint; }
  absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes,
                                 size_t payload_bytes) override {
    return Bytes(in_.data(), payload_bytes);
  }
  void OnMessage(EndpointId, ConstBytes, Bytes payload) override {
    ++num_heard;
    if (is_echo_ && payload.size == kPingBytes) Send(kPingBytes);
  }
  void OnClosed(EndpointId, const absl::Status& why) override {
    if (!absl::IsCancelled(why)) closed = true;
  }
  void Send(size_t size) {
    const absl::Status sent =
        context->Send(peer, {}, {out_.data(), size},
                      [this](const absl::Status&) { ++num_sent; });
    if (!sent.ok()) std::exit(1);
  }
  void Step() { context->Progress(Clock::now() + std::chrono::seconds(1)); }

  EndpointId peer = 0;
  int num_heard = 0;
  int num_sent = 0;
  bool closed = false;

 private:
  const bool is_echo_;
  Buffer in_, out_;

 public:
  std::unique_ptr<TransportContext> context;
};

double PingUs(End& client) {
  std::vector<double> us;
  for (int i = 0; i < kWarmUp + kPings; ++i) {
    const TimePoint start = Clock::now();
    const int before = client.num_heard;
    client.Send(kPingBytes);
    while (client.num_heard == before) client.Step();
    if (i >= kWarmUp) us.push_back(SecondsSince(start) * 1e6 / 2);
  }
  std::nth_element(us.begin(), us.begin() + kPings / 2, us.end());
  return us[kPings / 2];
}

double MibPerS(End& client, size_t size) {
  const auto messages = static_cast<int>(
      std::min<int64_t>(20000, kBandwidthBytes / static_cast<int64_t>(size)));
  const int before = client.num_sent;
  const TimePoint start = Clock::now();
  for (int i = 0; i < messages; ++i) {
    while (i - (client.num_sent - before) >= kInFlight) client.Step();
    client.Send(size);
  }
  while (client.num_sent - before < messages) client.Step();
  return messages * static_cast<double>(size) / SecondsSince(start) / (1 << 20);
}

// To the `index`-th of the cores that taskset leaves, if there are two.
void PinToCore(int index) {
  static cpu_set_t allowed;
  static const bool is_read =
      sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  if (!is_read || CPU_COUNT(&allowed) < 2) return;
  int core = 0;
  for (int left = index; !CPU_ISSET(core, &allowed) || left-- > 0;) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof(one), &one);
}

int Run(const char* name, const char* tls) {
  TransportOptions options;
  options.name = name;
  options.tls = tls;
  End server(options, true), client(options, false);
  const auto address = server.context->Listen();
  if (!address.ok()) return 1;
  std::atomic<bool> is_over{false};
  PinToCore(0);
  std::thread thread([&] {
    PinToCore(1);
    while (!is_over) server.Step();
  });
  const auto peer = client.context->Connect(*address);
  if (!peer.ok()) return 1;
  client.peer = *peer;
  std::printf(
      "{\"what\":\"half_rtt_us\",\"transport\":\"%s\",\"tls\":\"%s\","
      "\"bytes\":%zu,\"p50\":%.2f}\n",
      name, tls, kPingBytes, PingUs(client));
  for (size_t size : {size_t{64} << 10, size_t{1} << 20, size_t{8} << 20}) {
    MibPerS(client, size);  // warm up
    std::printf(
        "{\"what\":\"mib_per_s\",\"transport\":\"%s\",\"tls\":\"%s\","
        "\"bytes\":%zu,\"value\":%.0f}\n",
        name, tls, size, MibPerS(client, size));
  }
  is_over = true;
  server.context->Wake();
  thread.join();
  return 0;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  if (argc > 3) {
    std::fprintf(stderr, "usage: %s [transport [tls]]\n", argv[0]);
    return 2;
  }
  return telegrad::Run(argc > 1 ? argv[1] : "ucx", argc > 2 ? argv[2] : "");
}
