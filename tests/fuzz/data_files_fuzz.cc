// libFuzzer: files of MNIST and CIFAR, plain and what begins like gzip.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/edited.h"
#include "trainer/data/cifar.h"
#include "trainer/data/idx.h"

namespace telegrad {
namespace {

// Of this process; in memory where the machine has such a folder.
std::string Folder() {
  std::string name =
      std::filesystem::exists("/dev/shm") ? "/dev/shm/" : "/tmp/";
  name += "telegrad-fuzz-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  return name;
}

struct Files {
  const std::string folder = Folder();
  ~Files() { std::filesystem::remove_all(folder); }
};

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace telegrad;
  static const Files files;
  if (size < 1) return 0;
  if (data[0] % 2 == 0) {
    const std::string good("\0\0\x08\x02\0\0\0\2\0\0\0\3abcdef", 18);
    const std::string path = files.folder + "/idx";
    Write(path, EditedOrRaw(good, data + 1, size - 1));
    const auto idx = ReadIdx(path, 2);
    if (idx.ok() && idx->values.size() !=
                        size_t{idx->extents[0]} * size_t{idx->extents[1]}) {
      std::abort();
    }
    return 0;
  }
  const std::string good(2 * 3074, '\1');
  Write(files.folder + "/train.bin", EditedOrRaw(good, data + 1, size - 1));
  Write(files.folder + "/test.bin", good);
  const auto cifar = ReadCifar100(files.folder);
  if (cifar.ok() && cifar->train.pixels.size() != 3072 * cifar->train.size()) {
    std::abort();
  }
  return 0;
}
