"""Failures as users see them: a class, one line, and what to do next."""

from __future__ import annotations

FAILED, USAGE, NO_PROVIDER = 1, 2, 3
"""Exit codes."""

_HINTS = {
    "NoSuchFile": "check the path and the working directory",
    "InvalidProtobuf": "check that the file is an ONNX model and complete (no Git LFS pointer, no broken download)",
    "InvalidGraph": "the model breaks ONNX's rules; onnx.checker.check_model tells more, or export it again",
    "NotImplemented": "give the node another provider with --providers; 'onnxplug providers' lists those installed",
    "RuntimeException": "make the inputs smaller, or raise the provider's memory limit ('onnxplug providers')",
    "MemoryError": "make the inputs smaller",
    "EPFail": "leave the provider out of --providers; 'onnxplug doctor' shows its state",
    "PermissionError": "check the file's permissions",
}
_FALLBACK = "--traceback shows where it was raised"


class CliError(Exception):
    """An error with its exit code, the name of its class, and the next step to take."""

    def __init__(self, code: int, kind: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code, self.kind, self.message, self.hint = code, kind, " ".join(message.split()), hint

    def to_dict(self) -> dict[str, dict[str, str]]:
        """What ``--json`` prints."""
        return {"error": {"type": self.kind, "message": self.message, "hint": self.hint}}


def as_failure(error: Exception, hint: str = "") -> CliError:
    """Any exception of a command, with ``hint`` or what is known to help with its class."""
    if isinstance(error, CliError):
        return error
    kind = type(error).__name__
    message = getattr(error, "text", None) or str(error) or kind
    return CliError(FAILED, kind, message, hint or _HINTS.get(kind, _FALLBACK))
