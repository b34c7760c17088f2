"""onnxruntime's own format of models, which is neither read nor written: by what it is known."""

from __future__ import annotations

from onnxplug.contract.errors import Fail
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented

_MARK = b"ORTM"
"""What stands behind the first four bytes."""


def is_ort_name(path: str) -> bool:
    """Whether a file of that name is in the format."""
    return path.lower().endswith(".ort")


def refuse_ort(source: str | bytes, form: str) -> None:
    """NotImplemented for a model in the format: by a file's name, by the mark in bytes, or where ``form`` is ORT by the mark in a file.
    Fail for a model that ``form`` takes for one and that is none. A file that cannot be read is left to who reads it."""
    if isinstance(source, bytes):
        found, named = source[4:8] == _MARK, "The model given as bytes"
    elif form == "ORT" or is_ort_name(source):
        try:
            with open(source, "rb") as file:
                found, named = is_ort_name(source) or file.read(8)[4:] == _MARK, source
        except (OSError, ValueError):
            return
    else:
        return
    if found:
        raise OrtNotImplemented(f"{named}: .ort files are onnxruntime's own format; save the model as .onnx")
    if form == "ORT":
        raise Fail("session.load_model_format is ORT: ORT model verification failed, only ONNX models are read")


def refuse_to_write_ort(path: str, form: str) -> None:
    """NotImplemented for a file that is to be written in the format: by its name, or where ``form`` is ORT."""
    if form == "ORT" or (not form and is_ort_name(path)):
        raise OrtNotImplemented(
            f"{path}: .ort files are onnxruntime's own format; let optimized_model_filepath end in .onnx, and session.save_model_format "
            "be ONNX"
        )
