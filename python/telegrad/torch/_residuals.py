"""What codecs keep of a model's gradients, as a `state_dict` of each rank."""
from __future__ import annotations

import math
import struct
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from ..errors import UsageError, WrongOrder

_FORMAT = 1
_CHUNK_ELEMS = 512 * 1024  # of a frame, as the C interface has it
MIN_PART_ELEMS = 32 * 1024  # of a server's part, kMinPartElems of the library
_WORD_ELEMS = 16
_HEAD = struct.Struct("<4sIQQ")
_CHUNK = struct.Struct("<BhBhBBQdQdHB")  # docs/checkpoints.md, chunk
_U64 = struct.Struct("<Q")
_WAYS = ("sum", "drop")
_OF = ("(rank, workers, servers, who pushes for each of a host that sums first, or which part "
       "each pushes)")
# Of states that have none of these.
_SINCE = {"momentum": "off", "momentum_rate": 0.0, "normalize": False}


def part_ends(num_elems: int, parts: int) -> List[int]:
    """Where each of a tensor's parts ends."""
    share = -(-num_elems // _WORD_ELEMS) / parts
    return [int(share * i + 0.5) * _WORD_ELEMS for i in range(1, parts)] + [num_elems]


def chunk_sizes(num_elems: int, num_servers: int) -> List[int]:
    """Of a tensor's chunks: each server has a part, each part chunks."""
    sizes = []
    begin = 0
    for end in part_ends(num_elems, max(1, min(num_elems // MIN_PART_ELEMS, num_servers))):
        for at in range(begin, end, _CHUNK_ELEMS):
            sizes.append(min(_CHUNK_ELEMS, end - at))
        begin = end
    return sizes


def _tensor(state: bytes) -> Any:
    """As `torch.save` takes it."""
    if not state:  # another rank pushes
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def residual_of(state: bytes, num_elems: int, num_servers: int) -> Any:
    """As `held_of`, without momentum."""
    return held_of(state, num_elems, num_servers)[0]


def held_of(state: bytes, num_elems: int, num_servers: int) -> Tuple[Any, Any]:
    """Residual and momentum of a key, from what `Store.save_codec` gave: [num_elems]
    float32.

    Raises:
        telegrad.UsageError: bytes that are none of such a key.
    """
    held = torch.zeros(num_elems), torch.zeros(num_elems)
    if not state:  # another rank pushed
        return held
    try:
        magic, version, _, _ = _HEAD.unpack_from(state, 0)
        at = _HEAD.size
        (size,) = _U64.unpack_from(state, at)
        at += _U64.size
        end, begin = at + size, 0
        for elems in chunk_sizes(num_elems, num_servers):
            has = _CHUNK.unpack_from(state, at)[-1]
            at += _CHUNK.size
            for bit, values in zip((1, 2), held):
                if has & bit:
                    values[begin:begin + elems] = torch.frombuffer(
                        bytearray(state[at:at + 4 * elems]), dtype=torch.float32)
                    at += 4 * elems
            (memory,) = _U64.unpack_from(state, at)
            at += _U64.size + memory
            begin += elems
    except (struct.error, RuntimeError, ValueError) as why:
        raise UsageError(f"the state of a codec is damaged: {why}") from None
    if (magic, version, at) != (b"TGCS", 2, end):
        raise UsageError("the state of a codec is damaged, or of another version")
    return held


def _pushing(pushers: List[int], parts: Optional[List[int]]) -> Tuple[Any, ...]:
    return (pushers, f"parts {parts}") if parts else (pushers,)


def _differ(what: str, saved: Any, now: Any) -> UsageError:
    return UsageError(f"the state does not fit: {what} {saved!r} then, {now!r} now")


def check_fits(saved: Dict[str, Any], sizes: Dict[str, int],
               settings: Dict[str, Any]) -> None:
    """Of the same model and settings."""
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise UsageError("no state of telegrad.torch, or one of another version")
    for what, now in settings.items():
        then = saved["settings"].get(what, _SINCE.get(what))
        if then != now:
            raise _differ(what, then, now)
    for name in sorted(set(saved["sizes"]) | set(sizes)):
        if saved["sizes"].get(name) != sizes.get(name):
            raise _differ(f"elements of {name}", saved["sizes"].get(name),
                          sizes.get(name))


class Residuals:
    """What codecs keep of a store's tensors on this rank: saved, loaded, and, of another
    number of workers, added to what is pushed next.

    Args:
        keys, sizes: of the tensors, by name.
        settings: that are the same in a state which fits.
        job: of all workers, where the store's is of those with the same part.
        parts: which each worker has.
        own: begin and end of this one's, by name.
    """

    def __init__(self, store: Any, keys: Dict[str, int], sizes: Dict[str, int],
                 settings: Dict[str, Any], group: Any, job: Optional[Any] = None,
                 parts: Sequence[int] = (), own: Mapping[str, Tuple[int, int]] = {}) -> None:
        self._store, self._group = store, group
        self._job, self._parts, self._own = job or store.job, [*parts], dict(own)
        self._keys, self._sizes, self.settings = keys, sizes, settings
        self.carried: Optional[Dict[str, Any]] = None  # of "sum", until `step_done`
        self._before: Optional[Dict[str, Any]] = None

    def save(self) -> Dict[str, Any]:
        """This rank's state; `torch.save` takes it. All ranks call it, between steps.

        Raises:
            telegrad.WrongOrder: before the first step after a "sum" was loaded.
        """
        if self.carried is not None:
            raise WrongOrder("a state between load_state_dict with reshard='sum' and the "
                             "step that adds what was held back: take the step first")
        job = self._job
        job.barrier()  # nobody is in a step any more
        try:
            codecs = {name: _tensor(self._store.save_codec(key))
                      for name, key in self._keys.items()}
        finally:
            job.barrier()  # nor in the next one yet
        return {"format": _FORMAT, "rank": job.rank, "workers": job.num_workers,
                "servers": self._store.job.num_servers, "pushers": job.plan()["pushers"],
                "parts": self._parts, "own": dict(self._own),
                "settings": dict(self.settings), "sizes": dict(self._sizes),
                "codecs": codecs}

    def load(self, state: Any, reshard: Optional[str]) -> bool:
        """All ranks call it, between steps; whether it was of as many workers.

        Args:
            state: what `save` gave this rank; or, for another number of workers, a list
                of such of old ranks, each on one rank.
            reshard: "sum" or "drop", for another number of workers.

        Raises:
            telegrad.UsageError: on all ranks, what does not fit.
        """
        fits = self._loaded(state, reshard)
        self._job.barrier()
        return fits

    def _loaded(self, state: Any, way: Optional[str]) -> bool:
        states = [state] if isinstance(state, dict) else list(state)
        note: Dict[str, Any] = {"why": "", "of": [], "choices": []}
        try:
            for saved in states:
                check_fits(saved, self._sizes, self.settings)
                note["of"].append((saved["rank"], saved["workers"], saved["servers"],
                                   *_pushing(saved.get("pushers", []), saved.get("parts"))))
                part = (saved.get("parts") or {saved["rank"]: 0})[saved["rank"]]
                note["choices"].append((part, saved.get("choice")))
        except UsageError as why:
            note["why"] = str(why)
        job = self._job
        notes: List[Any] = [None] * job.num_workers
        dist.all_gather_object(notes, note, group=self._group)
        for rank, other in enumerate(notes):
            if other["why"]:
                raise UsageError(f"rank {rank}: {other['why']}")
        chosen = {choice for other in notes for choice in other["choices"]}
        if len(chosen) > len({part for part, _ in chosen}):
            raise UsageError("the ranks' states are of different steps: 'auto' had chosen "
                             "different codecs")
        self.carried = None
        now = (job.num_workers, self._store.job.num_servers,
               *_pushing(job.plan()["pushers"], self._parts))
        if all(other["of"] == [(rank, *now)] for rank, other in enumerate(notes)):
            for name, key in self._keys.items():
                self._store.load_codec(key, states[0]["codecs"][name].numpy().tobytes())
            return True
        given = sorted(pair for other in notes for pair in other["of"])
        if way not in _WAYS:
            raise UsageError(f"states of {_OF} {given} for {now}: say reshard='sum', which "
                             "keeps what was held back, or reshard='drop'")
        if way == "drop":
            return False
        old = given[0][1:] if given else (0, 0)
        if given != [(rank, *old) for rank in range(old[0])] or not given:
            raise UsageError("reshard='sum' takes each old rank's state on one rank, once; "
                             f"there are {_OF} {given}")
        self.carried = _carried(states, now[0] / old[0], self.settings)
        return False

    def add_to(self, name: str, gradient: Any) -> None:
        """What was held back of that tensor."""
        held = (self.carried or {}).pop(name, None)
        if held is not None:
            gradient.add_(held.reshape(gradient.shape).to(gradient))

    def step_done(self) -> None:
        self.carried = self._before = None

    def begin_step(self) -> None:
        """Keeps what codecs keep now, for `held`: before a step pushes anything."""
        state = {"sizes": self._sizes, "servers": self._store.job.num_servers,
                 "codecs": {name: _tensor(self._store.save_own_codec(key))
                            for name, key in self._keys.items()}}
        self._before = {"carried": dict(self.carried or {}), "state": state}

    def held(self) -> Dict[str, Any]:
        """What this rank held back before the step that was not done, or holds back between
        steps, to be `carried` by another store."""
        if self._before is None:
            self.begin_step()
        assert self._before is not None
        total = _carried([self._before["state"]], 1, self.settings)
        for name, held in self._before["carried"].items():
            total[name] = total.get(name, 0) + held
        return total


def lost_text(held: Mapping[str, Any], before: int, now: int) -> str:
    """Behind a loss: of what so many others held back none knows, but codecs of ranks with equal
    shares of the data hold back about as much as `held`, this rank's."""
    if now >= before:
        return ""
    norm = math.sqrt(sum(float(each.double().square().sum()) for each in held.values()))
    return (f"; what {before - now} of {before} held back is lost, of each about as much as is held "
            f"back here, whose L2 norm is {norm:.4g}")


def _carried(states: Sequence[Dict[str, Any]], factor: float,
             settings: Dict[str, Any]) -> Dict[str, Any]:
    """The sum of residuals, so that the mean over workers of what was held back stays. Behind
    momentum, which makes 1 / (1 - rate) of it in time, so much less, and what is still to come
    of the momenta themselves."""
    rate = settings.get("momentum_rate", 0.0)
    to_come = rate * rate if settings.get("momentum") == "nesterov" else rate
    total: Dict[str, Any] = {}
    for state in states:
        for name, size in state["sizes"].items():
            if name not in state["codecs"]:  # of another's part
                continue
            begin, end = state.get("own", {}).get(name, (0, size))
            residual, momentum = held_of(state["codecs"][name].numpy().tobytes(), end - begin,
                                         state["servers"])
            held = (1 - rate) * residual + to_come * momentum
            if bool((held != 0).any()):
                whole = total.setdefault(name, torch.zeros(size))
                whole[begin:end] += factor * held
    return total
