#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/fake_device.h"
#include "tests/transport/transport_node.h"
#include "transport/decorators/bounce/bounce_transport.h"
#include "transport/transport.h"

namespace telegrad::testing {

inline TransportOptions OptionsNamed(const std::string& name) {
  TransportOptions options;
  options.name = name;
  return options;
}

inline TransportFactory BounceOn(FakeDevice& device,
                                 const BounceLimits& limits = {}) {
  return [&device, limits](const TransportOptions& options,
                           TransportHandler* handler) {
    return MakeBounceTransport(MakeTransport, options,
                               std::make_unique<FakeCopier>(device), handler,
                               limits);
  };
}

// A client and a server, each with a device unless said otherwise, and the
// memory that payloads are sent from and come to.
struct Pair {
  explicit Pair(const std::string& transport, bool client_has = true,
                bool server_has = true, const BounceLimits& limits = {})
      : server(OptionsNamed(transport), server_has
                                            ? BounceOn(theirs, limits)
                                            : TransportFactory(MakeTransport)),
        client(OptionsNamed(transport), client_has
                                            ? BounceOn(ours, limits)
                                            : TransportFactory(MakeTransport)) {
    if (server_has) {
      server.place = [this](size_t size) {
        places.push_back(theirs.Allocate(size + 1));
        return Bytes(places.back()->view().data, size, {DeviceKind::kCuda, 0});
      };
    }
    address = *server.context->Listen();
    to_server = *client.context->Connect(address);
  }

  // From memory of the client's device.
  absl::Status Send(const std::string& text) {
    sources.push_back(ours.Allocate(text.size() + 1));
    std::copy(text.begin(), text.end(), sources.back()->host());
    const Bytes place = sources.back()->view();
    results.emplace_back();
    return client.context->Send(
        to_server, {text.data(), std::min<size_t>(text.size(), 8)},
        {place.data, text.size(), place.device},
        [this, index = results.size() - 1](const absl::Status& status) {
          results[index].push_back(status);
        });
  }

  bool Hears(size_t count) {
    return Drive({&server, &client},
                 [&] { return server.heard.size() >= count; });
  }
  bool Closes() {
    return Drive({&server, &client}, [&] {
      return !client.closed.empty() && !server.closed.empty();
    });
  }
  std::string Received(size_t index) const {
    std::string text = places[index]->text();
    text.pop_back();
    return text;
  }
  bool EachEndedOnce() const {
    for (const auto& each : results) {
      if (each.size() != 1) return false;
    }
    return true;
  }

  FakeDevice ours, theirs;
  std::vector<std::unique_ptr<FakeDeviceMemory>> sources, places;
  std::vector<std::vector<absl::Status>> results;  // of each Send
  Node server;
  Node client;
  std::string address;
  EndpointId to_server = 0;
};

}  // namespace telegrad::testing
