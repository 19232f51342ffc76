# Installs the libraries (see telegrad_library), the programs that were built, and the CMake package.
include(CMakePackageConfigHelpers)

foreach(program telegrad-train telegrad-perf telegrad-topo telegrad-server)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

set(TELEGRAD_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/telegrad)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/telegradConfig.cmake.in ${PROJECT_BINARY_DIR}/telegradConfig.cmake
  INSTALL_DESTINATION ${TELEGRAD_PACKAGE_DIR})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/telegradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT telegradTargets NAMESPACE telegrad:: DESTINATION ${TELEGRAD_PACKAGE_DIR})
install(FILES ${PROJECT_BINARY_DIR}/telegradConfig.cmake ${PROJECT_BINARY_DIR}/telegradConfigVersion.cmake
        DESTINATION ${TELEGRAD_PACKAGE_DIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/telegrad)
