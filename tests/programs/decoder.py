"""Greedy text generation: inputs and outputs bound, the key and value cache handed from step to step without a copy.

python decoder.py MODEL
"""

from __future__ import annotations

import json
import sys

import numpy as np
import onnxruntime as ort

STEPS, PROMPT = 12, [5, 17, 3, 40]


def sizes(session: ort.InferenceSession) -> tuple[int, int]:
    past = next(each for each in session.get_inputs() if each.name == "past_key")
    _, heads, _, width = past.shape
    return heads, width


def bound(session: ort.InferenceSession) -> tuple[list[int], list[float]]:
    """Tokens, and the best logit of each step."""
    heads, width = sizes(session)
    binding, tokens, best = session.io_binding(), list(PROMPT), []
    past = [ort.OrtValue.ortvalue_from_numpy(np.zeros((1, heads, 0, width), np.float32), "cpu", 0) for _ in range(2)]
    step = np.array([PROMPT], np.int64)
    for _ in range(STEPS):
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        binding.bind_cpu_input("token", step)
        for name, value in zip(("past_key", "past_value"), past, strict=True):
            binding.bind_ortvalue_input(name, value)
        for name in ("logits", "present_key", "present_value"):
            binding.bind_output(name, "cpu")
        session.run_with_iobinding(binding)
        logits, *past = binding.get_outputs()
        row = logits.numpy()[0, -1]
        tokens.append(int(row.argmax()))
        best.append(float(row.max()))
        step = np.array([[tokens[-1]]], np.int64)
    assert past[0].shape() == [1, heads, len(tokens) - 1, width] and past[0].device_name() == "cpu"
    return tokens, best


def into_one_buffer(session: ort.InferenceSession) -> list[int]:
    """The same without a cache: the logits of every step are written to the same memory, by its address."""
    heads, width = sizes(session)
    tokens, vocabulary = list(PROMPT), session.get_outputs()[0].shape[-1]
    empty = np.zeros((1, heads, 0, width), np.float32)
    for _ in range(STEPS):
        logits = np.zeros((1, len(tokens), vocabulary), np.float32)
        step = np.array([tokens], np.int64)
        binding = session.io_binding()
        binding.bind_input("token", "cpu", 0, np.int64, step.shape, step.ctypes.data)
        binding.bind_cpu_input("past_key", empty)
        binding.bind_cpu_input("past_value", empty)
        binding.bind_output("logits", "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
        session.run_with_iobinding(binding)
        tokens.append(int(logits[0, -1].argmax()))
    return tokens


def main() -> None:
    options = ort.SessionOptions()
    options.enable_mem_pattern = False
    session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    tokens, best = bound(session)
    print(json.dumps({"tokens": tokens, "best": best, "without a cache": into_one_buffer(session)}))


main()
