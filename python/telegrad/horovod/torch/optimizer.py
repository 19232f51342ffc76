"""An optimizer that steps by all ranks' gradients."""
from __future__ import annotations

import contextlib
import os
import warnings
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from ...errors import Unsupported
from ..common import world
from ..common.coded import Codec, compression_of
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, global_process_set
from ..common.submission import Adasum, Average, Sum, synchronize
from .adasum_optimizer import AdasumOptimizer
from .allreduce import allreduce_async_, grouped_allreduce_async_, sparse_allreduce_async
from .coded import Coded
from .compression import Compression
from .functions import broadcast_object
from .hooks import after_gradient, names_of

_TOO_OFTEN = ("Gradients were computed more than backward_passes_per_step times before call "
              "to step(). Increase backward_passes_per_step to accumulate gradients locally.")
_TOO_EARLY = ("optimizer.zero_grad() was called after loss.backward() but before "
              "optimizer.step() or optimizer.synchronize(). This is prohibited as it can "
              "cause a race condition.")
_TWICE = ("optimizer.step() called without optimizer.skip_synchronize() context after "
          "optimizer.synchronize(). This can cause training slowdown. You may want to "
          "consider using optimizer.skip_synchronize() context if you use "
          "optimizer.synchronize() in your code.")


_Inner: Any = object  # an optimizer's class comes behind it


class _Distributed(_Inner):  # type: ignore[misc]
    """In front of an optimizer's class: sends each gradient when backward has it, and waits
    for all in `step`."""

    def _set_up(self, inner: Any, names: Dict[Any, str], compression: Any, passes: int,
                op: int, predivide: float, groups: Any, sparse_as_dense: bool,
                process_set: ProcessSet) -> None:
        self._inner = inner
        self._parameter_names, self._compression = names, compression
        self.backward_passes_per_step = passes
        self.op, self.gradient_predivide_factor = op, predivide
        self.sparse_as_dense, self.process_set = sparse_as_dense, process_set
        self._delays = {p: passes for p in names}
        self._handles: Dict[Any, Any] = {}  # of a parameter, or a tuple of a group's
        self._is_synchronized, self._should_synchronize = False, True
        self._coded: Optional[Coded] = None
        self._group_of: Dict[Any, Tuple[Any, ...]] = {}
        self._ready: Dict[Any, int] = {}  # of groups: how many gradients
        self._removes: List[Any] = []
        is_elastic = os.environ.get("HOROVOD_ELASTIC") == "1" or world.is_elastic()
        self._trained = [p for group in self.param_groups for p in group["params"]
                         if p.requires_grad]
        if not process_set.included() or (world.size() == 1 and not is_elastic):
            self._trained = []
            return
        if isinstance(compression, Codec):
            self._set_up_codec(compression, groups)
        self._make_groups(groups)
        for p in self._trained:
            self._removes.append(after_gradient(p, self._on_gradient))

    def _set_up_codec(self, codec: Codec, groups: Any) -> None:
        if self.process_set is not global_process_set or groups:
            raise Unsupported(f"compression {codec.type} with a process set or groups: take "
                              "fp16, bf16 or none there")
        self._coded = Coded(codec, self._inner, self._parameter_names, self.op)
        self._compression = Compression.none

    def _make_groups(self, groups: Any) -> None:
        if not groups:
            return
        if isinstance(groups, list):
            trained = set(self._trained)
            listed = [tuple(p for p in group if p in trained) for group in groups]
            known = {p for group in listed for p in group}
            listed += [(p,) for p in self._trained if p not in known]
        else:
            order = broadcast_object([self._parameter_names[p] for p in self._trained],
                                     name="groups", process_set=self.process_set,
                                     root_rank=self.process_set.ranks[0])
            place = {name: i for i, name in enumerate(order)}
            of_rank_0 = sorted(self._trained,
                               key=lambda p: place[self._parameter_names[p]])
            listed = [tuple(of_rank_0[len(of_rank_0) * i // groups:
                                      len(of_rank_0) * (i + 1) // groups])
                      for i in range(groups)]
        self._group_of = {p: group for group in listed for p in group}

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From the next step on."""
        self.backward_passes_per_step = passes
        self._delays = {p: passes for p in self._delays}

    def _on_gradient(self, p: Any) -> None:
        """Backward has added to its gradient."""
        if self._delays[p] <= 0:
            raise AssertionError(_TOO_OFTEN)
        self._delays[p] -= 1
        if self._delays[p] > 0:
            return
        group = self._group_of.get(p)
        if group is None:
            self._handles[p] = self._start(p)
            return
        self._ready[group] = self._ready.get(group, 0) + 1
        if self._ready[group] == len(group):
            self._handles[group] = self._start_group(group)

    def _start(self, p: Any) -> Any:
        """A function that waits for the gradient, which all ranks need, whoever computed
        one."""
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        name = self._parameter_names[p]
        if p.grad.is_sparse and not self.sparse_as_dense:
            wait = sparse_allreduce_async(p.grad, name, self.op, self.process_set)
            return lambda: self._take_sparse(p, wait())
        if self._coded is not None and self._coded.has(p) and not p.grad.is_sparse:
            return self._coded.start(p)
        dense = p.grad.to_dense() if p.grad.is_sparse else p.grad
        sent, context = self._compression.compress(dense.contiguous())
        handle = allreduce_async_(sent, name=name, op=self.op, process_set=self.process_set,
                                  **self._factors)
        return lambda: self._take(p, self._compression.decompress(synchronize(handle),
                                                                  context))

    @property
    def _factors(self) -> Dict[str, Any]:
        factor = self.gradient_predivide_factor if self.op == Average else 1.0
        return {"prescale_factor": 1 / factor, "postscale_factor": factor}

    def _start_group(self, group: Tuple[Any, ...]) -> Any:
        for p in group:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        small = [self._compression.compress(
            (p.grad.to_dense() if p.grad.is_sparse else p.grad).contiguous()) for p in group]
        handle = grouped_allreduce_async_(
            [sent for sent, _ in small], name=self._parameter_names[group[0]], op=self.op,
            process_set=self.process_set, **self._factors)

        def wait() -> None:
            for p, found, (_, context) in zip(group, synchronize(handle), small):
                self._take(p, self._compression.decompress(found, context))

        return wait

    def _take(self, p: Any, found: Any) -> None:
        if p.grad.is_sparse:
            self._take_sparse(p, found.to_sparse(p.grad.sparse_dim()))
        elif found.data_ptr() != p.grad.data_ptr():
            p.grad.detach().copy_(found)

    @staticmethod
    def _take_sparse(p: Any, found: Any) -> None:
        p.grad = found.to(p.grad.device, p.grad.dtype)

    def synchronize(self) -> None:
        """Waits until all gradients are the ranks'; what backward did not compute counts
        as zero."""
        started = {p for key in self._handles
                   for p in (key if isinstance(key, tuple) else (key,))}
        for p in self._trained:
            if p in started:
                continue
            group = self._group_of.get(p)
            if group is None:
                self._handles[p] = self._start(p)
            else:
                self._handles[group] = self._start_group(group)
                started.update(group)
        handles, self._handles = self._handles, {}
        self._ready.clear()
        self._delays = {p: self.backward_passes_per_step for p in self._delays}
        for wait in handles.values():
            wait()
        self._is_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """`step` within does not wait: `synchronize` was called::

            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Any = None) -> Any:
        """By all ranks' gradients."""
        if self._should_synchronize:
            if self._is_synchronized:
                warnings.warn(_TWICE, stacklevel=2)
            self.synchronize()
        self._is_synchronized = False
        self._share()
        result = self._inner.step() if closure is None else self._inner.step(closure)
        if self._coded is not None:
            self._coded.after_step()
        return result

    def step_alone(self) -> None:
        """By this rank's gradients."""
        self._share()
        self._inner.step()

    def _share(self) -> None:
        """The optimizer within, which hooks and schedulers may know, is this one."""
        self._inner.state, self._inner.param_groups = self.state, self.param_groups

    def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
        """
        Raises:
            AssertionError: gradients are under way.
        """
        if self._handles:
            raise AssertionError(_TOO_EARLY)
        return super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Forgets gradients that are under way."""
        handles, self._handles = self._handles, {}
        self._ready.clear()
        for wait in handles.values():
            try:
                wait()
            except HorovodInternalError:
                pass  # they are forgotten
        self._is_synchronized, self._should_synchronize = False, True
        self._delays = {p: self.backward_passes_per_step for p in self._delays}
        super().load_state_dict(*args, **kwargs)
        self._share()

    def compression_report(self) -> Dict[str, Any]:
        """What the codec does of each parameter, and bytes; empty without one."""
        return {} if self._coded is None else self._coded.report()


def _check_groups(groups: Any) -> None:
    if groups is None:
        return
    if not isinstance(groups, (int, list)) or (isinstance(groups, int) and groups < 0):
        raise ValueError("groups should be a non-negative integer or a list of list of "
                         "torch.Tensor.")
    listed = [p for group in (groups if isinstance(groups, list) else ()) for p in group]
    if any(not isinstance(p, torch.Tensor) for p in listed):
        raise ValueError("groups must consist of torch.Tensor.")
    if len({id(p) for p in listed}) < len(listed):
        raise ValueError("A parameter can only appear once in groups.")


def _made_of(optimizer: Any, kind: Any) -> Any:
    """The same optimizer's parameters, options and state, with `kind` in front of its
    class."""
    inner = type(optimizer)
    made_class: Any = type(inner.__name__, (kind, inner), {})
    made = made_class.__new__(made_class)
    made.__dict__.update({name: value for name, value in vars(optimizer).items()
                          if name != "step"})  # which a scheduler put around the inner one's
    return made


def DistributedOptimizer(  # noqa: N802
        optimizer: Any, named_parameters: Any = None, compression: Any = Compression.none,
        backward_passes_per_step: int = 1, op: int = Average,
        gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Any = None,
        sparse_as_dense: bool = False,
        process_set: ProcessSet = global_process_set) -> Any:
    """An optimizer of the same class, that steps by the ranks' mean gradients: each is sent
    when backward has computed it.

    Args:
        optimizer: of torch.
        named_parameters: ``model.named_parameters()``, all that the optimizer has; None:
            they are numbered.
        compression: of `Compression`; ``Compression.int2``, or "int2", is a codec.
        backward_passes_per_step: gradients of so many are added before they are sent.
        op: Average, Sum, Min, Max, Product, or Adasum, which combines steps.
        gradient_predivide_factor: of an Average: how much of it divides before the sum.
        groups: lists of parameters that are sent together, or how many groups to make.
        num_groups: its old name.
        sparse_as_dense: sparse gradients are sent dense; else entries are gathered.
        process_set: ranks that take part; others step alone.

    Raises:
        ValueError: names that occur twice or do not cover the parameters; groups.
    """
    compression = compression_of(
        Compression, compression, op in (Average, Sum) and process_set is global_process_set and not (
            groups or num_groups or world.current().parts))
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups:
        warnings.warn("Parameter `num_groups` has been replaced by `groups` and will be "
                      "removed in v0.23.0.", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    _check_groups(groups)
    names = names_of(optimizer, named_parameters)
    if op == Adasum and world.size() > 1:
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        made = _made_of(optimizer, AdasumOptimizer)
        made._set_up(names, compression, backward_passes_per_step)
        return made
    made = _made_of(optimizer, _Distributed)
    made._set_up(optimizer, names, compression, backward_passes_per_step, op,
                 gradient_predivide_factor, groups, sparse_as_dense, process_set)
    return made
