"""Studies: what was tried so far, in memory or in a file that a later call goes on with."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset
from everypair.evaluation import Queries
from everypair.tuning.database import check_study, locked

NAME = "everypair"
# Trials spread at random before the sampler learns from them: the same however many trials are asked for, so that a study that
# goes on with more of them tries what it would have tried with as many from the start.
STARTUP = 8
# A fit's metric rises in its first epochs and then levels off, and early stopping ends fits at different epochs: a trial is
# compared with the others at the same epoch, after two epochs, rather than given a budget of epochs by rungs (successive halving),
# which 16 epochs leave no room for.
COMPARED_AFTER, COMPARED_WITH = 2, 5


def optuna() -> Any:
    """The library, or how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise ImportError('everypair.tune needs Optuna: pip install "everypair[tune]"') from error
    return optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna writes no log meanwhile, and tells nothing of what is experimental in it."""
    logging = optuna().logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna().exceptions.ExperimentalWarning)
            yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def opened(path: Path | None, identity: Mapping[str, Any]) -> Iterator[Any]:
    """The study of a file, a new one if there is no file; None: in memory.

    SQLite, since a write is there whole or not at all, also if the process is killed, and nothing but one file is left.
    """
    library = optuna()
    pruner = library.pruners.MedianPruner(n_startup_trials=COMPARED_WITH, n_warmup_steps=COMPARED_AFTER)
    if path is None:
        yield library.create_study(direction="maximize", pruner=pruner)
        return
    with locked(path):
        storage = _storage(path)
        try:
            study = library.create_study(storage=storage, study_name=NAME, direction="maximize", pruner=pruner, load_if_exists=True)
            _claim(study, path, identity)
            for trial in study.get_trials(deepcopy=False, states=[library.trial.TrialState.RUNNING]):
                study.tell(trial.number, state=library.trial.TrialState.FAIL)  # whoever ran it was killed: it is run again
            yield study
        finally:
            storage.remove_session()
            storage.engine.dispose()


def _storage(path: Path) -> Any:
    from sqlalchemy.engine import URL
    from sqlalchemy.exc import SQLAlchemyError

    check_study(path)
    url = URL.create("sqlite", database=str(path)).render_as_string().replace("{", "{{").replace("}", "}}")
    try:
        return optuna().storages.RDBStorage(url)
    except (SQLAlchemyError, RuntimeError) as error:
        raise ValueError(f"{path} is no study that can be read: {str(error).splitlines()[0]}. Give another path.") from error


def _claim(study: Any, path: Path, identity: Mapping[str, Any]) -> None:
    """Write down what the study is about, or refuse one that is about something else."""
    known = study.user_attrs
    if "identity" not in known:
        if study.get_trials(deepcopy=False):
            raise ValueError(f"{path} is a study that everypair.tune did not begin. Give another path.")
        study.set_user_attr("identity", dict(identity))
        return
    for name, now in identity.items():
        before = known["identity"].get(name)
        if before != now:
            what = _difference(name, before, now)
            raise ValueError(f"{path} is the study of something else: {what}. Give another path, or call tune as before.")


def _difference(name: str, before: Any, now: Any) -> str:
    """The first entry that differs."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                return f"its {name} has {key} = {before.get(key, 'nothing')}, now {now.get(key, 'nothing')}"
    return f"its {name} is {before}, now {now}"


def fingerprint(dataset: Dataset) -> str:
    """What a data set is, in a line: sizes, and a hash of all that a model could be told."""
    digest = hashlib.sha256()
    weight = np.empty(0) if dataset.weight is None else dataset.weight
    time = np.empty(0) if dataset.time is None else dataset.time
    _add(digest, dataset.user, dataset.item, dataset.bounds, weight, time)
    ids = {"user": pa.table({"id": dataset.users.values}), "item": pa.table({"id": dataset.items.values})}
    for table in (*ids.values(), dataset.user_table, dataset.item_table, dataset.event_table):
        _add_table(digest, table)
    digest.update(dataset.repeats.encode())
    sizes = f"{len(dataset):,} events of {dataset.n_users:,} users on {dataset.n_items:,} items"
    return f"{sizes} ({digest.hexdigest()[:12]})"


def fingerprint_of_split(name: str, train: Dataset, tune: Queries) -> str:
    """What is trained and tuned on, in a line."""
    digest = hashlib.sha256()
    contexts = tune.contexts
    _add(
        digest,
        train.user,
        train.item,
        tune.user,
        tune.bounds,
        tune.relevant,
        contexts.user,
        contexts.items,
        contexts.begin,
        contexts.end,
    )
    if tune.candidates is not None:
        _add(digest, tune.candidates.begin, tune.candidates.end, tune.candidates.items)
    return f"{name}, {len(train):,} events to train and {len(tune):,} queries to tune on ({digest.hexdigest()[:12]})"


def _add(digest: Any, *arrays: np.ndarray) -> None:
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)


class _Hashed:
    """A file that keeps nothing but the hash of what is written."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return len(data)

    def flush(self) -> None: ...


def _add_table(digest: Any, table: pa.Table) -> None:
    with pa.ipc.new_stream(_Hashed(digest), table.schema) as stream:
        stream.write_table(table.combine_chunks())
