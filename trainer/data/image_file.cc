#include "trainer/data/image_file.h"

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

// After <cstdio>: jpeglib.h uses FILE.
#include <jpeglib.h>
#include <png.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/input_file.h"
#include "base/of_flag.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr size_t kMostFileBytes = size_t{64} << 20;
constexpr int64_t kMaxImageSide = 16384;
constexpr int64_t kMostPixels = int64_t{64} << 20;

absl::Status CheckSize(int64_t rows, int64_t cols) {
  if (rows >= 1 && cols >= 1 && rows <= kMaxImageSide &&
      cols <= kMaxImageSide && rows * cols <= kMostPixels) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("an image of ", rows, " x ", cols, " pixels"));
}

// libjpeg reports errors by a call that must not return.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg knows only this
  jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

void OnJpegError(j_common_ptr common) {
  auto* errors = reinterpret_cast<JpegErrors*>(common->err);
  (*common->err->format_message)(common, errors->text);
  longjmp(errors->back, 1);
}
// A warning is damage: nothing of such an image is used.
void OnJpegMessage(j_common_ptr common, int level) {
  if (level < 0) OnJpegError(common);
}

// From cyan, magenta, yellow and black, four bytes a pixel; Adobe's programs
// store how much of each is missing.
void ConvertCmyk(bool is_adobe, Image* image) {
  uint8_t* to = image->pixels.data();
  for (size_t at = 0; at + 4 <= image->pixels.size(); at += 4) {
    int light[4];
    for (size_t i = 0; i < 4; ++i) {
      const int value = image->pixels[at + i];
      light[i] = is_adobe ? value : 255 - value;
    }
    for (size_t i = 0; i < 3; ++i) light[i] = light[i] * light[3] / 255;
    if (image->channels == 1) {  // as libjpeg weighs colours
      light[0] = (299 * light[0] + 587 * light[1] + 114 * light[2]) / 1000;
    }
    // Never beyond what was read.
    for (int i = 0; i < image->channels; ++i) {
      *to++ = static_cast<uint8_t>(light[i]);
    }
  }
  image->pixels.resize(static_cast<size_t>(to - image->pixels.data()));
}

// `decoder` is made, and goes with the caller. Nothing here has a destructor
// that the jump could pass over. Whether the image is whole; else `errors`
// says why, or `size` does.
bool DecodeJpeg(jpeg_decompress_struct* decoder, JpegErrors* errors,
                const std::string& bytes, int channels, Image* image,
                absl::Status* size) {
  if (setjmp(errors->back) != 0) return false;
  jpeg_mem_src(decoder, reinterpret_cast<const uint8_t*>(bytes.data()),
               bytes.size());
  jpeg_read_header(decoder, TRUE);
  *size = CheckSize(decoder->image_height, decoder->image_width);
  if (!size->ok()) return false;
  const J_COLOR_SPACE has = decoder->jpeg_color_space;
  decoder->out_color_space = has == JCS_CMYK || has == JCS_YCCK ? JCS_CMYK
                             : channels == 1                    ? JCS_GRAYSCALE
                                                                : JCS_RGB;
  decoder->dct_method = JDCT_ISLOW;
  jpeg_start_decompress(decoder);
  image->rows = static_cast<int>(decoder->output_height);
  image->cols = static_cast<int>(decoder->output_width);
  const size_t row_bytes = static_cast<size_t>(decoder->output_width) *
                           static_cast<size_t>(decoder->output_components);
  image->pixels.resize(row_bytes * decoder->output_height);
  while (decoder->output_scanline < decoder->output_height) {
    JSAMPROW row = image->pixels.data() + row_bytes * decoder->output_scanline;
    jpeg_read_scanlines(decoder, &row, 1);
  }
  jpeg_finish_decompress(decoder);
  return true;
}

absl::StatusOr<Image> ReadJpeg(const std::string& path,
                               const std::string& bytes, int channels) {
  Image image{.channels = channels};
  JpegErrors errors{};
  jpeg_decompress_struct decoder{};
  decoder.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = OnJpegError;
  errors.manager.emit_message = OnJpegMessage;
  jpeg_create_decompress(&decoder);
  absl::Status size;
  const bool is_whole =
      DecodeJpeg(&decoder, &errors, bytes, channels, &image, &size);
  const size_t left =
      decoder.src == nullptr ? bytes.size() : decoder.src->bytes_in_buffer;
  const bool is_adobe = decoder.saw_Adobe_marker != FALSE;
  const bool is_cmyk = decoder.out_color_space == JCS_CMYK;
  jpeg_destroy_decompress(&decoder);
  if (is_whole && is_cmyk) ConvertCmyk(is_adobe, &image);
  if (is_whole) return image;
  return absl::DataLossError(absl::StrCat(
      path, ": byte ", left > bytes.size() ? 0 : bytes.size() - left, ": ",
      size.ok() ? absl::string_view(errors.text) : size.message()));
}

absl::StatusOr<Image> ReadPng(const std::string& path, std::string& bytes,
                              int channels) {
  // A file tells where libpng stands in it.
  const InputStream file(fmemopen(bytes.data(), bytes.size(), "rb"));
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  struct Free {
    png_image* image;
    ~Free() { png_image_free(image); }
  } free{&png};
  const auto wrong = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(
        path, ": byte ", file == nullptr ? 0 : ftell(file.get()), ": ", what));
  };
  if (file == nullptr) return wrong(std::strerror(errno));
  if (png_image_begin_read_from_stdio(&png, file.get()) == 0) {
    return wrong(png.message);
  }
  if (const absl::Status size = CheckSize(png.height, png.width); !size.ok()) {
    return wrong(size.message());
  }
  png.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  Image image{.channels = channels,
              .rows = static_cast<int>(png.height),
              .cols = static_cast<int>(png.width)};
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  const png_color black{};  // behind what is transparent
  if (png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) ==
      0) {
    return wrong(png.message);
  }
  return image;
}

}  // namespace

absl::StatusOr<Image> ReadImage(const std::string& path, int channels) {
  ASSIGN_OR_RETURN(std::string bytes,
                   OfFlag(path, ReadFile(path, kMostFileBytes)));
  return DecodeImage(path, std::move(bytes), channels);
}

absl::StatusOr<Image> DecodeImage(const std::string& path, std::string bytes,
                                  int channels) {
  if (absl::StartsWith(bytes, "\xff\xd8")) {
    return ReadJpeg(path, bytes, channels);
  }
  if (absl::StartsWith(bytes, "\x89PNG\r\n\x1a\n")) {
    return ReadPng(path, bytes, channels);
  }
  return absl::DataLossError(
      absl::StrCat(path, ": byte 0: neither a JPEG nor a PNG begins here"));
}

// Makes each pixel the mean over the part of the image that it stands for, at
// least one pixel of it.
void FitImage(const Image& image, int rows, int cols, uint8_t* pixels) {
  int64_t used_rows = image.rows;
  int64_t used_cols = int64_t{image.rows} * cols / rows;
  if (used_cols > image.cols) {
    used_cols = image.cols;
    used_rows = int64_t{image.cols} * rows / cols;
  }
  used_rows = std::max<int64_t>(used_rows, 1);
  used_cols = std::max<int64_t>(used_cols, 1);
  const int64_t top = (image.rows - used_rows) / 2;
  const int64_t left = (image.cols - used_cols) / 2;
  const auto range = [](int64_t i, int64_t used, int64_t count) {
    const int64_t from = i * used / count;
    return std::pair{from, std::max(from + 1, (i + 1) * used / count)};
  };
  for (int64_t row = 0; row < rows; ++row) {
    const auto [r0, r1] = range(row, used_rows, rows);
    for (int64_t col = 0; col < cols; ++col) {
      const auto [c0, c1] = range(col, used_cols, cols);
      const int64_t count = (r1 - r0) * (c1 - c0);
      for (int64_t channel = 0; channel < image.channels; ++channel) {
        int64_t sum = count / 2;
        for (int64_t r = r0; r < r1; ++r) {
          for (int64_t c = c0; c < c1; ++c) {
            const int64_t at = (top + r) * image.cols + left + c;
            sum +=
                image
                    .pixels[static_cast<size_t>(at * image.channels + channel)];
          }
        }
        pixels[(channel * rows + row) * cols + col] =
            static_cast<uint8_t>(sum / count);
      }
    }
  }
}

}  // namespace telegrad
