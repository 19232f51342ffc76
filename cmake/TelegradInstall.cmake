# Installs the libraries (see telegrad_library), the programs that were built, and the CMake package.
include(CMakePackageConfigHelpers)

foreach(program telegrad-train telegrad-perf telegrad-topo telegrad-server)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# telegrad-launch is Python, which the machine has or has not; it finds its folder from where it lies.
set(launcher ${PROJECT_SOURCE_DIR}/python/telegrad-launch)
if(SKBUILD)
  file(READ ${launcher} text)
  string(REPLACE "#!/usr/bin/env python3" "#!python" text "${text}")  # which pip replaces by its own
  file(WRITE ${PROJECT_BINARY_DIR}/telegrad-launch "${text}")
  install(PROGRAMS ${PROJECT_BINARY_DIR}/telegrad-launch DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT wheel)
else()
  file(CREATE_LINK ${launcher} ${PROJECT_BINARY_DIR}/kvstore/telegrad-launch SYMBOLIC)
  install(PROGRAMS ${launcher} DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/telegrad/launch DESTINATION ${CMAKE_INSTALL_DATADIR}/telegrad
          PATTERN __pycache__ EXCLUDE)
  file(WRITE ${PROJECT_BINARY_DIR}/VERSION ${PROJECT_VERSION})
  install(FILES ${PROJECT_BINARY_DIR}/VERSION DESTINATION ${CMAKE_INSTALL_DATADIR}/telegrad/launch)
endif()

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
