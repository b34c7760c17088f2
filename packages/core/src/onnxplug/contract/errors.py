"""The exception classes of the public surface: onnxruntime's names, codes and message form.

Each derives directly from ``Exception``, as in onnxruntime, so that ``except RuntimeError`` catches none of them. The
message reads ``[ONNXRuntimeError] : <code> : <NAME> : <text>``; ``error.text`` holds the last part alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

TERMINATED = "Exiting due to terminate flag being set to true."
"""The text of the Fail that a run ends with which its caller terminated."""


if TYPE_CHECKING:

    class _Status(Exception):
        """What type checkers see of the classes, whose base is ``Exception`` itself."""

        code: ClassVar[int]
        status: ClassVar[str]
        text: str

        def __init__(self, *arguments: object) -> None: ...

else:
    _Status = Exception

S = TypeVar("S", bound=type[_Status])


def _init(self: _Status, *arguments: object) -> None:
    """One argument is the text. Others, and those of derived classes without a ``code`` of their own, are kept as they are, as
    ``Exception`` does."""
    if len(arguments) != 1 or "code" not in vars(type(self)):
        Exception.__init__(self, *arguments)
        self.text = str(self)
        return
    prefix = f"[ONNXRuntimeError] : {self.code} : {self.status} : "
    text = str(arguments[0]).removeprefix(prefix)  # a pickled error is made anew from its whole message
    Exception.__init__(self, prefix + text)
    self.text = text


def _status(code: int, status: str) -> Callable[[S], S]:
    """Make a class one of onnxruntime's statuses."""

    def enter(cls: S) -> S:
        cls.code, cls.status, cls.__init__ = code, status, _init  # type: ignore[method-assign]
        return cls

    return enter


def begin_with(error: _Status, words: str) -> None:
    """Put words before the text of an error of one of these classes."""
    _init(error, words + error.text)


@_status(1, "FAIL")
class Fail(_Status):
    """A kernel failed at run time, an unsupported IR version or opset, failed type inference, a disabled fallback."""


@_status(2, "INVALID_ARGUMENT")
class InvalidArgument(_Status):
    """A feed, an output name or an argument does not fit the model."""


@_status(3, "NO_SUCHFILE")
class NoSuchFile(_Status):
    """The model file does not exist."""


@_status(4, "NO_MODEL")
class NoModel(_Status):
    """A session was used before a model was loaded."""


@_status(5, "ENGINE_ERROR")
class EngineError(_Status):
    """An inner engine failed."""


@_status(6, "RUNTIME_EXCEPTION")
class RuntimeException(_Status):
    """An allocation or another resource failed at run time."""


@_status(7, "INVALID_PROTOBUF")
class InvalidProtobuf(_Status):
    """The bytes are not an ONNX model."""


@_status(8, "MODEL_LOADED")
class ModelLoaded(_Status):
    """A model is loaded already."""


@_status(9, "NOT_IMPLEMENTED")
class NotImplemented(_Status):
    """No provider of the session implements a node."""


@_status(10, "INVALID_GRAPH")
class InvalidGraph(_Status):
    """The graph breaks ONNX's rules: unknown operator, wrong arity, illegal attribute."""


@_status(11, "EP_FAIL")
class EPFail(_Status):
    """A provider failed at run time in a way that another provider can answer; the only class that triggers run-time
    fallback. ``provider``: whom fallback leaves out; the core sets it where the provider's own code does not."""

    provider: str


@_status(12, "MODEL_LOAD_CANCELED")
class ModelLoadCanceled(_Status):
    """Loading was cancelled through the session options."""


@_status(13, "MODEL_REQUIRES_COMPILATION")
class ModelRequiresCompilation(_Status):
    """Compilation is disabled and the model is not compiled."""


@_status(14, "NOT_FOUND")
class NotFound(_Status):
    """A named item does not exist."""


@_status(15, "DEVICE_RESET")
class DeviceReset(_Status):
    """The device was lost."""


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
