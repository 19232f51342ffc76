"""Horovod's interface for PyTorch::

    import telegrad.horovod.torch as hvd

    hvd.init()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(),
                                         compression=hvd.Compression.int2)

Ranks are started by telegrad-launch, torchrun, mpirun or srun; docs/from_horovod.md.
"""
from . import elastic
from .compression import Compression
from .functions import (allgather_object, broadcast_object, broadcast_optimizer_state,
                        broadcast_parameters)
from .mpi_ops import *
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm
