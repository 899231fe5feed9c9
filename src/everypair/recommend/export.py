"""Recommendations for everyone, and vectors for search elsewhere, as files."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from everypair.data import Ids
from everypair.ranking.rank import Products
from everypair.recommend import results
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.fitted import FittedState
from everypair.recommend.results import Ranked
from everypair.runtime.atomic_files import writing
from everypair.runtime.formatting import json_lines
from everypair.runtime.progress import Progress

USERS_AT_ONCE = 4_096
OF = ("items", "users")


def recommend_all(
    served: FittedState, out: Path, n: int, n_threads: int | None, exclude_seen: bool, allowed: np.ndarray | None, users: np.ndarray
) -> int:
    """Write the best items of these users, some at a time; returns how many lists are shorter than n."""
    dataset, short = served.dataset, 0
    length = min(n, dataset.n_items)

    def some(start: int) -> tuple[pa.Table, int]:
        codes = users[start : start + USERS_AT_ONCE]
        ids, scores = served.rank(
            ContextBatch.of_users(dataset, codes), length, n_threads, exclude_seen=exclude_seen, allowed=allowed
        )
        table = results.table(
            dataset.user_column, dataset.users.take(codes), dataset.items, Ranked(ids, scores, None), dataset.item_column
        )
        return table, int(np.sum(np.sum(ids >= 0, axis=1) < n))

    with Progress(len(users), "recommending", unit="user") as progress, table_file(out) as write:
        for start in range(0, max(len(users), 1), USERS_AT_ONCE):
            table, few = some(start)
            short += few
            write(table)
            progress.advance(min(USERS_AT_ONCE, len(users) - start))
    return short


class JSONLines:
    """A JSON object per row, written as Arrow's own writers write."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write_table(self, table: pa.Table) -> None:
        self._file.writelines(json_lines(table))

    def close(self) -> None:
        self._file.close()


@contextmanager
def table_file(out: Path) -> Iterator[Callable[[pa.Table], None]]:
    """A file that tables are written to one after the other; it is there when all are, or not at all."""
    kinds: dict[str, Any] = {".parquet": parquet.ParquetWriter, ".csv": csv.CSVWriter, ".jsonl": JSONLines}
    if out.suffix not in kinds:
        raise ValueError(f"out must end in {', '.join(kinds)}, got {str(out)!r}.")
    with writing(out) as temporary:
        writer = None
        try:

            def write(table: pa.Table) -> None:
                nonlocal writer
                writer = writer or kinds[out.suffix](temporary, table.schema)
                writer.write_table(table)

            yield write
        finally:
            if writer is not None:
                writer.close()


def export_vectors(served: FittedState, out: Path, of: str) -> None:
    """See :meth:`everypair.Recommender.export_vectors`."""
    reader, dataset = served.vectors, served.dataset
    if of == "items":
        name, ids, vectors = dataset.item_column, dataset.items, reader.psi
    else:
        vectors, known = context_vectors(served, ContextBatch.of_users(dataset, np.arange(dataset.n_users)))
        name, ids, vectors = dataset.user_column, Ids(dataset.users.take(np.flatnonzero(known))), vectors[known]
        if not known.all():
            stranger = dataset.users[int(np.argmin(known))]
            warnings.warn(
                f"{int(np.sum(~known)):,} of {len(known):,} users are left out, such as {stranger!r}: nothing is known of them.",
                stacklevel=3,
            )
    writers = {".parquet": _parquet, ".npz": _npz, ".usearch": _usearch}
    if out.suffix not in writers:
        raise ValueError(f"out must end in {', '.join(writers)}, got {str(out)!r}.")
    writers[out.suffix](out, name, ids, np.ascontiguousarray(vectors))


def context_vectors(served: FittedState, moments: ContextBatch) -> tuple[np.ndarray, np.ndarray]:
    """phi at moments, as they are ranked by; and of which of them anything is known."""
    scores, known = served.scores(moments)
    if not isinstance(scores, Products):
        raise ValueError(f"{type(served.reader.model).__name__} counts: it has no vectors.")
    return scores.phi, np.ones(len(moments), bool) if known is None else known


def _parquet(out: Path, name: str, ids: Ids, vectors: np.ndarray) -> None:
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    with writing(out) as temporary:
        parquet.write_table(pa.table({name: ids.values, "vector": values}), temporary)


def _npz(out: Path, name: str, ids: Ids, vectors: np.ndarray) -> None:
    plain = ids.values.to_numpy(zero_copy_only=False)
    with writing(out) as temporary:
        buffer = io.BytesIO()
        np.savez(buffer, ids=plain if plain.dtype.kind == "i" else plain.astype(str), vectors=vectors)
        Path(temporary).write_bytes(buffer.getvalue())


def _usearch(out: Path, name: str, ids: Ids, vectors: np.ndarray) -> None:
    """Keys are places in the order of ids, which lie beside the index as Parquet."""
    try:
        from usearch.index import Index
    except ImportError as error:
        raise ImportError('an index needs usearch: pip install "everypair[search]".') from error
    index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32" if vectors.dtype == np.float32 else "f64")
    index.add(np.arange(len(vectors), dtype=np.uint64), vectors)
    with writing(out.with_name(f"{out.name}.ids.parquet")) as temporary:
        parquet.write_table(pa.table({name: ids.values}), temporary)
    with writing(out) as temporary:
        index.save(os.fspath(temporary))
