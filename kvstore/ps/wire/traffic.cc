#include "kvstore/ps/wire/traffic.h"

#include <string>

#include "compression/codec.h"

namespace telegrad {
namespace {

std::string NameOfCodec(size_t id) {
  for (const Codec* codec : AllCodecs()) {
    if (static_cast<size_t>(codec->traits().id) == id) {
      return codec->traits().name;
    }
  }
  return "unknown";
}

}  // namespace

void Traffic::Collect(const Metric& raw, const Metric& wire,
                      MetricsPage& page) const {
  for (size_t id = 0; id < kCodecs; ++id) {
    const Counts& counts = codecs_[id];
    if (counts.wire_bytes == 0) continue;
    const MetricLabels labels = {{"codec", NameOfCodec(id)}};
    page.Add(raw, static_cast<double>(counts.raw_bytes), labels);
    page.Add(wire, static_cast<double>(counts.wire_bytes), labels);
  }
}

}  // namespace telegrad
