"""onnxplug against ggml on this machine: products with weights of few bits, and a small llama.

::

    nox -s bench_ggml
    nox -s bench_ggml -- --only products --threads 1

Both are given the same weights: ggml Q4_0 or Q8_0, which are blocks of 32 with a scale in half precision and a fixed zero point;
onnxplug and onnxruntime MatMulNBits of 4 or 8 bits with blocks of 32 and these scales in single precision, 20 bytes where ggml reads
18 (36 and 34 with 8 bits). ggml rounds the other operand to 8 bits by blocks of 32, which ``accuracy_level`` 4 lets MatMulNBits do.
With level 0 onnxplug is as exact as floats, which ggml cannot be asked for: those rows compare the times of unequal work.

The llama is of llama.cpp's architecture, read from a GGUF file, and the graph that onnxruntime-genai's builder writes
(GroupQueryAttention, SkipSimplifiedLayerNormalization, MatMulNBits of all weights but the words' table). llama.cpp keeps its cache of
keys and values in single precision too, in one place; the caches of the graph grow by a row in each step, as in a plain ``run``.
"prompt" is the first run of many words, all of whose scores are computed; "token" a run of one word behind a prompt.

Runs are timed in one process, in turns. ggml is compiled for this processor when llama-cpp-python is installed. Threads of none spin
between runs, or they would disturb the others; ggml's then sleep between operations as well (OMP_WAIT_POLICY is passive unless it is
set), which costs it more than the others: what one thread does is the surer comparison.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ggml_llama
import ggml_products
from bench import HERE, slug
from llama import Llama, Shape, drawn, write_gguf, write_onnx
from runtimes import Feeds, missing, open_model
from timing import compared, cores, interleaved, machine

SIZES = ((2048, 2048), (2048, 5632), (5632, 2048), (4096, 4096))
"""k and n: what a small llama multiplies by."""
ROWS = (1, 128)
PROMPTS = {128: ("prompt", "token"), 512: ("token",)}
"""Words, and what is timed: all of them at once, one behind them."""
LEVELS = (4, 0)
ROUNDED = 0.03
"""Of the largest result: what rounding operands to 8 bits may change, by other rules in each."""
Row = dict[str, Any]


def main() -> None:
    """Measure, write the results, print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("products", "llama"))
    parser.add_argument("--seconds", type=float, default=2.0, help="spent on the runs of each case (default: 2)")
    parser.add_argument("--threads", type=int, action="append", help="of each (default: 1, and all processors)")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "ggml", help="where results are written to")
    given = parser.parse_args()
    rows = []
    for threads in given.threads or sorted({1, cores()}):
        for part, cases in (("products", _products), ("llama", _llama)):
            if given.only in (None, part):
                for row in cases(threads, given.seconds):
                    rows.append({**row, "threads": threads})
                    print(json.dumps(rows[-1]), flush=True)
    found = {"date": datetime.date.today().isoformat(), "machine": machine(), "rows": rows}
    given.results.mkdir(exist_ok=True, parents=True)
    target = given.results / f"{slug(found)}{f'-{given.only}' if given.only else ''}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {target}")


def _products(threads: int, seconds: float) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    for bits in (4, 8):
        for k, n in SIZES:
            codes = rng.integers(0, 2**bits, (n, k // ggml_products.BLOCK, ggml_products.BLOCK)).astype(np.uint8)
            scales = rng.uniform(0.001, 0.01, codes.shape[:2]).astype(np.float16)
            for m in ROWS:
                x = rng.standard_normal((m, k)).astype(np.float32)
                theirs, result = ggml_products.product(ggml_products.stored(codes, scales, bits), bits, k, x, threads)
                for level in LEVELS:
                    with tempfile.TemporaryDirectory() as folder:
                        path = Path(folder) / "model.onnx"
                        onnx.save(_product(codes, scales, bits, level), path)
                        opened = {r: open_model(r, path, threads, False) for r in _ours()}
                    feeds = {"x": x}
                    theirs()
                    for run in opened.values():
                        _agree(run(feeds)[0], result)
                    calls = {r: _bind(run, feeds) for r, run in opened.items()}
                    calls["ggml"] = theirs
                    samples = interleaved(list(calls.values()), seconds)
                    yield {
                        "case": f"{bits} bits, {m} x {k} x {n}, accuracy level {level}",
                        **compared(dict(zip(calls, samples, strict=True))),
                    }


def _product(codes: np.ndarray, scales: np.ndarray, bits: int, level: int) -> onnx.ModelProto:
    """One MatMulNBits, in whose bytes the first of two weights has the lower bits."""
    n, blocks, block = codes.shape
    packed = codes if bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=blocks * block, N=n, bits=bits, block_size=block,
        accuracy_level=level,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", blocks * block])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", n])],
        [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales.astype(np.float32).reshape(-1), "s")],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def _llama(threads: int, seconds: float) -> Iterator[Row]:
    llama = drawn(Shape())
    with tempfile.TemporaryDirectory() as folder:
        gguf, graph = Path(folder) / "llama.gguf", Path(folder) / "llama.onnx"
        write_gguf(llama, gguf)
        theirs = ggml_llama.LlamaCpp(gguf, llama.shape.room, threads)
        for level in LEVELS:
            write_onnx(llama, graph, level)
            opened = {r: open_model(r, graph, threads, False) for r in _ours()}
            for count, timed in PROMPTS.items():
                yield from _texts(llama, opened, theirs, count, level, seconds, timed)


def _texts(
    llama: Llama, opened: dict[str, Any], theirs: ggml_llama.LlamaCpp, count: int, level: int, seconds: float,
    timed: tuple[str, ...],
) -> Iterator[Row]:  # fmt: skip
    """A prompt of so many words, and a word behind it; tokens per second beside milliseconds."""
    words = np.random.default_rng(count).integers(0, llama.shape.words, (1, count + 1))
    empty = np.zeros((1, llama.shape.shared, 0, llama.shape.size), np.float32)
    names = [f"{i}.{kind}" for i in range(llama.shape.layers) for kind in ("key", "value")]
    prompt = _feeds(words[:, :count], count, dict.fromkeys(names, empty))
    first = {r: run(prompt) for r, run in opened.items()}
    for results in first.values():
        _agree(results[0][0, -1], theirs.prompt(words[0, :count]))
    token = _feeds(words[:, count:], count + 1, dict(zip(names, next(iter(first.values()))[1:], strict=True)))
    for run in opened.values():
        _agree(run(token)[0][0, -1], theirs.token(words[0, count], count))
    for what, tokens, feeds, call in (
        ("prompt", count, prompt, lambda: theirs.prompt(words[0, :count])),
        ("token", 1, token, lambda: theirs.token(words[0, count], count)),
    ):
        if what not in timed:
            continue
        calls = {**{r: _bind(run, feeds) for r, run in opened.items()}, "llama.cpp": call}
        if what == "token":
            theirs.prompt(words[0, :count])
        row = compared(dict(zip(calls, interleaved(list(calls.values()), seconds), strict=True)))
        speed = {name: round(1e3 * tokens / ms, 1) for name, ms in row["ms"].items()}
        yield {"case": f"llama, {what} of {count}, accuracy level {level}", **row, "tokens per second": speed}


def _feeds(words: np.ndarray, total: int, past: dict[str, np.ndarray]) -> Feeds:
    caches = {f"past_key_values.{name}": array for name, array in past.items()}
    return {"input_ids": words, "attention_mask": np.ones((1, total), np.int64), **caches}


def _ours() -> tuple[str, ...]:
    return tuple(r for r in ("onnxplug", "onnxruntime") if missing(r) is None)


def _agree(ours: np.ndarray, theirs: np.ndarray) -> None:
    """AssertionError where more differs than rounding explains."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=ROUNDED * float(np.abs(theirs).max()))


def _bind(run: Any, feeds: Feeds) -> Any:
    return lambda: run(feeds)


if __name__ == "__main__":
    sys.exit(main())
