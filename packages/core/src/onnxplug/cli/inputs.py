"""The inputs of a run: read from .npz and .npy files, or generated from the model's signature."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onnxplug.cli.failure import FAILED, USAGE, CliError
from onnxplug.contract.types import OptionalType, SequenceType, TensorType, ValueType
from onnxplug.session.model_io import NodeArg


@dataclass(frozen=True, slots=True)
class Input:
    """One value to be fed."""

    name: str
    value: Any
    source: Literal["file", "generated"]


def read_files(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays by input name from ``FILE.npz`` (its keys are the names) and ``NAME=FILE.npy`` arguments. CliError (USAGE)
    names what cannot be read."""
    arrays: dict[str, np.ndarray] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if text.endswith(".npz") and (not equals or Path(text).exists()):
            arrays.update(_load(text, text, archive=True))
        elif name and path:
            arrays[name] = _load(path, text, archive=False)[""]
        else:
            raise CliError(
                USAGE, "UsageError", f"--inputs {text}: neither FILE.npz nor NAME=FILE.npy", "onnxplug run --help"
            )
    return arrays


def _load(path: str, text: str, archive: bool) -> dict[str, np.ndarray]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            with loaded:
                arrays = {name: loaded[name] for name in loaded.files}
            if archive:
                return arrays
            raise ValueError("it is an archive; give it without a name in front")
        if archive:
            raise ValueError("it is not an archive of arrays")
        return {"": loaded}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason, hint = str(error), "save with numpy.save or numpy.savez, without pickle; strings as a Unicode array"
        if isinstance(error, OSError) and error.strerror:
            reason, hint = error.strerror, "check the path and the working directory"
        raise CliError(USAGE, type(error).__name__, f"--inputs {text}: {reason}", hint) from error


def make_inputs(
    declared: Sequence[NodeArg], given: Mapping[str, np.ndarray], dims: Mapping[str, int], seed: int
) -> list[Input]:
    """A value for every declared input: the array given, or a random one. Given arrays that nobody declared stay in,
    for the session to judge.

    Symbolic dimensions have the size of ``dims``, else the one that a given array has there, else 1. CliError (USAGE)
    for a dimension that no input has, CliError (FAILED) for an input of a type that cannot be generated.
    """
    _refuse_unknown(dims, declared)
    sizes = {**_sizes(declared, given), **dims}
    generator = np.random.default_rng(seed)
    types = {argument.name: argument.value_type for argument in declared}
    inputs = [Input(name, _as_declared(array, types.get(name)), "file") for name, array in given.items()]
    for argument in declared:
        if argument.name not in given and not isinstance(argument.value_type, OptionalType):
            inputs.append(
                Input(argument.name, _generate(argument.name, argument.value_type, sizes, generator), "generated")
            )
    return inputs


def _refuse_unknown(dims: Mapping[str, int], declared: Sequence[NodeArg]) -> None:
    known = {
        dim or f"{argument.name}.{axis}"
        for argument in declared
        for axis, dim in enumerate(argument.shape)
        if not isinstance(dim, int)
    }
    for name in dims:
        if name not in known:
            text = f"--dim {name}: no input has such a dimension (there are: {', '.join(sorted(known)) or 'none'})"
            raise CliError(USAGE, "UsageError", text, "name a symbolic dimension, or INPUT.AXIS")


def _sizes(declared: Sequence[NodeArg], given: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Sizes of symbols as the given arrays have them."""
    sizes: dict[str, int] = {}
    for argument in declared:
        if argument.name in given:
            found = zip(argument.shape, given[argument.name].shape, strict=False)
            sizes.update((dim, size) for dim, size in found if isinstance(dim, str))
    return sizes


def _as_declared(array: np.ndarray, declared: ValueType | None) -> np.ndarray:
    """.npy files have no bfloat16, float8 or int4: such inputs come as float32 or int8."""
    if (
        isinstance(declared, TensorType)
        and declared.dtype.isbuiltin == 2
        and array.dtype in (np.float32, np.int8, np.uint8)
    ):
        return array.astype(declared.dtype)
    return array


def _generate(name: str, declared: ValueType, sizes: Mapping[str, int], generator: np.random.Generator) -> Any:
    if isinstance(declared, SequenceType):
        return [_generate(name, declared.element, sizes, generator)]
    if not isinstance(declared, TensorType):
        text = f"no value can be generated for input '{name}' of type {declared}"
        raise CliError(FAILED, "InvalidArgument", text, "feed it from Python: onnxplug.InferenceSession(...).run(...)")
    dims = (None,) if declared.shape is None else declared.shape
    shape = tuple(
        dim if isinstance(dim, int) else sizes.get(dim or f"{name}.{axis}", 1) for axis, dim in enumerate(dims)
    )
    return _random(declared, shape, generator, constant="mask" in name.lower())


def _random(declared: TensorType, shape: tuple[int, ...], generator: np.random.Generator, constant: bool) -> np.ndarray:
    """Normally distributed floats, 8-bit integers of the whole range, others of 0 and 1, which are valid as indices
    nearly everywhere; masks are all ones."""
    dtype = declared.dtype
    if declared.element == "string":
        texts = np.empty(shape, object)
        texts.ravel()[:] = [f"text {number}" for number in range(texts.size)]
        return texts
    if constant:
        return np.ones(shape, np.float32).astype(dtype)
    if declared.element == "bool":
        return generator.random(shape) < 0.5
    if declared.element in ("int8", "uint8"):
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if "int" in declared.element:
        return generator.integers(0, 2, shape).astype(dtype)
    normal = generator.standard_normal(shape, np.float32)
    if declared.element.startswith("complex"):
        return (normal + 1j * generator.standard_normal(shape, np.float32)).astype(dtype)
    return (np.abs(normal) if declared.element == "float8e8m0" else normal).astype(dtype)
