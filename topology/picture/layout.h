#pragma once

#include <string>
#include <vector>

#include "topology/machine.h"

namespace telegrad::picture {

// Lengths are pixels of the picture.
struct Box {
  enum class Kind { kMachine, kPackage, kHostBridge, kSwitch, kGpu, kNic };
  Kind kind = Kind::kMachine;
  std::string title = {};
  std::vector<std::string> lines = {};  // a device's text
  bool is_down = false;                 // a NIC without an active port
  size_t index = 0;                     // a device's place in its list
  std::vector<Box> children = {};
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

inline constexpr double kTitleHeight = 20;
inline constexpr double kPadding = 8;

// The machine's tree with places, from the top left corner (x, y).
Box LayOut(const Machine& machine, double x, double y);

// The devices' boxes below `box`, of one kind, by their index.
std::vector<const Box*> Devices(const Box& box, Box::Kind kind, size_t count);

}  // namespace telegrad::picture
