# The component `bundle` of an installation: programs in bin/ and, in lib/, the libraries that they need and that a
# machine with a driver and PyTorch's wheel lacks. It runs from any folder. docs/gpu.md, ./telegrad bundle.
set(bundle_programs "")
foreach(program telegrad-train telegrad-perf telegrad-topo telegrad-server telegrad-gpu-check
                telegrad-copy-check test_kernels test_compression test_kvstore_devices test_kvstore_engine)
  if(TARGET ${program})
    list(APPEND bundle_programs ${program})
  endif()
endforeach()
add_custom_target(telegrad-bundle-programs DEPENDS ${bundle_programs} telegrad_c)

# DT_RPATH and not DT_RUNPATH: the libraries in lib/ find one another by it, too.
set_target_properties(${bundle_programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
foreach(program ${bundle_programs})
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endforeach()

# The kernels are most of each program; shared, they are there once. CUDA's runtime hides its symbols: the library and
# programs that call CUDA have one each, with the same contexts, and each sees only its own calls' errors.
if("kernels" IN_LIST TELEGRAD_SHARED)
  install(TARGETS telegrad_kernels LIBRARY DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL
          NAMELINK_SKIP)
endif()

# Of libc, of torch, of CUDA and its driver. tests/install/bundle_test.py knows the same.
set(outside "^ld-linux" "^lib(c|m|dl|rt|pthread|util|resolv)[.]so" "^lib(c10|torch|shm|gomp)"
            "^lib(cuda|cudart|cudnn|cublas|cupti|nvidia|nvrtc|nccl)")
install(TARGETS ${bundle_programs} RUNTIME_DEPENDENCY_SET bundle_libraries
        RUNTIME DESTINATION bin COMPONENT bundle EXCLUDE_FROM_ALL)
set_target_properties(telegrad_c PROPERTIES INSTALL_RPATH "$ORIGIN")
target_link_options(telegrad_c PRIVATE -Wl,--disable-new-dtags)
install(TARGETS telegrad_c RUNTIME_DEPENDENCY_SET bundle_libraries
        LIBRARY DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL NAMELINK_SKIP)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/telegrad DESTINATION python COMPONENT bundle EXCLUDE_FROM_ALL
        PATTERN "__pycache__" EXCLUDE)
if(TARGET telegrad-networks)  # which telegrad-train opens
  install(TARGETS telegrad-networks RUNTIME_DEPENDENCY_SET bundle_libraries
          LIBRARY DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL)
endif()
install(RUNTIME_DEPENDENCY_SET bundle_libraries PRE_EXCLUDE_REGEXES ${outside}
        LIBRARY DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/perf/run_on_gpu/run-on-gpu ${PROJECT_SOURCE_DIR}/perf/run_on_gpu/ddp-check DESTINATION . COMPONENT bundle EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION . COMPONENT bundle EXCLUDE_FROM_ALL)
