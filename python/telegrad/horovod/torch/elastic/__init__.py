"""State that is committed and restored, a sampler that goes on, and `run`."""
from .run import run
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]
