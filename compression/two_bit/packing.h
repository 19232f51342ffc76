#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dispatch.h"

namespace telegrad {

// How the same codes and sums of codes are laid out in bytes; on the wire.
enum class PackingId : uint8_t {
  kPlain = 0,  // MXNet's 2 bits per code; bit planes of sums
  kRadix = 1,  // digits of larger numbers: kernels/radix.h
};

struct Packing {
  PackingId id = PackingId::kPlain;
  size_t (*num_bytes)(size_t n) = nullptr;
  size_t (*sum_bytes)(size_t n, uint32_t num_frames) = nullptr;
  // Whether an encoder can have written these bytes, of the right size.
  bool (*are_codes)(const uint8_t* codes, size_t n) = nullptr;
  bool (*are_sums)(const uint8_t* sums, uint32_t num_frames,
                   size_t n) = nullptr;
  kernels::TwoBitEncodeFn* encode = nullptr;
  kernels::TwoBitEncodeHalfFn* encode_fp16 = nullptr;  // null with radix
  kernels::TwoBitEncodeHalfFn* encode_bf16 = nullptr;
  kernels::EncodeManyFn* encode_many = nullptr;  // all `many`: null on a CPU
  kernels::EncodeManyFn* encode_many_fp16 = nullptr;
  kernels::EncodeManyFn* encode_many_bf16 = nullptr;
  kernels::DecodeManyFn* decode_many = nullptr;
  kernels::DecodeManyFn* packed_sum_decode_many = nullptr;
  // Elements of a tile of these; num_frames: 0 of codes.
  size_t (*decode_tile)(uint32_t num_frames) = nullptr;
  kernels::TwoBitDecodeFn* decode = nullptr;
  kernels::TwoBitDecodeAddFn* decode_add = nullptr;
  kernels::TwoBitSumPackFn* sum_pack = nullptr;
  kernels::PackedSumDecodeFn* packed_sum_decode = nullptr;
  kernels::TwoBitSumDecodeFn* sum_decode = nullptr;
  kernels::TwoBitReencodeFn* reencode = nullptr;
};

Packing PackingOf(PackingId id, const kernels::KernelTable& table);

}  // namespace telegrad
