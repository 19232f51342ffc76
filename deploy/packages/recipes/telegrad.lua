-- A module for Lmod and Environment Modules 5; the file lies in MODULES/telegrad/VERSION.lua.
whatis("Telegrad: communication middleware that makes gradients small")
local prefix = os.getenv("TELEGRAD_PREFIX") or pathJoin("/opt/telegrad", myModuleVersion())
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("CMAKE_PREFIX_PATH", prefix)
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
