# Layers whose libraries and public headers are installed; those above them are programs.
set(TELEGRAD_INSTALLED_LAYERS base kernels compression transport topology kvstore)

# telegrad_unity(TARGET a.cc ...): with TELEGRAD_UNITY the target's files of one folder are compiled as
# one. Those named stay alone: names in their unnamed namespaces are those of another file.
function(telegrad_unity target)
  if(NOT TELEGRAD_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "folder_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  list(FILTER sources INCLUDE REGEX "[.]cu$")  # newer CMake would unite them, too
  set_source_files_properties(${ARGN} ${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# With TELEGRAD_LIBRARY_PCH the libraries share one precompiled header; kernels and networks
# include little of it, and the trainer's data are compiled with other flags.
function(telegrad_library_headers target)
  if(NOT TELEGRAD_LIBRARY_PCH OR target MATCHES "telegrad_(kernels|networks|trainer_data)")
    return()
  endif()
  if(NOT TARGET telegrad_library_headers)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/library_headers.cc CONTENT "")
    add_library(telegrad_library_headers OBJECT ${PROJECT_BINARY_DIR}/library_headers.cc)
    set_target_properties(telegrad_library_headers PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_precompile_headers(telegrad_library_headers PRIVATE
      <algorithm> <functional> <map> <memory> <optional> <set> <string> <thread> <vector>
      <nlohmann/json.hpp> <absl/status/statusor.h> <absl/strings/str_cat.h>
      <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/str_split.h>)
    target_link_libraries(telegrad_library_headers PRIVATE
      absl::statusor absl::str_format nlohmann_json::nlohmann_json telegrad_flags)
    target_compile_options(telegrad_library_headers PRIVATE -pthread)
  endif()
  # Some of them have it from their dependencies, and all must be alike.
  target_compile_options(${target} PRIVATE -pthread)
  target_precompile_headers(${target} REUSE_FROM telegrad_library_headers)
endfunction()

# telegrad_library(NAME base SOURCES a.cc HEADERS a.h DEPS absl::status PRIVATE_DEPS ucp ALONE a.cc)
# makes libtelegrad_base with the alias telegrad::base. HEADERS are public; those of an
# installed layer are installed. ALONE: see telegrad_unity.
function(telegrad_library)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;HEADERS;DEPS;PRIVATE_DEPS;ALONE" ${ARGN})
  set(target telegrad_${ARG_NAME})
  set(kind STATIC)
  if(ARG_NAME IN_LIST TELEGRAD_SHARED)
    set(kind SHARED)
  endif()
  add_library(${target} ${kind} ${ARG_SOURCES})
  add_library(telegrad::${ARG_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${ARG_NAME} POSITION_INDEPENDENT_CODE ON)
  if(ARG_HEADERS)
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  else()
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS}
                        PRIVATE ${ARG_PRIVATE_DEPS} $<BUILD_INTERFACE:telegrad_flags>)
  telegrad_unity(${target} ${ARG_ALONE})
  telegrad_library_headers(${target})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" layer "${folder}")
  if(layer IN_LIST TELEGRAD_INSTALLED_LAYERS)
    set(headers "")
    if(ARG_HEADERS)
      set(headers FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/telegrad)
    endif()
    install(TARGETS ${target} EXPORT telegradTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
            ${headers})
  endif()
endfunction()

# telegrad_test(NAME base/crc32c SOURCES crc32c_test.cc DEPS telegrad::base [KEPT] [COMPUTES] [LABELS x] [TIMEOUT s])
# makes one test program; each of its tests is one of CTest's, or with TELEGRAD_TEST_PROGRAMS all of them
# together, in five times the TIMEOUT. Tests with the label `system` start processes of their own and run alone.
# KEPT: in spite of TELEGRAD_TESTS_LEFT_OUT, since builds with a sanitizer do not have it.
# COMPUTES: optimised as kernels are, since its own loops take most of its time.
function(telegrad_test)
  cmake_parse_arguments(ARG "KEPT;COMPUTES" "NAME;TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT TELEGRAD_BUILD_TESTS)
    return()
  endif()
  string(REPLACE "/" "_" target "test_${ARG_NAME}")
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main telegrad_flags)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${TELEGRAD_TEST_OPTIMIZATION}>)
  if(ARG_COMPUTES AND TELEGRAD_KERNEL_OPTIMIZATION)  # other flags than those of the precompiled header
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${TELEGRAD_KERNEL_OPTIMIZATION}>)
  elseif(TELEGRAD_TEST_PCH)
    target_precompile_headers(${target} REUSE_FROM telegrad_test_headers)
  endif()
  if(TELEGRAD_TESTS_LEFT_OUT AND ARG_NAME MATCHES "${TELEGRAD_TESTS_LEFT_OUT}" AND NOT ARG_KEPT)
    # Other tests may have use for its objects.
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(TELEGRAD_TEST_PROGRAMS)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABELS)
    list(APPEND properties LABELS "${ARG_LABELS}")
  endif()
  if("system" IN_LIST ARG_LABELS)
    list(APPEND properties RUN_SERIAL ON)
  endif()
  if(TELEGRAD_TEST_PROGRAMS)
    add_test(NAME ${ARG_NAME} COMMAND ${target})
    set_tests_properties(${ARG_NAME} PROPERTIES ${properties})
    return()
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${ARG_NAME}/" DISCOVERY_TIMEOUT 60
    PROPERTIES ${properties})
endfunction()
