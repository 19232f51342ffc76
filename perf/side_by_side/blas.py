"""Every program of a measurement multiplies matrices by the kernels that telegrad-train takes.

OpenBLAS has slow ones for a processor that it does not know; trainer/networks/load_framework.cc has the rule.
"""


def kernels():
    """Variables of the environment; none where OpenBLAS decides."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = {flag for line in file if line.startswith("flags") for flag in line.split()}
    except OSError:
        return {}
    for name, needed in (("SkylakeX", ("avx512f", "avx512bw", "avx512dq", "avx512vl")),
                         ("Haswell", ("avx2", "fma"))):
        if flags.issuperset(needed):
            return {"OPENBLAS_CORETYPE": name}
    return {}
