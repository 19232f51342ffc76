#pragma once

// What a tool of NVTX has seen: a library that NVTX loads by itself, and that
// a test opens by the same path. Thread-safe.
extern "C" {

// Ranges of that name in the domain "telegrad" so far.
int ranges_begun(const char* name);
// Those that have not ended.
int ranges_open();
}
