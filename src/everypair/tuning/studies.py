"""Optuna studies: the trials of a search, in memory or in a file from which a later call continues."""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset
from everypair.evaluation import Queries
from everypair.runtime.locks import locked_file
from everypair.runtime.stored_names import protocol_name
from everypair.runtime.wording import named

NAME = "everypair"
OPTUNA_TABLES = {"studies", "trials", "version_info"}
ALL_TABLES = OPTUNA_TABLES | {
    "study_directions", "study_user_attributes", "study_system_attributes", "trial_user_attributes", "trial_system_attributes",
    "trial_params", "trial_values", "trial_intermediate_values", "trial_heartbeats", "alembic_version",
}  # fmt: skip
FIRST_TABLES = {"studies": {"study_id", "study_name"}, "version_info": {"version_info_id", "schema_version", "library_version"}}
# Random trials before the sampler learns from them. Independent of the number of trials, so that a study that is continued with
# more trials tries what it would have tried with all of them from the start.
STARTUP = 8
# The metric of a fit rises in its first epochs and then levels off, and early stopping ends fits at different epochs. So trials are
# compared with others at the same epoch, after two epochs and five trials; 16 epochs are too few for successive halving.
COMPARED_AFTER, COMPARED_WITH = 2, 5  # epochs, trials


def optuna() -> Any:
    """The Optuna library, imported when needed; an error says how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise ImportError('everypair.tune needs Optuna: pip install "everypair[tune]"') from error
    return optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's log and its warnings about experimental features."""
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
def opened(
    path: Path | None, identity: Mapping[str, Any], settings: Callable[[Mapping[str, Any]], Any] = lambda point: None
) -> Iterator[Any]:
    """Open the study of a file, or create it; in memory if ``path`` is None.

    The file is an SQLite database: writes are atomic even if the process is killed, and there is only one file. If the process was
    killed while the tables were made, they are made again.

    Parameters
    ----------
    path : Path or None
    identity : mapping
        What the trials depend on; a study with another identity is refused.
    settings : callable
        Called with the point of each finished trial; raises if it is not one of the search.
    """
    library = optuna()
    pruner = library.pruners.MedianPruner(n_startup_trials=COMPARED_WITH, n_warmup_steps=COMPARED_AFTER)
    if path is None:
        yield library.create_study(direction="maximize", pruner=pruner)
        return
    with locked(path):
        storage = _storage(path)
        try:
            with _described(path):
                study = library.create_study(
                    storage=storage, study_name=NAME, direction="maximize", pruner=pruner, load_if_exists=True
                )
                known, trials = study.user_attrs, study.get_trials(deepcopy=False)
            _claim(study, path, identity, known, trials)
            with _described(path):
                for trial in trials:
                    _check_trial(trial, settings)
            for trial in study.get_trials(deepcopy=False, states=[library.trial.TrialState.RUNNING]):
                study.tell(trial.number, state=library.trial.TrialState.FAIL)  # its process was killed: run it again
            yield study
        finally:
            storage.remove_session()
            storage.engine.dispose()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Exclude other processes. The lock is on the file itself and ends with the process, even if it is killed."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{named('study')} must be a file in an existing folder, got {str(path)!r}. Create the folder first."
        )
    new = not path.exists()
    with path.open("ab" if new else "rb") as file, ExitStack() as stack:
        try:
            stack.enter_context(locked_file(file.fileno(), wait=False))
        except BlockingIOError as error:
            raise BlockingIOError(f"{path} is in use by another search. Wait for its end, or give another path.") from error
        try:
            yield
        finally:
            if new and not path.stat().st_size:
                path.unlink()


def check_study(path: Path) -> set[str]:
    """Raise if the file is neither empty nor a database of Optuna, before anything is written to it.

    Returns the tables of a study that was killed while they were made: some of them, or some without their indices, and no row.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as connection:
            found = connection.execute("SELECT type, name FROM sqlite_master").fetchall()
            tables = {name for kind, name in found if kind == "table"}
            begun = _is_begun(connection, tables)
    except sqlite3.Error as error:
        raise ValueError(f"{path} cannot be read as a study: {error}. Give another path.") from error
    if not begun and tables and not tables >= OPTUNA_TABLES:
        raise ValueError(f"{path} is another kind of database, with the tables {', '.join(sorted(tables))}. Give another path.")
    programs = [name for kind, name in found if kind in ("view", "trigger")]
    if programs:
        raise ValueError(f"{path} runs statements of its own ({', '.join(programs)}), which a study does not. Give another path.")
    return tables if begun else set()


def _is_begun(connection: sqlite3.Connection, tables: set[str]) -> bool:
    """Whether these are tables of Optuna and all are empty: those of a study have rows before the first trial."""
    first = [name for name in FIRST_TABLES if name in tables]
    return (
        bool(first)
        and tables <= ALL_TABLES
        and all({row[1] for row in connection.execute(f"PRAGMA table_info({name})")} == FIRST_TABLES[name] for name in first)
        and not any(connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() for name in tables)
    )


def _storage(path: Path) -> Any:
    from sqlalchemy.engine import URL

    begun = check_study(path)
    with closing(sqlite3.connect(path)) as connection:
        for name in begun:  # to be made again
            connection.execute(f"DROP TABLE {name}")
    url = URL.create("sqlite", database=str(path)).render_as_string().replace("{", "{{").replace("}", "}}")
    with _described(path):
        return optuna().storages.RDBStorage(url)


@contextmanager
def _described(path: Path) -> Iterator[None]:
    """Turn whatever a damaged database makes Optuna raise into an error that names the file."""
    from sqlalchemy.exc import SQLAlchemyError

    unreadable = (ValueError, LookupError, TypeError, AttributeError, OverflowError, AssertionError, RuntimeError)
    try:
        yield
    except (SQLAlchemyError, optuna().exceptions.OptunaError, *unreadable) as error:
        why = (str(error).splitlines() or [repr(error)])[0]
        raise ValueError(f"{path} cannot be read as a study: {why}. Give another path.") from error


def _check_trial(trial: Any, settings: Callable[[Mapping[str, Any]], Any]) -> None:
    """Raise if a trial that is finished lacks what its result is made of."""
    states = optuna().trial.TrialState
    if trial.state not in (states.COMPLETE, states.PRUNED):
        return
    settings(trial.params)
    reported, complete = trial.intermediate_values, trial.state == states.COMPLETE
    values = [*reported.values(), *([trial.value] if complete else [])]
    numbers = all(isinstance(epoch, int) for epoch in reported) and np.isfinite(values).all()
    if not numbers or (complete and not reported) or trial.duration is None:
        raise ValueError(f"trial {trial.number} is finished without values of epochs and a time")


def _claim(study: Any, path: Path, identity: Mapping[str, Any], known: Mapping[str, Any], trials: list[Any]) -> None:
    """Store the identity of a new study; raise if the study has another identity."""
    if "identity" not in known:
        if trials:
            raise ValueError(f"{path} is an Optuna study that was not created by everypair. Give another path.")
        study.set_user_attr("identity", dict(identity))
        return
    before = known["identity"] if isinstance(known["identity"], Mapping) else {}
    stored = {**before, "protocol": protocol_name(str(before.get("protocol")))}
    for name, now in identity.items():
        before = stored.get(name)
        if before != now:
            what = _difference(name, before, now)
            raise ValueError(f"{path} is the study of another search: {what}. Give another path, or the same settings as before.")


def _difference(name: str, before: Any, now: Any) -> str:
    """The first entry that differs."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                return f"its {name} has {key} = {before.get(key, 'nothing')}, now {now.get(key, 'nothing')}"
    return f"its {name} is {before}, now {now}"


def fingerprint(dataset: Dataset) -> str:
    """Sizes and a hash of all data of a dataset, in one line. Stored in studies."""
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
    """The training and tuning parts of a split, in one line. Stored in studies."""
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


class _HashFile:
    """A writable file object that only updates a hash."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return len(data)

    def flush(self) -> None: ...


def _add_table(digest: Any, table: pa.Table) -> None:
    with pa.ipc.new_stream(_HashFile(digest), table.schema) as stream:
        stream.write_table(table.combine_chunks())
