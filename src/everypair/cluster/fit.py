"""The fit of one shard, and one fit of what all shards have learnt."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding

from everypair.cluster.hub import Member
from everypair.cluster.shards import Shards
from everypair.data import Dataset
from everypair.models.tower_model import TowerModel
from everypair.persistence.checkpoint import State, last_state
from everypair.recommend.config import from_config, to_config
from everypair.recommend.recipes import UserId, Vectors, check_recipes
from everypair.recommend.training import Training
from everypair.runtime.group import Group, GroupError, joined


class FitJob(NamedTuple):
    """All that a process needs to know of a fit, as JSON can hold it."""

    shards: str  # the folder
    folder: str  # of checkpoints
    model: Any
    context: Any
    item: Any
    unit: str
    every: int

    @classmethod
    def of(cls, model: TowerModel, recipes: Mapping[str, Any], unit: str, shards: Shards, folder: Path, every: int) -> FitJob:
        written = {side: to_config(list(recipes[side])) for side in ("context", "item")}
        return cls(os.fspath(shards.folder.resolve()), os.fspath(folder), to_config(model), **written, unit=unit, every=every)


class FinishedFit(Group):
    """A group of one, whose fit others have done."""

    def __init__(self, state: State) -> None:
        self.finished = state


def this_machine() -> dict[str, str]:
    """What must be the same for all processes, or bits may differ."""
    packages = {name: version(name) for name in ("everypair", "numpy", "numba", "llvmlite")}
    return {**packages, "processor": f"{platform.machine()} {binding.get_host_cpu_name()}"}


def require_same_machines(member: Member) -> None:
    """Refuse processors, or versions, that differ: processes would drift apart in the last digits."""
    said = [json.loads(text) for text in member.gather(json.dumps(this_machine()).encode())]
    for shard, facts in enumerate(said):
        for name, value in facts.items():
            if said[0].get(name) != value:
                raise GroupError(
                    f"all processes of a fit must have the same {name}: that of shard 0 is {said[0].get(name)}, that of shard "
                    f"{shard} {value}. Processes that compute differently in the last digit drift apart."
                )


def train_shard(member: Member, job: FitJob, n_threads: int) -> None:
    """Fit the model to one shard, as a member of a group; its state is in the folder of the job afterwards."""
    with joined(member):
        if member.size > 1:
            require_same_machines(member)
        shards = Shards(job.shards)
        if shards.n != member.size:
            raise GroupError(f"{shards!r} are for {shards.n} members, the group has {member.size}.")
        model = from_config(job.model)
        model.n_threads = n_threads
        recipes = {side: check_recipes(side, list(from_config(getattr(job, side)))) for side in ("context", "item")}
        check_recipes_of_shards(recipes, shards)
        dataset = shards.dataset(member.rank)
        training = Training.of(model, recipes, job.unit, dataset)
        check_contexts_of_shards(model, recipes, training, shards)
        folder = Path(job.folder) / f"shard-{member.rank:04d}"
        training.run(checkpoint=folder, every=job.every)
        parameters = model.state.parameters.items()
        layout = {
            "users": dataset.n_users,
            "parameters": {name: _local(parameter, dataset.n_users) for name, parameter in parameters},
        }
        layout_file(Path(job.folder), member.rank).write_text(json.dumps(layout))


def layout_file(folder: Path, shard: int) -> Path:
    """Which rows of the parameters in a shard's checkpoint are those of its users."""
    return folder / f"shard-{shard:04d}.json"


def _local(parameter: Any, users: int) -> list[int] | None:
    """Which rows are those of the shard's users, from the first up to the last, and whether rows are stored as columns."""
    if isinstance(parameter.local, bool):
        n = len(parameter.by_row)  # a level for none comes before those of users, and has no rows
        there = np.arange(n - users, n) if parameter.local else np.arange(0)
    else:
        there = np.flatnonzero(parameter.local)
    if not len(there):
        return None
    if len(there) != users or there[-1] + 1 - there[0] != users:
        raise GroupError(f"a parameter should have one row for each of {users:,} users, side by side, got {len(there):,} rows.")
    return [int(there[0]), int(there[-1]) + 1, int(parameter.transposed)]


def check_recipes_of_shards(recipes: Mapping[str, Any], shards: Shards) -> None:
    """Refuse recipes that need what shards do not have."""
    for recipe in recipes["context"]:
        if recipe.uses_history and not shards.ordered:
            raise ValueError(f"{recipe!r} follows the order of events, and shards keep none without times. Set timestamp.")
        if isinstance(recipe, Vectors) and shards.n > 1:
            raise ValueError(f"{recipe!r} of contexts is standardized over all of them, which a fit on several shards does not do.")


def check_contexts_of_shards(model: TowerModel, recipes: Mapping[str, Any], training: Training, shards: Shards) -> None:
    """Refuse contexts that cannot be told apart by shards."""
    described, _ = model.describe_towers(training.columns, training.state.item_columns())
    with_users = training.state.by_user and any(isinstance(recipe, UserId) for recipe in recipes["context"])
    if described.row_embedding() is not None and not with_users and shards.n > 1:
        raise ValueError(
            f"{type(model).__name__} has a vector for each context, and on several shards these must be users: context=[UserId()], "
            f"got {recipes['context']}."
        )


def states(folder: Path, n: int) -> list[State]:
    """The last state of each shard."""
    found = [last_state(folder / f"shard-{shard:04d}") for shard in range(n)]
    epochs = {len(state.history) for state in found}
    if len(epochs) > 1:
        raise GroupError(f"the shards in {folder} are of different epochs: {sorted(epochs)}.")
    return found


def assembled(shards: Shards, folder: Path) -> tuple[Dataset, FinishedFit]:
    """All data, and the parameters of a fit to them: those of users from their shards, the others from any."""
    found, dataset = states(folder, shards.n), shards.dataset()
    layouts = [json.loads(layout_file(folder, shard).read_text()) for shard in range(shards.n)]
    codes = [dataset.users.codes(shards.dataset(shard).users.values) for shard in range(shards.n)]
    parameters = {}
    for name, value in found[0].parameters.items():
        places = [layout["parameters"][name] for layout in layouts]
        values = [np.asarray(state.parameters[name]) for state in found]
        if places[0] is None:
            if any(other.tobytes() != value.tobytes() for other in values[1:]):
                raise GroupError(f"the shards have learnt different values of {name!r}, which they share: their processors differ.")
            parameters[name] = value
            continue
        parameters[name] = _joined(values, places, codes, [layout["users"] for layout in layouts])
    return dataset, FinishedFit(found[0]._replace(parameters=parameters, callback=None, arrays={}))


def _joined(values: list[np.ndarray], places: list[list[int]], codes: list[np.ndarray], users: list[int]) -> np.ndarray:
    """A parameter of all users; its other rows are those that shards share."""
    n, (start, stop, transposed) = sum(users), places[0]
    rows = [value.T if transposed else value for value in values]
    out = np.empty((len(rows[0]) - (stop - start) + n, *rows[0].shape[1:]), rows[0].dtype)
    out[:start], out[start + n :] = rows[0][:start], rows[0][stop:]
    for own, (first, last, _), code in zip(rows, places, codes, strict=True):
        out[start + code] = own[first:last]
    return np.ascontiguousarray(out.T if transposed else out)
