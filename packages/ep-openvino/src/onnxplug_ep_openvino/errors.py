"""OpenVINO's errors without the places in its source: RuntimeErrors, to which onnxplug adds the node and the provider."""

from __future__ import annotations

import re

_PLACE = re.compile(r"^((Exception from|Check '.*' failed at)\s*\S+:\d+:?|Caught exception:|\s+)+")


def plain(error: BaseException) -> RuntimeError:
    """What an error says, in one line."""
    lines = [" ".join(_PLACE.sub("", line.strip()).split()) for line in str(error).splitlines()]
    return RuntimeError("; ".join(line for line in dict.fromkeys(lines) if line) or type(error).__name__)
