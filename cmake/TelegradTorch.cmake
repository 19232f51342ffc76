# libtorch by the folder that holds its include/ and lib/: TELEGRAD_TORCH_ROOT, the folder torch/ of PyTorch's wheel;
# empty: Debian's, where the compiler finds it. Makes the imported target telegrad_torch of c10 and torch_cpu, and
# telegrad_torch_cuda of c10_cuda, where that and CUDA's headers are there. libtorch_cuda.so is loaded at run time.
# Not by torch's own CMake package: with TELEGRAD_TORCH_ROOT alone it takes Debian's libraries beside the wheel's
# headers, and a wheel's rewrites CMAKE_CUDA_FLAGS and switches CMAKE_CUDA_ARCHITECTURES off, for our kernels too.
set(TELEGRAD_TORCH_ROOT "" CACHE PATH "libtorch's folder with include/ and lib/; empty: the system's")

set(roots ${TELEGRAD_TORCH_ROOT})
if(NOT roots)
  set(roots /usr /usr/local)
endif()
set(only PATHS ${roots} NO_CACHE NO_DEFAULT_PATH)
find_path(torch_include torch/csrc/autograd/variable.h ${only} PATH_SUFFIXES include)
foreach(library c10 torch_cpu c10_cuda)
  find_library(torch_${library} ${library} ${only} PATH_SUFFIXES lib/${CMAKE_LIBRARY_ARCHITECTURE} lib)
endforeach()

set(telegrad_torch_version "")
foreach(header csrc/api/include/torch/version.h headeronly/version.h)
  if(EXISTS "${torch_include}/torch/${header}" AND NOT telegrad_torch_version)
    file(STRINGS ${torch_include}/torch/${header} lines REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" lines "${lines}")
    string(REPLACE ";" "." telegrad_torch_version "${lines}")
  endif()
endforeach()

set(telegrad_torch_found OFF)
if(torch_include AND torch_c10 AND torch_torch_cpu AND telegrad_torch_version)
  set(telegrad_torch_found ON)
  add_library(telegrad_torch INTERFACE IMPORTED)
  target_include_directories(telegrad_torch SYSTEM INTERFACE ${torch_include} ${torch_include}/torch/csrc/api/include)
  # A wheel's libraries need those of other wheels, which they find when they are loaded.
  target_link_libraries(telegrad_torch INTERFACE ${torch_torch_cpu} ${torch_c10})
  target_link_options(telegrad_torch INTERFACE -Wl,--allow-shlib-undefined)
elseif(TELEGRAD_TORCH_ROOT)
  message(FATAL_ERROR "TELEGRAD_TORCH_ROOT=${TELEGRAD_TORCH_ROOT} has no include/torch/csrc and lib/libtorch_cpu.so; "
                      "of a wheel it is the folder torch/ in site-packages")
endif()
if(telegrad_torch_found AND torch_c10_cuda AND TELEGRAD_HAVE_CUDA)
  add_library(telegrad_torch_cuda INTERFACE IMPORTED)
  target_include_directories(telegrad_torch_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(telegrad_torch_cuda INTERFACE ${torch_c10_cuda})
  string(APPEND telegrad_torch_version ", with CUDA")
endif()
