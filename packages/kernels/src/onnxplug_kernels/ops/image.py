"""ImageDecoder, through Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op


@op("ImageDecoder", 20, host_inputs=(0,), portable=False)
def image_decoder(xp: Any, encoded_stream: Any, *, pixel_format: str = "RGB") -> Any:
    """Decode an image file to (height, width, channels) uint8; an empty array when it cannot be decoded."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("ImageDecoder needs Pillow; install onnxplug-kernels[image]") from error

    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise ValueError(f"pixel_format is {pixel_format!r}; it must be RGB, BGR or Grayscale")
    gray = pixel_format == "Grayscale"
    try:
        with Image.open(io.BytesIO(encoded_stream.tobytes())) as image:
            pixels = np.array(image.convert("L" if gray else "RGB"), dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        # The specification asks for an empty matrix; Pillow raises SyntaxError on some broken files.
        return xp.zeros((0, 0, 1 if gray else 3), dtype=xp.uint8)
    if gray:
        return pixels[:, :, None]
    return np.ascontiguousarray(pixels[:, :, ::-1]) if pixel_format == "BGR" else pixels
