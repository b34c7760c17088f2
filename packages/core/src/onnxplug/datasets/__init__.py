"""Small models for examples: ``logreg_iris.onnx`` (float_input [3, 2] -> label, probabilities), ``mul_1.onnx`` (X [3, 2] -> Y =
X * W) and ``sigmoid.onnx`` (x [3, 4, 5] -> y)."""

from __future__ import annotations

import os


def get_example(name: str) -> str:
    """The absolute path of an example. FileNotFoundError for one that is not there."""
    path = os.path.join(os.path.abspath(os.path.dirname(__file__)), name)
    if not os.path.exists(path):
        raise FileNotFoundError(f"Unable to find example '{name}'")
    return path
