cmake_minimum_required(VERSION 3.25)

# Installs the build into a scratch prefix; configures, builds and runs a project that knows only that
# prefix; looks whether our own flags reached it.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${result}\n${output}")
  endif()
endfunction()

set(flags "")
foreach(sanitizer ${SANITIZERS})
  string(APPEND flags " -fsanitize=${sanitizer}")
endforeach()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)

# Every installed header must compile from the installed tree.
file(GLOB_RECURSE headers RELATIVE ${WORK_DIR}/prefix/include/telegrad ${WORK_DIR}/prefix/include/telegrad/*.h)
if(NOT "base/crc32c.h" IN_LIST headers)
  message(FATAL_ERROR "base/crc32c.h was not installed; there are: ${headers}")
endif()
set(includes "")
foreach(header ${headers})
  string(APPEND includes "#include \"${header}\"\n")
endforeach()
file(WRITE ${WORK_DIR}/all_headers.h "${includes}")

run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER_DIR} -B ${WORK_DIR}/build
    -D CMAKE_PREFIX_PATH=${WORK_DIR}/prefix -D CMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${flags}"
    -D ALL_HEADERS_DIR=${WORK_DIR} -D CMAKE_EXPORT_COMPILE_COMMANDS=ON)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/consumer)

file(READ ${WORK_DIR}/build/compile_commands.json commands)
foreach(flag -Werror -Wconversion -Wshadow -ffp-contract _FORTIFY_SOURCE)
  if(commands MATCHES "${flag}")
    message(FATAL_ERROR "${flag} reaches the users of the package:\n${commands}")
  endif()
endforeach()

# The launcher needs nothing but its folder.
run(${WORK_DIR}/prefix/bin/telegrad-launch -n 2 -- ${WORK_DIR}/build/consumer)

# The C interface is found by pkg-config alone.
find_program(PKG_CONFIG pkg-config REQUIRED)
file(GLOB_RECURSE module ${WORK_DIR}/prefix/telegrad.pc)
get_filename_component(modules ${module} DIRECTORY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${modules} ${PKG_CONFIG} --cflags --libs telegrad
                OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(found UNIX_COMMAND "${found}")
string(REPLACE " " ";" sanitizers "${flags}")
list(REMOVE_ITEM sanitizers "")
get_filename_component(libraries ${modules} DIRECTORY)
run(${COMPILER} ${sanitizers} -x c++ ${CONSUMER_DIR}/main_c.c -x none -o ${WORK_DIR}/consumer_c ${found}
    -Wl,-rpath,${libraries})
run(${WORK_DIR}/consumer_c)
