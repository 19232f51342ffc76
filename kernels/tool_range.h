#pragma once

namespace telegrad::kernels {

// A range of this thread in a profiler as Nsight Systems, while it lives:
// NVTX's, in the domain "telegrad". Where no tool is attached it does nothing,
// and in builds without CUDA it never does. `name` is a literal.
class ToolRange {
 public:
  explicit ToolRange(const char* name) { Begin(name); }
  ~ToolRange() { End(); }
  ToolRange(const ToolRange&) = delete;
  ToolRange& operator=(const ToolRange&) = delete;

 private:
  static void Begin(const char* name);
  static void End();
};

}  // namespace telegrad::kernels
