#include <stdio.h>
#include <telegrad.h>

int main(void) {
  telegrad_status status;
  telegrad_codec* codec = NULL;
  const float grad[4] = {1, -1, 0.25f, 0};
  unsigned char bytes[64];
  uint64_t size = 0;
  float threshold = 0;
  if (telegrad_codec_create("2bit:0.5", 4, NULL, &codec, &status) != 0 ||
      telegrad_codec_encode(codec, grad, bytes, sizeof bytes, &size, &threshold,
                            &status) != 0) {
    fprintf(stderr, "%s\n", status.message);
    return 1;
  }
  /* 11 10 00 00: +t, -t, 0, 0. */
  const int is_right = size == 4 && bytes[0] == 0xe0;
  telegrad_codec_free(codec);
  return is_right ? 0 : 1;
}
