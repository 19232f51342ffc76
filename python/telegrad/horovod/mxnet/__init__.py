"""Horovod's interface for MXNet 1.9.1::

    import telegrad.horovod.mxnet as hvd

    hvd.init()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

docs/from_horovod.md says what differs. Arrays are dense; those of GPUs go through host memory.
"""
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import (ProcessSet, add_process_set, global_process_set,
                                   remove_process_set)
from ..common.submission import Adasum, Average, Max, Min, Product, Sum, barrier, join
from ..common.world import (ccl_built, cross_rank, cross_size, cuda_built, ddl_built,
                            gloo_built, gloo_enabled, init, is_homogeneous, is_initialized,
                            local_rank, local_size, mpi_built, mpi_enabled,
                            mpi_threads_supported, nccl_built, rank, rocm_built, shutdown,
                            size, start_timeline, stop_timeline)
from .compression import Compression
from .functions import allgather_object, broadcast_object, broadcast_parameters
from .mpi_ops import (allgather, allreduce, allreduce_, alltoall, broadcast, broadcast_,
                      grouped_allgather, grouped_allreduce, grouped_allreduce_,
                      grouped_reducescatter, reducescatter)
from .trainer import DistributedOptimizer, DistributedTrainer
