"""Object detection on drawn pictures: fitting into the model's square, the network with its suppression of overlaps, boxes back
in the picture's coordinates, from several threads.

    python detector.py MODEL
"""

from __future__ import annotations

import ast
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime as ort


def picture(height: int, width: int, seed: int) -> np.ndarray:
    """uint8 [height, width, 3] with a few bright rectangles."""
    draw = np.random.default_rng(seed)
    image = draw.integers(0, 30, (height, width, 3)).astype(np.uint8)
    for _ in range(3):
        top, left = draw.integers(0, height - 20), draw.integers(0, width - 20)
        image[top : top + draw.integers(10, 20), left : left + draw.integers(10, 20)] = draw.integers(150, 255, 3)
    return image


class Detector:
    def __init__(self, path: str) -> None:
        self.session = ort.InferenceSession(path, providers=[("CPUExecutionProvider", {})])
        self.input = self.session.get_inputs()[0]
        self.side = self.input.shape[2]
        self.labels = ast.literal_eval(self.session.get_modelmeta().custom_metadata_map["names"])

    def fitted(self, image: np.ndarray) -> tuple[np.ndarray, float]:
        """float32 [1, 3, side, side], the picture scaled by whole steps in its corner, and the scale."""
        scale = self.side / max(image.shape[:2])
        rows, columns = (np.minimum((np.arange(int(n * scale)) / scale).astype(int), n - 1) for n in image.shape[:2])
        square = np.full((self.side, self.side, 3), 114, np.uint8)
        square[: len(rows), : len(columns)] = image[rows][:, columns]
        return np.ascontiguousarray(square.transpose(2, 0, 1)[None], np.float32) / 255, scale

    def detect(self, image: np.ndarray, threshold: float = 0.3) -> list[dict[str, object]]:
        pixels, scale = self.fitted(image)
        feed = {
            self.input.name: ort.OrtValue.ortvalue_from_numpy(pixels),
            "threshold": ort.OrtValue.ortvalue_from_numpy(np.array([threshold], np.float32)),
        }
        results = self.session.run_with_ort_values(["boxes", "scores", "selected"], feed)
        boxes, scores, selected = (value.numpy() for value in results)
        found = [
            {
                "label": self.labels[category],
                "score": float(scores[batch, category, box]),
                "box": (boxes[batch, box] / scale).round(3).tolist(),
            }
            for batch, category, box in selected.tolist()
        ]
        return sorted(found, key=lambda each: (-round(each["score"], 4), each["box"]))


def later(detector: Detector, image: np.ndarray) -> list[int]:
    """How many boxes a run in the background selects."""
    done, counts = threading.Event(), []

    def finished(results: list[np.ndarray], which: object, error: str) -> None:
        assert error == "" and which == "picture"
        counts.append(len(results[0]))
        done.set()

    pixels, _ = detector.fitted(image)
    feed = {detector.input.name: pixels, "threshold": np.array([0.3], np.float32)}
    detector.session.run_async(["selected"], feed, finished, "picture")
    assert done.wait(60)
    return counts


def main() -> None:
    detector = Detector(sys.argv[1])
    pictures = [picture(48 + 16 * n, 64, n) for n in range(6)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(detector.detect, pictures))
    assert found == [detector.detect(each) for each in pictures]
    nothing = detector.detect(pictures[0], threshold=1.1)
    print(json.dumps({"found": found, "nothing": nothing, "later": later(detector, pictures[1])}))


main()
