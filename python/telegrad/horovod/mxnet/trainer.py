"""An optimizer and a trainer that step by all ranks' gradients."""
from __future__ import annotations

import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple

import mxnet  # type: ignore[import-not-found]

from ..common.process_sets import ProcessSet, global_process_set
from ..common.submission import Average, start, synchronize
from .coded import Coded, coded_of
from .compression import Compression
from .wire import wires


def _means(named: Sequence[Tuple[str, Any]], predivide: float, num_groups: int,
           process_set: ProcessSet, coded: Optional[Coded] = None) -> None:
    """All arrays become the ranks' means: all are under way before one is waited for."""
    request: Dict[str, Any] = {"op": Average, "prescale": 1 / predivide, "postscale": predivide}
    if coded is not None:
        return coded.means(named, request)
    groups = [list(named[len(named) * i // num_groups:len(named) * (i + 1) // num_groups])
              for i in range(num_groups)]
    handles = []
    for group in groups or [[each] for each in named]:
        if group:
            arrays = [array for _, array in group]
            handles.append(start("allreduce", wires(arrays, arrays), group[0][0], process_set,
                                 is_group=len(group) > 1, **request))
    for handle in handles:
        synchronize(handle)


class DistributedOptimizer(mxnet.optimizer.Optimizer):  # type: ignore[misc]
    """Around an optimizer of MXNet: updates are by the ranks' mean gradients.

    Args:
        gradient_predivide_factor: how much of the division comes before the sum.
        num_groups: gradients given together are sent in so many groups.
        process_set: ranks that take part; others step alone.
        compression: Compression.none, or a codec, "int2"; its names are the optimizer's.

    Raises:
        telegrad.Unsupported: a codec with groups or a process set.
    """

    def __init__(self, optimizer: Any, gradient_predivide_factor: float = 1.0,
                 num_groups: int = 0, process_set: ProcessSet = global_process_set,
                 compression: Any = Compression.none) -> None:
        self._optimizer = optimizer
        self._predivide, self._num_groups = gradient_predivide_factor, num_groups
        self._process_set = process_set
        _, self._coded = coded_of(compression, optimizer, process_set, num_groups)

    def __getattr__(self, item: str) -> Any:
        return getattr(self._optimizer, item)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def _reduce(self, index: Any, grad: Any) -> None:
        if not self._process_set.included() or self._process_set.size() == 1:
            return
        indices, grads = (index, grad) if isinstance(index, (tuple, list)) else (
            [index], [grad])
        names = getattr(self._optimizer, "idx2name", {}) if self._coded else {}
        _means([(f"{names.get(one, one)}", each) for one, each in zip(indices, grads)],
               self._predivide, min(self._num_groups, len(indices)), self._process_set,
               self._coded)

    def compression_report(self) -> Dict[str, Any]:
        """What the codec does of each parameter, and bytes; empty without one."""
        return {} if self._coded is None else self._coded.report()

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        self._optimizer.set_wd_mult(args_wd_mult)


class DistributedTrainer(mxnet.gluon.Trainer):  # type: ignore[misc]
    """gluon.Trainer that steps by the ranks' mean gradients, without a KVStore.

    Args:
        params: of ``net.collect_params()``.
        optimizer, optimizer_params: as of gluon.Trainer.
        compression: Compression.none, fp16, or a codec: Compression.int2, or "int2".
        gradient_predivide_factor, num_groups, process_set: as of `DistributedOptimizer`.
        prefix: of gradients' names, where a script has several trainers.

    Raises:
        telegrad.Unsupported: a codec with groups or a process set.
    """

    def __init__(self, params: Any, optimizer: Any, optimizer_params: Any = None,
                 compression: Any = Compression.none, gradient_predivide_factor: float = 1.0,
                 prefix: Optional[str] = None, num_groups: int = 0,
                 process_set: ProcessSet = global_process_set) -> None:
        coded = None
        if isinstance(optimizer, DistributedOptimizer):
            coded, optimizer = optimizer._coded, optimizer._optimizer
            warnings.warn("DistributedTrainer does not take DistributedOptimizer as its "
                          "optimizer. We have unwrapped it for you.", stacklevel=2)
        if isinstance(params, (list, tuple)):
            params = sorted(params, key=lambda each: each.name)
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._compression, self._coded = coded_of(compression, self._optimizer, process_set,
                                                  num_groups, coded)
        self._predivide = gradient_predivide_factor
        self._prefix, self._num_groups = prefix or "", num_groups
        self._process_set = process_set

    def _allreduce_grads(self) -> None:
        if not self._process_set.included() or self._process_set.size() == 1:
            return
        first: List[Tuple[str, Any, Any]] = []
        for i, param in enumerate(self._params):
            if param.grad_req != "null":
                sent, context = self._compression.compress(param.list_grad()[0])
                name = param.name if self._coded else i  # which rules find
                first.append((f"{self._prefix}{name}", sent, context))
        _means([(name, sent) for name, sent, _ in first], self._predivide,
               min(self._num_groups, len(first)), self._process_set, self._coded)
        trained = [param for param in self._params if param.grad_req != "null"]
        for param, (_, sent, context) in zip(trained, first):
            if context is not None:
                param.list_grad()[0][:] = self._compression.decompress(sent, context)

    def compression_report(self) -> Dict[str, Any]:
        """What the codec does of each parameter, and bytes; empty without one."""
        return {} if self._coded is None else self._coded.report()
