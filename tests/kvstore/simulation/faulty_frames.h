#pragma once

#include <cstdint>
#include <functional>

// What happens to the store's frames above the transport, whose own faults
// TransportOptions::fault has. The program is linked so that MakeTransport is
// this one (--wrap).
namespace telegrad::testing {

// Which check of a server does not see what is wrong with a frame: the frame is
// made anew so that it passes, as it would without the check.
enum class Blind : uint8_t { kNothing, kChecksum, kFencing, kDedup };

struct FrameFaults {
  double duplicates = 0;  // share of pushes that are sent twice
  double flips = 0;       // share of pushes with a bit that is another one
  double stale = 0;       // share before which the same of an old epoch comes
  Blind blind = Blind::kNothing;
  // Called with the member whose frame was altered or was an old one.
  std::function<void(int member)> on_wrong = nullptr;
};

void SetFrameFaults(const FrameFaults& faults);

}  // namespace telegrad::testing
