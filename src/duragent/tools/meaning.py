"""Closeness of meaning, for those who installed the `embeddings` extra: a static word table, numpy, no network.

Reads the table and the tokenizer that come inside the `wordllama` package as files; its own code is not loaded, since
it looks for them on the network. A text becomes the mean of its tokens' vectors, of length 1, kept as one byte a
number. Good for paraphrases, blind to word order. Another embedder: anything with the shape of `finding.Embedder`.
"""

import json
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec

import numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

NEAR = 0.18
"""Texts further apart have nothing to do with each other: unrelated ones reach 0.15, paraphrases 0.17 to 0.5."""
_SCALE = 254.0  # numbers are rarely beyond a half: a byte then holds one to a 500th
_WEIGHTS, _TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
_MOST_CHARACTERS = 4_000
_AT_ONCE = 2_000  # texts: their tokens' vectors are all in memory together

Vectors = NDArray[numpy.float32]


class WordTable:
    """Embeds by looking up words."""

    name = "wordllama-256"

    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, _WEIGHTS), "rb") as file:
            data = file.read()
        size = int.from_bytes(data[:8], "little")
        about = json.loads(data[8 : 8 + size])["embedding.weight"]
        begin, end = (8 + size + offset for offset in about["data_offsets"])
        table = numpy.frombuffer(data[begin:end], numpy.float16).reshape(about["shape"])
        self._table: Vectors = table.astype(numpy.float32)
        self._tokenizer = Tokenizer.from_file(os.path.join(folder, _TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def encode(self, texts: Sequence[str]) -> bytes:
        """The vectors of these texts, one after another."""
        return b"".join(
            numpy.clip(numpy.rint(part * _SCALE), -127, 127).astype(numpy.int8).tobytes() for part in self._embed(texts)
        )

    def nearest(self, query: str, stored: Sequence[tuple[int, bytes]], most: int) -> list[int]:
        """The ids of the texts nearest to the query, the nearest first. `stored` are runs of `encode`d texts whose
        ids count up from the number beside them."""
        if not stored:
            return []
        width = self._table.shape[1]
        data = numpy.frombuffer(b"".join(run for _, run in stored), numpy.int8).reshape(-1, width)
        ids = numpy.concatenate([numpy.arange(first, first + len(run) // width) for first, run in stored])
        wanted = next(self._embed([query]))[0]
        scores = data.astype(numpy.float32) @ wanted / _SCALE
        best = numpy.argsort(-scores, kind="stable")[:most]
        return [int(ids[at]) for at in best if scores[at] >= NEAR]

    def _embed(self, texts: Sequence[str]) -> Iterator[Vectors]:
        for start in range(0, len(texts), _AT_ONCE):
            some = [text[:_MOST_CHARACTERS] for text in texts[start : start + _AT_ONCE]]
            tokens = [each.ids or [0] for each in self._tokenizer.encode_batch(some, add_special_tokens=False)]
            starts = numpy.cumsum([0, *(len(each) for each in tokens[:-1])])
            flat = self._table[[token for each in tokens for token in each]]
            sums = numpy.add.reduceat(flat, starts, axis=0)
            norms = numpy.linalg.norm(sums, axis=1, keepdims=True)
            yield (sums / numpy.maximum(norms, 1e-9)).astype(numpy.float32)


@lru_cache(maxsize=1)
def embedder() -> WordTable | None:
    """The embedder of this machine, read once; None where its files are not there or not as they should be."""
    found = find_spec("wordllama")
    if found is None or not found.origin:
        return None
    try:
        return WordTable(os.path.dirname(found.origin))
    except Exception:  # noqa: BLE001 - the tokenizer raises nothing narrower; notes are then found by words only
        return None
