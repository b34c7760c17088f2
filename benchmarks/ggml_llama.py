"""A GGUF file run by llama.cpp, through llama-cpp-python's functions of its C interface."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ggml_products


class LlamaCpp:
    """One sequence, whose cache is in single precision."""

    def __init__(self, path: Path, room: int, threads: int) -> None:
        ggml_products.library()
        import llama_cpp

        self._c = c = llama_cpp
        self._log = c.llama_log_callback(lambda *_: None)
        c.llama_log_set(self._log, None)
        c.llama_backend_init()
        given = c.llama_context_default_params()
        given.n_ctx = given.n_batch = given.n_ubatch = room
        given.n_threads = given.n_threads_batch = threads
        given.type_k = given.type_v = ggml_products.F32
        self._model = c.llama_model_load_from_file(str(path).encode(), c.llama_model_default_params())
        self._context = c.llama_init_from_model(self._model, given)
        self._words = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self._model))
        self._batch = c.llama_batch_init(room, 0, 1)

    def prompt(self, words: np.ndarray) -> np.ndarray:
        """Scores of the word behind the last one, all others being computed too, as the graph does."""
        return self._run(words, 0)

    def token(self, word: int, place: int) -> np.ndarray:
        """Scores of what follows a word at ``place``, behind words that are in the cache."""
        return self._run(np.array([word]), place)

    def _run(self, words: np.ndarray, place: int) -> np.ndarray:
        c, batch, count = self._c, self._batch, len(words)
        c.llama_memory_seq_rm(c.llama_get_memory(self._context), 0, place, -1)
        batch.n_tokens = count
        np.ctypeslib.as_array(batch.token, (count,))[:] = words
        np.ctypeslib.as_array(batch.pos, (count,))[:] = np.arange(place, place + count)
        np.ctypeslib.as_array(batch.n_seq_id, (count,))[:] = 1
        np.ctypeslib.as_array(batch.logits, (count,))[:] = 1
        for row in range(count):
            batch.seq_id[row][0] = 0
        if c.llama_decode(self._context, batch):
            raise RuntimeError("llama.cpp did not run the batch")
        return np.ctypeslib.as_array(c.llama_get_logits_ith(self._context, -1), (self._words,)).copy()
