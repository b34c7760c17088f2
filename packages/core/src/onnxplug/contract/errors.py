"""The exception classes of the public surface: onnxruntime's names, codes and message form.

Each derives directly from ``Exception``, as in onnxruntime, so that ``except RuntimeError`` catches none of them. The
message reads ``[ONNXRuntimeError] : <code> : <NAME> : <text>``; ``error.text`` holds the last part alone.
"""

from __future__ import annotations

from typing import ClassVar

TERMINATED = "Exiting due to terminate flag being set to true."
"""The text of the Fail that a run ends with which its caller terminated."""


def _init(self: Exception, *arguments: object) -> None:
    """One argument is the text. Others, and those of derived classes without a ``code`` of their own, are kept as they are, as
    ``Exception`` does."""
    if len(arguments) != 1 or "code" not in vars(type(self)):
        Exception.__init__(self, *arguments)
        self.text = str(self)  # type: ignore[attr-defined]
        return
    prefix = f"[ONNXRuntimeError] : {type(self).code} : {type(self).status} : "  # type: ignore[attr-defined]
    text = str(arguments[0]).removeprefix(prefix)  # a pickled error is made anew from its whole message
    Exception.__init__(self, prefix + text)
    self.text = text  # type: ignore[attr-defined]


def begin_with(error: Fail | InvalidArgument | InvalidGraph, words: str) -> None:
    """Put words before the text of an error of one of these classes."""
    _init(error, words + error.text)


class Fail(Exception):
    """A kernel failed at run time, an unsupported IR version or opset, failed type inference, a disabled fallback."""

    code: ClassVar[int] = 1
    status: ClassVar[str] = "FAIL"
    text: str
    __init__ = _init


class InvalidArgument(Exception):
    """A feed, an output name or an argument does not fit the model."""

    code: ClassVar[int] = 2
    status: ClassVar[str] = "INVALID_ARGUMENT"
    text: str
    __init__ = _init


class NoSuchFile(Exception):
    """The model file does not exist."""

    code: ClassVar[int] = 3
    status: ClassVar[str] = "NO_SUCHFILE"
    text: str
    __init__ = _init


class NoModel(Exception):
    """A session was used before a model was loaded."""

    code: ClassVar[int] = 4
    status: ClassVar[str] = "NO_MODEL"
    text: str
    __init__ = _init


class EngineError(Exception):
    """An inner engine failed."""

    code: ClassVar[int] = 5
    status: ClassVar[str] = "ENGINE_ERROR"
    text: str
    __init__ = _init


class RuntimeException(Exception):
    """An allocation or another resource failed at run time."""

    code: ClassVar[int] = 6
    status: ClassVar[str] = "RUNTIME_EXCEPTION"
    text: str
    __init__ = _init


class InvalidProtobuf(Exception):
    """The bytes are not an ONNX model."""

    code: ClassVar[int] = 7
    status: ClassVar[str] = "INVALID_PROTOBUF"
    text: str
    __init__ = _init


class ModelLoaded(Exception):
    """A model is loaded already."""

    code: ClassVar[int] = 8
    status: ClassVar[str] = "MODEL_LOADED"
    text: str
    __init__ = _init


class NotImplemented(Exception):
    """No provider of the session implements a node."""

    code: ClassVar[int] = 9
    status: ClassVar[str] = "NOT_IMPLEMENTED"
    text: str
    __init__ = _init


class InvalidGraph(Exception):
    """The graph breaks ONNX's rules: unknown operator, wrong arity, illegal attribute."""

    code: ClassVar[int] = 10
    status: ClassVar[str] = "INVALID_GRAPH"
    text: str
    __init__ = _init


class EPFail(Exception):
    """A provider failed at run time in a way that another provider can answer; the only class that triggers run-time
    fallback. ``provider``: whom fallback leaves out; the core sets it where the provider's own code does not."""

    code: ClassVar[int] = 11
    status: ClassVar[str] = "EP_FAIL"
    text: str
    provider: str
    __init__ = _init


class ModelLoadCanceled(Exception):
    """Loading was cancelled through the session options."""

    code: ClassVar[int] = 12
    status: ClassVar[str] = "MODEL_LOAD_CANCELED"
    text: str
    __init__ = _init


class ModelRequiresCompilation(Exception):
    """Compilation is disabled and the model is not compiled."""

    code: ClassVar[int] = 13
    status: ClassVar[str] = "MODEL_REQUIRES_COMPILATION"
    text: str
    __init__ = _init


class NotFound(Exception):
    """A named item does not exist."""

    code: ClassVar[int] = 14
    status: ClassVar[str] = "NOT_FOUND"
    text: str
    __init__ = _init


class DeviceReset(Exception):
    """The device was lost."""

    code: ClassVar[int] = 15
    status: ClassVar[str] = "DEVICE_RESET"
    text: str
    __init__ = _init


class Misfit(RuntimeError):
    """What a kernel or region returned is not what the graph says of the output: the cause of the error that names the node. ``sized``:
    only the shape is another one."""

    def __init__(self, text: str, sized: bool) -> None:
        super().__init__(text)
        self.sized = sized


STATUS_ERRORS = (
    Fail, InvalidArgument, NoSuchFile, NoModel, EngineError, RuntimeException, InvalidProtobuf, ModelLoaded, NotImplemented,
    InvalidGraph, EPFail, ModelLoadCanceled, ModelRequiresCompilation, NotFound, DeviceReset,
)  # fmt: skip
