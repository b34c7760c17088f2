"""Text generation: the loops of GreedySearch, Sampling, BeamSearch and WhisperBeamSearch (domain com.microsoft) around the subgraphs that
score the next token."""

from collections.abc import Callable

from onnxplug.run.control import Control
from onnxplug.run.generation.constructs import BeamSearch, GreedySearch, Sampling

__all__ = ["GENERATION"]

GENERATION: dict[str, Callable[..., Control]] = {
    "BeamSearch": BeamSearch,
    "GreedySearch": GreedySearch,
    "Sampling": Sampling,
    "WhisperBeamSearch": BeamSearch,
}
"""Operator -> construct."""
