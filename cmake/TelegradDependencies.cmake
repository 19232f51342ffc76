# Finds packages. Each optional backend is AUTO, ON or OFF (TELEGRAD_WITH_X) and gets one line in the table that
# configuring prints: what is in, what is not, why, and which package adds it.
set(TELEGRAD_BACKEND_LINES "" CACHE INTERNAL "")

# telegrad_backend(UCX FOUND "1.13.1" PACKAGE "libucx-dev") sets TELEGRAD_HAVE_UCX in the caller.
function(telegrad_backend name)
  cmake_parse_arguments(ARG "" "FOUND;VERSION;PACKAGE;WHY_NOT" "" ${ARGN})
  set(wish ${TELEGRAD_WITH_${name}})
  set(have OFF)
  if(wish STREQUAL "OFF")
    set(line "out  switched off (TELEGRAD_WITH_${name}=OFF)")
  elseif(ARG_FOUND)
    set(have ON)
    set(line "in   ${ARG_VERSION}")
  elseif(wish STREQUAL "ON")
    message(FATAL_ERROR "TELEGRAD_WITH_${name}=ON, but ${ARG_WHY_NOT}; it comes with ${ARG_PACKAGE}")
  else()
    set(line "out  ${ARG_WHY_NOT}: it comes with ${ARG_PACKAGE}")
  endif()
  set(TELEGRAD_HAVE_${name} ${have} PARENT_SCOPE)
  list(APPEND TELEGRAD_BACKEND_LINES "${name}|${line}")
  set(TELEGRAD_BACKEND_LINES "${TELEGRAD_BACKEND_LINES}" CACHE INTERNAL "")
endfunction()

function(telegrad_print_backends)
  message(STATUS "Telegrad ${PROJECT_VERSION}: backends")
  foreach(entry ${TELEGRAD_BACKEND_LINES})
    string(REPLACE "|" ";" pair "${entry}")
    list(GET pair 0 name)
    list(GET pair 1 line)
    string(SUBSTRING "${name}        " 0 8 name)
    message(STATUS "  ${name} ${line}")
  endforeach()
endfunction()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
if(TELEGRAD_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# CUDA: compiling needs nvcc alone; running needs a driver, which is asked for at run time.
if(NOT TELEGRAD_WITH_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
endif()
telegrad_backend(CUDA FOUND "${CMAKE_CUDA_COMPILER}" VERSION "${CMAKE_CUDA_COMPILER}"
                 PACKAGE "the CUDA Toolkit" WHY_NOT "no nvcc was found, CUDA kernels are left out")
if(TELEGRAD_HAVE_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Code of a generation runs on all of it (80: 86 and 89); PTX is for generations to come.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE nvcc_architectures ERROR_QUIET)
    foreach(generation 70 100 120)
      if(nvcc_architectures MATCHES "compute_${generation}")
        list(APPEND CMAKE_CUDA_ARCHITECTURES ${generation}-real)
      endif()
    endforeach()
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()

# NCCL: compiling needs its header alone; the library is loaded at run time.
if(TELEGRAD_HAVE_CUDA)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES ../lib)
  mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
endif()
set(nccl_found OFF)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" nccl_version "${nccl_lines}")
  string(REPLACE ";" "." nccl_version "${nccl_version}")
  if(nccl_version VERSION_GREATER_EQUAL 2.14)
    set(nccl_found ON)
  endif()
endif()
if(NCCL_LIBRARY)
  set(nccl_library "libnccl.so.2 is loaded at run time")
else()
  set(nccl_library "header only: libnccl.so.2, loaded at run time, was not found here")
endif()
telegrad_backend(NCCL FOUND "${nccl_found}" VERSION "${nccl_version}, ${nccl_library}"
                 PACKAGE "libnccl-dev of NVIDIA, or the NVIDIA HPC SDK"
                 WHY_NOT "nccl.h 2.14 or newer beside a CUDA Toolkit was not found")

pkg_check_modules(UCX QUIET IMPORTED_TARGET ucx>=1.13)
telegrad_backend(UCX FOUND "${UCX_FOUND}" VERSION "${UCX_VERSION}" PACKAGE "libucx-dev"
                 WHY_NOT "UCX 1.13 or newer was not found")
pkg_check_modules(OFI QUIET IMPORTED_TARGET libfabric>=1.17)
telegrad_backend(OFI FOUND "${OFI_FOUND}" VERSION "${OFI_VERSION}" PACKAGE "libfabric-dev"
                 WHY_NOT "libfabric 1.17 or newer was not found")
pkg_check_modules(PMIX QUIET IMPORTED_TARGET pmix)
telegrad_backend(PMIX FOUND "${PMIX_FOUND}" VERSION "${PMIX_VERSION}" PACKAGE "libpmix-dev"
                 WHY_NOT "PMIx was not found")
pkg_check_modules(VERBS QUIET IMPORTED_TARGET libibverbs>=1.12)
telegrad_backend(VERBS FOUND "${VERBS_FOUND}" VERSION "${VERBS_VERSION}" PACKAGE "libibverbs-dev"
                 WHY_NOT "libibverbs 1.12 or newer was not found")
pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc>=2.1)
telegrad_backend(HWLOC FOUND "${HWLOC_FOUND}" VERSION "${HWLOC_VERSION}" PACKAGE "libhwloc-dev"
                 WHY_NOT "hwloc 2.1 or newer was not found")
pkg_check_modules(ARCHIVE QUIET IMPORTED_TARGET libarchive)
telegrad_backend(ARCHIVE FOUND "${ARCHIVE_FOUND}" VERSION "${ARCHIVE_VERSION}" PACKAGE "libarchive-dev"
                 WHY_NOT "libarchive was not found")
find_package(EXPAT 2.4 QUIET)
telegrad_backend(EXPAT FOUND "${EXPAT_FOUND}" VERSION "${EXPAT_VERSION_STRING}" PACKAGE "libexpat1-dev"
                 WHY_NOT "expat 2.4 or newer was not found, files of XML are not read")
if(NOT TELEGRAD_WITH_TORCH STREQUAL "OFF")
  include(TelegradTorch)
endif()
telegrad_backend(TORCH FOUND "${telegrad_torch_found}" VERSION "libtorch ${telegrad_torch_version}"
                 PACKAGE "libtorch-dev"
                 WHY_NOT "libtorch was not found, the trainer is left out")
