"""Files of recommendations for all users, and of vectors for other search engines."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from everypair.data import Ids
from everypair.recommend import results
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.fitted import FittedState
from everypair.recommend.requests import POPULAR
from everypair.recommend.results import FallbackWarning, FewerItemsWarning, RankedLists
from everypair.runtime import validation as check
from everypair.runtime.atomic_files import writing
from everypair.runtime.formatting import json_lines
from everypair.runtime.progress import Progress
from everypair.runtime.warn import warn_caller
from everypair.runtime.wording import named

USERS_AT_ONCE = 4_096
OF = ("items", "users")


def recommend_all(
    state: FittedState,
    out: Path,
    n: int,
    *,
    users: Any = None,
    exclude_seen: bool = True,
    allow: Any = None,
    deny: Any = None,
    n_threads: int | None = None,
) -> None:
    """See :meth:`everypair.Recommender.recommend_all`."""
    dataset, n, n_short = state.dataset, check.integer("n", n, low=1), 0
    batch = state.request_batch(dataset.users.values if users is None else users, fallback=POPULAR)
    codes, by_popularity = batch.contexts.user, np.zeros(len(batch.contexts), bool)
    options = {"exclude_seen": exclude_seen, "allowed": results.allowed_items(dataset, allow, deny), "n_threads": n_threads}
    with Progress(len(codes), "recommending", unit="user") as progress, table_file(out) as write:
        for start in range(0, max(len(codes), 1), USERS_AT_ONCE):
            chunk = codes[start : start + USERS_AT_ONCE]
            found = state.rank(ContextBatch.of_users(dataset, chunk), n, **options)
            ranked, names = RankedLists(found.codes, found.scores), batch.names[start : start + USERS_AT_ONCE]
            write(results.table(dataset.user_column, names, dataset.item_column, dataset.items, ranked))
            by_popularity[start : start + USERS_AT_ONCE] = found.by_popularity
            n_short += int(np.sum(np.sum(ranked.codes >= 0, axis=1) < n))
            progress.advance(len(chunk))
    if n_short:
        filters = results.filter_names(exclude_seen, allow, deny, None)
        count = f"{n_short:,} of {len(codes):,} lists have fewer than {n} items"
        warn_caller(results.reason(count, filters, dataset.n_items), FewerItemsWarning)
    if (message := state.reason_if_fallback(batch, by_popularity)) is not None:
        warn_caller(message, FallbackWarning)


class JSONLines:
    """A writer of JSON lines with the interface of Arrow's writers."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write_table(self, table: pa.Table) -> None:
        self._file.writelines(json_lines(table))

    def close(self) -> None:
        self._file.close()


@contextmanager
def table_file(out: Path) -> Iterator[Callable[[pa.Table], None]]:
    """A function that appends tables to a file; the file appears when all are written, or not at all."""
    kinds: dict[str, Any] = {".parquet": parquet.ParquetWriter, ".csv": csv.CSVWriter, ".jsonl": JSONLines}
    if out.suffix not in kinds:
        raise ValueError(f"{named('out')} must end in {', '.join(kinds)}, got {str(out)!r}.")
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


def export_vectors(state: FittedState, out: Path, of: str) -> tuple[int, int]:
    """See :meth:`everypair.Recommender.export_vectors`; returns the number of vectors, and that of their dimensions."""
    adapter, dataset = state.vectors, state.dataset
    check.choice("of", of, OF)
    if out.suffix not in WRITERS:
        raise ValueError(f"{named('out')} must end in {', '.join(WRITERS)}, got {str(out)!r}.")
    if of == "items":
        name, ids, vectors = dataset.item_column, dataset.items, adapter.psi
    else:
        vectors, known = state.context_vectors(ContextBatch.of_users(dataset, np.arange(dataset.n_users)))
        name, ids, vectors = dataset.user_column, Ids(dataset.users.take(np.flatnonzero(known))), vectors[known]
        if not known.all():
            unknown = dataset.users[int(np.argmin(known))]
            count = f"{int(np.sum(~known)):,} of {len(known):,} users"
            warn_caller(f"{count} are left out, such as {unknown!r}: the model knows nothing of them.", UserWarning)
    WRITERS[out.suffix](out, name, ids, np.ascontiguousarray(vectors))
    return vectors.shape


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
    """The keys of the index are positions in a Parquet file of ids beside it."""
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


WRITERS = {".parquet": _parquet, ".npz": _npz, ".usearch": _usearch}
