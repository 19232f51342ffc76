/* Codecs alone, and what goes with which optimizer. Included by telegrad.h, by
 * way of telegrad_tools.h. */
#pragma once

#include <stdint.h>
#include <telegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct telegrad_codec telegrad_codec;

/* `spec` as docs/codecs.md: "2bit:0.5". Of `num_elems` float32 in host memory;
 * keeps the residual between encodes. */
TELEGRAD_API int32_t telegrad_codec_create(const char* spec, int64_t num_elems,
                                           const char* nonfinite,
                                           telegrad_codec** codec,
                                           telegrad_status* status);
TELEGRAD_API uint64_t telegrad_codec_max_bytes(const telegrad_codec* codec);
/* [num_elems], or NULL without one; the caller may read and write it. */
TELEGRAD_API float* telegrad_codec_residual(telegrad_codec* codec);
/* grad [num_elems] -> out; `threshold` gets what decode needs. */
TELEGRAD_API int32_t telegrad_codec_encode(
    telegrad_codec* codec, const float* grad, void* out, uint64_t out_bytes,
    uint64_t* encoded_bytes, float* threshold, telegrad_status* status);
/* Checks the payload first: it may come from anywhere. */
TELEGRAD_API int32_t telegrad_codec_decode(const telegrad_codec* codec,
                                           const void* payload,
                                           uint64_t payload_bytes,
                                           float threshold, float* out,
                                           telegrad_status* status);
TELEGRAD_API void telegrad_codec_free(telegrad_codec* codec);

/* ---- what goes with which optimizer, as in telegrad-train ---- */

/* Which optimizers a codec's few bits go with: 1 where they harm steps that
 * divide by a mean of squares (Adam), and where they want the momentum in front
 * of them (`momentum` of telegrad_compression); else 0. */
TELEGRAD_API int32_t telegrad_codec_few_bits(const char* spec,
                                             int32_t* harms_squares,
                                             int32_t* wants_momentum,
                                             telegrad_status* status);
/* Whether steps by a mean of squares bear this codec where each gradient is
 * divided by the root of that mean in front of it: 1 or 0. */
TELEGRAD_API int32_t telegrad_codec_wants_normal(const char* spec,
                                                 int32_t* wants,
                                                 telegrad_status* status);
/* Whether a momentum of this rate behind the codec costs accuracy: it keeps the
 * direction of what few bits held back, which comes late. 1 or 0. */
TELEGRAD_API int32_t telegrad_codec_comes_late(const char* spec,
                                               double momentum, int32_t* late,
                                               telegrad_status* status);
/* The codec to take where none is named: `few_bits` 1: with optimizers as SGD;
 * 2: as Adam, where telegrad_codec_wants_normal is followed; else: with any. */
TELEGRAD_API const char* telegrad_codec_standard(int32_t few_bits);
/* After which of `steps` local steps each of `count` tensors begins its
 * exchange, where `fragments` parts of a model take turns, 1 to `steps`:
 * neighbours, of about as many bytes as others, are together. */
TELEGRAD_API int32_t telegrad_fragment_turns(const uint64_t* sizes,
                                             uint64_t count, int32_t steps,
                                             int32_t fragments, int32_t* turns,
                                             telegrad_status* status);

#ifdef __cplusplus
} /* extern "C" */
#endif
