"""Strings, n-grams and images."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from operators.case import Case, Draw, strategy


@strategy("StringConcat")
def concat(d: Draw) -> Case:
    shape = d.shape()
    a, b = d.tensor(shape), d.tensor(d.broadcastable(shape))
    return Case([b, a] if d.flag() else [a, b])


@strategy("StringSplit")
def split(d: Draw) -> Case:
    words = ["a b c", "a,b", "", "  x  y ", ",", "one", "a,,b", "tab\tnew\nline"]
    shape = d.shape()
    x = np.array([words[i] for i in d.rng.integers(0, len(words), int(np.prod(shape)))], object).reshape(shape)
    return Case([x], d.maybe(delimiter=d.pick(",", "", " "), maxsplit=d.pick(1, 2, 3)), 2)


@strategy("RegexFullMatch")
def regex(d: Draw) -> Case:
    return Case(
        [d.tensor(d.shape())], {"pattern": d.pick(r"[a-z]+", r".*", r"-?\d+(\.\d+)?", r"(?i)hello", r"\p{L}+ ?\p{L}*")}
    )


@strategy("StringNormalizer")
def normalizer(d: Draw) -> Case:
    words = ["monday", "Tuesday", "the", "THE", "Straße", "x", "wednesday"]
    count = d.integer(1, 5)
    x = np.array([words[i] for i in d.rng.integers(0, len(words), count)], object)
    attributes = d.maybe(
        case_change_action=d.pick("NONE", "LOWER", "UPPER"), is_case_sensitive=d.pick(0, 1), stopwords=["the", "x"]
    )
    # onnx's inference refuses a matrix of which it does not know that it has one row, hence ranked.
    return Case([x.reshape(1, -1) if d.flag() else x], attributes, ranked=True)


@strategy("TfIdfVectorizer")
def tfidf(d: Draw) -> Case:
    text = d.element() == "string"
    tokens: list[Any] = ["a", "b", "c"] if text else [1, 2, 3]
    one, two = tokens[:2], [tokens[0], tokens[1], tokens[1], tokens[2]]
    pool = one + two
    low, high = d.pick((1, 1), (1, 2), (2, 2))
    data = [tokens[i] for i in d.rng.integers(0, 3, 6)]
    x = np.array(data, object) if text else np.array(data).astype(d.element())
    attributes: dict[str, Any] = {
        "mode": d.pick("TF", "IDF", "TFIDF"), "min_gram_length": low, "max_gram_length": high, "max_skip_count": d.pick(0, 1, 2),
        "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2, 3], "pool_strings" if text else "pool_int64s": pool,
    }  # fmt: skip
    if d.flag():
        attributes["weights"] = [0.5, 1.0, 2.0, 0.25]
    return Case([x.reshape(2, 3) if d.flag() else x], attributes)


@strategy("ImageDecoder")
def image_decoder(d: Draw) -> Case:
    from PIL import Image

    shape = (d.integer(1, 5), d.integer(1, 5), 3)
    buffer = io.BytesIO()
    Image.fromarray(d.rng.integers(0, 256, shape, np.uint8)).save(buffer, d.pick("PNG", "BMP", "TIFF"))
    return Case([np.frombuffer(buffer.getvalue(), np.uint8)], d.maybe(pixel_format=d.pick("RGB", "BGR", "Grayscale")))


@strategy("NonMaxSuppression")
def non_max_suppression(d: Draw) -> Case:
    batches, classes, count = d.integer(1, 2), d.integer(1, 2), d.integer(1, 6)
    corner = d.rng.uniform(0, 4, (batches, count, 2))
    size = d.rng.uniform(0.5, 2, (batches, count, 2))
    center = d.pick(0, 1)
    boxes = np.concatenate([corner, size if center else corner + size], 2).astype(np.float32)
    scores = d.rng.random((batches, classes, count)).astype(np.float32)
    most = d.optional(lambda: np.array([d.integer(1, 4)], np.int64))
    overlap = d.optional(lambda: np.array([0.5], np.float32))
    least = d.optional(lambda: np.array([0.3], np.float32))
    return Case(
        [boxes, scores, most, overlap, least],
        d.maybe(center_point_box=center) if not center else {"center_point_box": 1},
    )
