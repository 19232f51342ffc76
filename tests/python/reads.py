"""What would let the host wait for a GPU, if a model's tensors were on one: values of theirs,
or of what is made of them, that the host reads. PyTorch has no device that tells, so that
each operation on tensors of the host is looked at."""
import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Each gives the host a number, or a size that only the device knows.
_READS = {"_local_scalar_dense", "equal", "is_nonzero", "item", "masked_select", "nonzero",
          "nonzero_numpy", "repeat_interleave", "unique_consecutive", "unique_dim", "_unique",
          "_unique2"}
# These are no operations; `to` is, where it does anything.
_METHODS = ("cpu", "numpy", "tolist", "to", "__array__")


def _tensors(what):
    if isinstance(what, torch.Tensor):
        yield what
    elif isinstance(what, (list, tuple)):
        for each in what:
            yield from _tensors(each)
    elif isinstance(what, dict):
        yield from _tensors(list(what.values()))


def _storage(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _is_array(tensor):
    """Of its own memory: not sparse, nor a DTensor."""
    return (tensor.numel() > 0 and tensor.layout == torch.strided
            and type(tensor) in (torch.Tensor, torch.nn.Parameter))


class Reads:
    """Of tensors that `add` was given, or that were made of one. Any thread."""

    def __init__(self):
        self.found = []
        self._is_counting = False
        self._kept = {}  # storages by their addresses, which nobody gets anew
        self._methods = {name: getattr(torch.Tensor, name) for name in _METHODS}
        for name, method in self._methods.items():
            setattr(torch.Tensor, name, self._watched(name, method))

    def close(self):
        for name, method in self._methods.items():
            setattr(torch.Tensor, name, method)

    def mode(self):
        """For the operations of a thread."""
        return _Mode(self)

    def count(self):
        """From now on."""
        self._is_counting = True

    def add(self, *tensors):
        for each in tensors:
            if _is_array(each):
                storage = _storage(each)
                self._kept[storage.data_ptr()] = storage

    def has(self, tensors):
        return any(_is_array(each) and _storage(each).data_ptr() in self._kept
                   for each in tensors)

    def note(self, name):
        if self._is_counting:
            self.found.append(name)

    def _watched(self, name, method):
        def call(tensor, *args, **kwargs):
            to_host = name != "to" or any(
                isinstance(each, (str, torch.device)) and str(each).startswith("cpu")
                for each in [*args, *kwargs.values()])
            if to_host and self.has([tensor]):
                self.note(name)
            return method(tensor, *args, **kwargs)
        return call


class _Mode(TorchDispatchMode):
    def __init__(self, reads):
        super().__init__()
        self._reads = reads

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        del types
        result = function(*args, **(kwargs or {}))
        if self._reads.has(_tensors([args, kwargs])):
            name = function.overloadpacket.__name__ if hasattr(
                function, "overloadpacket") else function.__name__
            places = args[1] if name.startswith("index") and len(args) > 1 else []
            if name in _READS or any(each.dtype in (torch.bool, torch.uint8)
                                     for each in _tensors(places)):
                self._reads.note(name)
            else:
                self._reads.add(*_tensors(result))
        return result
