#include "trainer/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "trainer/data/image_file.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostClasses = 65536;
constexpr size_t kMostFiles = size_t{1} << 25;

// What lies in a folder, by name; not what is hidden, as `.git` and the
// `._1.jpg` beside an image of another system.
absl::StatusOr<std::vector<fs::directory_entry>> List(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().starts_with('.')) continue;
    entries.push_back(*it);
    if (entries.size() > kMostFiles) {
      return absl::InvalidArgumentError(absl::StrCat(
          folder.string(), ": more than ", kMostFiles, " entries"));
    }
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat(folder.string(), ": ", error.message()));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool IsImage(const fs::path& path) {
  const std::string end = absl::AsciiStrToLower(path.extension().string());
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

struct Part {
  std::vector<std::string> classes;
  Dataset dataset;
};

absl::StatusOr<Part> OpenPart(const fs::path& folder,
                              const SampleShape& shape) {
  Part part;
  static_cast<SampleShape&>(part.dataset) = shape;
  part.dataset.name = "imagefolder";
  auto files = std::make_shared<std::vector<std::string>>();
  ASSIGN_OR_RETURN(const auto entries, List(folder));
  for (const fs::directory_entry& entry : entries) {
    std::error_code error;
    if (!entry.is_directory(error)) continue;
    ASSIGN_OR_RETURN(const auto images, List(entry));
    const size_t before = files->size();
    for (const fs::directory_entry& image : images) {
      if (!IsImage(image) || image.is_directory(error)) continue;
      files->push_back(image.path().string());
      part.dataset.labels.push_back(static_cast<uint16_t>(part.classes.size()));
    }
    if (files->size() == before) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.path().string(),
                       ": a class without .jpg, .jpeg and .png files"));
    }
    part.classes.push_back(entry.path().filename().string());
  }
  if (part.classes.size() < 2 || part.classes.size() > kMostClasses) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder.string(), ": ", part.classes.size(), " folders with ",
        files->size(), " .jpg, .jpeg and .png files; it takes 2 to ",
        kMostClasses, " folders, one for each class"));
  }
  part.dataset.num_classes = static_cast<int>(part.classes.size());
  // As everybody normalises ImageNet's colours.
  part.dataset.mean = {0.485f, 0.456f, 0.406f};
  part.dataset.stddev = {0.229f, 0.224f, 0.225f};
  if (shape.channels == 1) {
    part.dataset.mean = {0.449f};
    part.dataset.stddev = {0.226f};
  }
  part.dataset.read = [files, shape](size_t index,
                                     uint8_t* pixels) -> absl::Status {
    const auto image = ReadImage((*files)[index], shape.channels);
    // No connection's fault: trying again does not help.
    if (!image.ok()) return WithExitCode(ExitCode::kUsage, image.status());
    FitImage(*image, shape.rows, shape.cols, pixels);
    return absl::OkStatus();
  };
  // What is no images at all is told before a run begins.
  std::vector<uint8_t> pixels(shape.values_per_sample());
  RETURN_IF_ERROR(part.dataset.read(0, pixels.data()));
  return part;
}

}  // namespace

absl::StatusOr<DatasetPair> OpenImageFolder(const std::string& directory,
                                            const SampleShape& shape) {
  if (shape.channels != 1 && shape.channels != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("imagefolder: images have 1 or 3 channels, not ",
                     shape.channels, " (--image-shape)"));
  }
  const fs::path root = directory;
  std::error_code error;
  const fs::path second =
      fs::is_directory(root / "val", error) ? "val" : "test";
  ASSIGN_OR_RETURN(Part train, OpenPart(root / "train", shape));
  ASSIGN_OR_RETURN(Part test, OpenPart(root / second, shape));
  if (train.classes != test.classes) {
    std::vector<std::string> alone;
    std::set_symmetric_difference(train.classes.begin(), train.classes.end(),
                                  test.classes.begin(), test.classes.end(),
                                  std::back_inserter(alone));
    return absl::InvalidArgumentError(absl::StrCat(
        (root / second).string(), " and ", (root / "train").string(),
        " have not the same classes: ", alone[0], " is in one alone"));
  }
  return DatasetPair{.train = std::move(train.dataset),
                     .test = std::move(test.dataset)};
}

}  // namespace telegrad
