"""Sentence embeddings: a word tokenizer, an encoder in batches, the sentences nearest to a question.

python encoder.py MODEL
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator

import numpy as np
import onnxruntime as ort

SENTENCES = [
    "the cat sat on the mat",
    "a dog lay on the rug",
    "interest rates rose again this quarter",
    "the central bank raised interest rates",
    "kittens sleep on warm mats all day long and then some more",
    "rain",
]


class Encoder:
    """A model with inputs input_ids and attention_mask, and a vocabulary size in its metadata."""

    def __init__(self, path: str) -> None:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = 1
        available = set(ort.get_available_providers())
        wanted = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in available]
        self.session = ort.InferenceSession(path, options, providers=wanted)
        meta = self.session.get_modelmeta()
        self.words = int(meta.custom_metadata_map["vocabulary"])
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.longest = self.session.get_inputs()[0].shape[1]
        assert isinstance(self.longest, str) and self.session.get_inputs()[0].type == "tensor(int64)"

    def tokens(self, sentence: str) -> list[int]:
        return [1 + zlib.crc32(word.encode()) % (self.words - 1) for word in sentence.lower().split()]

    def batches(self, sentences: list[str], size: int) -> Iterator[np.ndarray]:
        for start in range(0, len(sentences), size):
            ids = [self.tokens(sentence) for sentence in sentences[start : start + size]]
            length = max(map(len, ids))
            padded = np.array([row + [0] * (length - len(row)) for row in ids], np.int64)
            feed = {"input_ids": padded, "attention_mask": (padded != 0).astype(np.int64)}
            yield self.session.run(["embedding"], {name: feed[name] for name in self.inputs})[0]

    def encode(self, sentences: list[str], size: int = 4) -> np.ndarray:
        return np.concatenate(list(self.batches(sentences, size)))


def main() -> None:
    encoder = Encoder(sys.argv[1])
    known = encoder.encode(SENTENCES)
    question = encoder.encode(["who raised the interest rates"])[0]
    scores = known @ question
    order = np.argsort(-scores, kind="stable")
    alone = np.concatenate([encoder.encode([sentence]) for sentence in SENTENCES])
    print(
        json.dumps(
            {
                "outputs": [(each.name, each.shape, each.type) for each in encoder.session.get_outputs()],
                "order": order.tolist(),
                "scores": scores[order].tolist(),
                "norms": np.linalg.norm(known, axis=1).tolist(),
                "batched as alone": bool(np.allclose(alone, known, atol=1e-5)),
            }
        )
    )


main()
