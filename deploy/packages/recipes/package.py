# Never run so far. Spack: var/spack/repos/builtin/packages/telegrad/package.py
from spack.package import *


class Telegrad(CMakePackage):
    """Communication middleware that makes gradients small."""

    homepage = "https://pypi.org/project/telegrad/"
    # version("VERSION", sha256="...", url="file:///.../telegrad-VERSION.tar.gz")

    variant("cuda", default=False, description="Kernels for GPUs")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    for library in ("abseil-cpp", "cli11", "expat", "highway", "libbsd", "nlohmann-json",
                    "openssl@3:", "re2", "zlib-api"):
        depends_on(library)
    depends_on("python@3.9:", type="run")
    depends_on("cuda", when="+cuda")
    generator("ninja")

    def cmake_args(self):
        return [self.define_from_variant("TELEGRAD_WITH_CUDA", "cuda"),
                self.define("TELEGRAD_BUILD_TESTS", False), self.define("TELEGRAD_UNITY", True)]
