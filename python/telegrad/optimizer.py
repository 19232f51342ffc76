"""Optimizers that a store runs, as numbers: nothing is pickled."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, ClassVar, Dict, Tuple, Union

from .errors import Unsupported

Key = Union[int, str]
Multipliers = Dict[Key, float]


@dataclass
class RunByStore:
    """What all have. docs/c.md has the rules, in order of operations.

    Args:
        learning_rate, wd: of all keys but for `lr_mult` and `wd_mult`, which have a
            factor for some keys; these stay as they are when a key is used first.
        rescale_grad: of the sum over workers: ``1 / (batch_size * num_workers)``.

    Example::

        kv.set_optimizer(telegrad.optimizer.SGD(learning_rate=0.1, momentum=0.9,
                                                wd_mult={"bias": 0}))
    """
    learning_rate: float = 0.01
    wd: float = 0.0
    rescale_grad: float = 1.0
    lr_mult: Multipliers = field(default_factory=dict)
    wd_mult: Multipliers = field(default_factory=dict)
    _kind: ClassVar[int]
    _own: ClassVar[Tuple[str, ...]] = ()

    def settings(self) -> Dict[str, float]:
        """As the C interface names them."""
        return {"kind": self._kind, "learning_rate": self.learning_rate,
                "weight_decay": self.wd, "rescale_grad": self.rescale_grad,
                **{name: getattr(self, name) for name in self._own}}

    def rates_of(self, key: Key) -> Tuple[float, float]:
        """What the key's learning rate and weight decay are multiplied by."""
        return self.lr_mult.get(key, 1.0), self.wd_mult.get(key, 1.0)


class Rescale(RunByStore):
    """No optimizer: pulls give sums times `rescale_grad`. Means::

        kv.set_optimizer(telegrad.optimizer.Rescale(1 / kv.num_workers))
    """
    _kind = -1

    def __init__(self, rescale_grad: float) -> None:
        super().__init__(rescale_grad=rescale_grad)


@dataclass
class SGD(RunByStore):
    """MXNet's ``sgd``, with momentum."""
    momentum: float = 0.0
    _kind = 0
    _own = ("momentum",)


@dataclass
class NAG(SGD):
    """MXNet's ``nag``, torch's SGD with ``nesterov``."""
    _kind = 1


@dataclass
class Adam(RunByStore):
    """torch's ``Adam``; `wd` is added to the gradient."""
    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    _kind = 2
    _own = ("beta1", "beta2", "epsilon")


@dataclass
class AdamW(Adam):
    """torch's ``AdamW``: weights decay by themselves."""
    _kind = 3


@dataclass
class Adagrad(RunByStore):
    """torch's ``Adagrad``, without a decay of the rate."""
    epsilon: float = 1e-10
    _kind = 4
    _own = ("epsilon",)


@dataclass
class RMSProp(RunByStore):
    """torch's ``RMSprop``, not centered, without momentum; `beta2` is its ``alpha``."""
    beta2: float = 0.99
    epsilon: float = 1e-8
    _kind = 5
    _own = ("beta2", "epsilon")


def _refuse(what: str) -> Unsupported:
    return Unsupported(f"{what}: a store runs sgd, nag, adam, adamw, adagrad and rmsprop "
                       "(telegrad.optimizer); keep this optimizer on the workers: push "
                       "gradients, pull sums (gluon.Trainer: update_on_kvstore=False)")


def _torch_adam(group: Dict[str, Any]) -> Dict[str, Any]:
    beta1, beta2 = group["betas"]
    return {"beta1": beta1, "beta2": beta2, "epsilon": group["eps"]}


_MXNET: Dict[str, Any] = {"SGD": SGD, "NAG": NAG, "Adam": Adam}
# Class -> (ours, its own numbers, options that the store lacks).
_Reader = Callable[[Dict[str, Any]], Dict[str, Any]]
_TORCH: Dict[str, Tuple[Any, _Reader, Tuple[str, ...]]] = {
    "SGD": (SGD, lambda group: {"momentum": group["momentum"]},
            ("dampening", "maximize")),
    "Adam": (Adam, _torch_adam, ("amsgrad", "maximize")),
    "AdamW": (AdamW, _torch_adam, ("amsgrad", "maximize")),
    "Adagrad": (Adagrad, lambda group: {"epsilon": group["eps"]},
                ("lr_decay", "initial_accumulator_value", "maximize")),
    "RMSprop": (RMSProp, lambda group: {"beta2": group["alpha"], "epsilon": group["eps"]},
                ("momentum", "centered", "maximize")),
}


def _of_mxnet(given: Any, kind: str) -> RunByStore:
    name = type(given).__name__
    if name == "Test":  # weight += rescale_grad * gradient
        return SGD(learning_rate=-1, rescale_grad=given.rescale_grad)
    if name not in _MXNET:
        raise _refuse(kind)
    ours = _MXNET[name]
    for option in ("clip_gradient", "lr_scheduler"):
        if getattr(given, option, None) is not None:
            raise _refuse(f"{kind} with {option}")
    found: RunByStore = ours(learning_rate=given.lr, wd=given.wd,
                             rescale_grad=given.rescale_grad,
                             **{own: getattr(given, own) for own in ours._own})
    for to, option in ((found.lr_mult, "lr_mult"), (found.wd_mult, "wd_mult")):
        by_name = dict(getattr(given, option, {}))
        to.update(by_name)
        # Keys are numbers; multipliers are by name, or lie in the parameters.
        for index, known in getattr(given, "idx2name", {}).items():
            if known in by_name:
                to.setdefault(index, by_name[known])
        for index, parameter in getattr(given, "param_dict", {}).items():
            to[index] = getattr(parameter, option)
    return found


def _of_torch(given: Any, kind: str) -> RunByStore:
    if type(given).__name__ not in _TORCH:
        raise _refuse(kind)
    ours, own, lacks = _TORCH[type(given).__name__]
    if len(given.param_groups) != 1:
        raise _refuse(f"{kind} with {len(given.param_groups)} groups (telegrad.optimizer "
                      "has lr_mult and wd_mult for some keys)")
    group = given.param_groups[0]
    for option in lacks:
        if group.get(option):
            raise _refuse(f"{kind} with {option}")
    if group.get("nesterov"):
        ours = NAG
    if group.get("decoupled_weight_decay"):
        ours = AdamW
    # The momentum of torch's SGD lacks the rate: the same while the rate stays.
    found: RunByStore = ours(learning_rate=float(group["lr"]), wd=group["weight_decay"],
                             **own(group))
    return found


def translate(optimizer: Any) -> RunByStore:
    """One of this module, or an object of mxnet.optimizer or torch.optim as one.

    Raises:
        telegrad.Unsupported: another optimizer, or an option, by name.
    """
    if isinstance(optimizer, RunByStore):
        return optimizer
    module = type(optimizer).__module__
    kind = f"{module}.{type(optimizer).__name__}"
    if module.startswith("mxnet.optimizer"):
        return _of_mxnet(optimizer, kind)
    if module.startswith("torch.optim"):
        return _of_torch(optimizer, kind)
    raise _refuse(f"optimizer {kind}")
