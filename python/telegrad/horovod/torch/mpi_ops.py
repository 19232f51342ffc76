"""All operations, as Horovod's module of this name has them."""
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import (ProcessSet, add_process_set, global_process_set,
                                   remove_process_set)
from ..common.submission import (Adasum, Average, Max, Min, Product, Sum, barrier, join, poll,
                         synchronize)
from ..common.world import (ccl_built, cross_rank, cross_size, cuda_built, ddl_built,
                            gloo_built, gloo_enabled, init, is_homogeneous, is_initialized,
                            local_rank, local_size, mpi_built, mpi_enabled,
                            mpi_threads_supported, nccl_built, rank, rocm_built, shutdown,
                            size, start_timeline, stop_timeline)
from .allgather import (allgather, allgather_async, grouped_allgather,
                        grouped_allgather_async)
from .allreduce import (allreduce, allreduce_, allreduce_async, allreduce_async_,
                        grouped_allreduce, grouped_allreduce_, grouped_allreduce_async,
                        grouped_allreduce_async_, sparse_allreduce_async)
from .alltoall import alltoall, alltoall_async
from .broadcast import broadcast, broadcast_, broadcast_async, broadcast_async_
from .reducescatter import (grouped_reducescatter, grouped_reducescatter_async,
                            reducescatter, reducescatter_async)

__all__ = [name for name in dir() if not name.startswith("_")]
