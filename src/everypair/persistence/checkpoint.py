"""Checkpoints: the state of a fit on disk, from which the same fit resumes with the same bits."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from everypair.engine.feedback import Feedback
from everypair.engine.solver import Epoch
from everypair.persistence.epochs import restored_epochs
from everypair.persistence.fingerprints import fingerprint, of_columns, of_feedback
from everypair.persistence.folder import Folder
from everypair.runtime import validation as check
from everypair.runtime.group import Group
from everypair.runtime.wording import named
from everypair.towers import Tower

VERSION = 2
RESUMABLE = ("epochs", "tol", "n_threads", "field_solver", "device")  # settings that may differ when a fit resumes


class State(NamedTuple):
    """The state of a fit after an epoch.

    ``stop_reason`` is "running" unless the fit ended there; ``tol`` is the tolerance it was run with. ``callback`` and ``arrays``
    are the results of the callback's ``state()`` and ``arrays()``.
    """

    parameters: Mapping[str, np.ndarray]
    history: Sequence[Epoch]
    stop_reason: str
    tol: float
    callback: Any
    arrays: Mapping[str, np.ndarray]

    def reason_to_stop(self, epochs: int, tol: float) -> str | None:
        """Why a fit with these settings would stop at this state; None if it would continue."""
        if self.stop_reason == "callback" or (self.stop_reason == "tol" and tol >= self.tol):
            return self.stop_reason
        return "epochs" if len(self.history) == epochs else None


class Identity(NamedTuple):
    """What identifies a fit: facts (settings, shown in messages where they differ) and fingerprints of arrays."""

    facts: dict[str, Any]
    fingerprints: dict[str, str]

    def differences(self, before: Identity) -> Iterator[str]:
        """How this fit differs from the one of a checkpoint."""
        for name in {**before.facts, **self.facts}:
            was, now = before.facts.get(name), self.facts.get(name)
            if was != now and name not in RESUMABLE:  # earlier versions held facts that may differ today
                yield f"{name} was {_shown(was)}, is {_shown(now)}"
        for name, digest in self.fingerprints.items():
            if before.fingerprints.get(name, digest) != digest:
                yield f"{name} differs from that of the checkpoint"


class Checkpoint:
    """The folder to which a fit writes its state after every few epochs.

    The constructor creates it and checks that it can be written to; :meth:`read` sets the identity of the fit.
    """

    def __init__(self, path: Any, every: int) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"checkpoint must be the path of a folder, got {path!r} of type {type(path).__name__}.")
        self._folder, self._every = Folder(path, "checkpoint", VERSION), every
        self._folder.make()

    def read(self, identity: Identity, epochs: int) -> State | None:
        """The stored state of this fit, or None. The state of another fit is refused."""
        self._identity = identity
        if not self._folder.exists:
            return None
        manifest, payloads = self._folder.open()
        try:
            before, state = _restored(manifest, payloads)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            path = self._folder.path
            raise ValueError(f"{path} holds a checkpoint that cannot be used ({error!r}). Delete it to start over.") from error
        differences = list(identity.differences(before))
        if differences:
            raise ValueError(
                f"the checkpoint in {self._folder.path} is of another fit: {'; '.join(differences)}. Repeat the call with the "
                f"same data and settings, or choose another folder (or delete this one) to start over."
            )
        if len(state.history) > epochs:
            raise ValueError(
                f"the checkpoint in {self._folder.path} is of epoch {len(state.history)}, and epochs is {epochs}: set "
                f"{named('epochs')} to {len(state.history)} or more, or choose another folder (or delete this one) to start over."
            )
        return state

    def is_due(self, epoch: int) -> bool:
        """Whether the state after this epoch is stored, if the fit goes on."""
        return epoch % self._every == 0

    def write(self, state: State) -> bool:
        """Store a state if it is due: after every few epochs, and at the end of the fit. Whether it was."""
        if state.stop_reason == "running" and not self.is_due(len(state.history)):
            return False
        try:
            json.dumps(state.callback)
        except (TypeError, ValueError) as error:
            raise TypeError(f"callback.state() must return JSON data, got {state.callback!r}: {error}.") from error
        manifest = {**self._identity._asdict(), **state._asdict()}
        payloads = {"parameters": manifest.pop("parameters"), "callback": manifest.pop("arrays")}
        self._folder.write(manifest, {name: arrays for name, arrays in payloads.items() if arrays})
        return True


class GroupCheckpoint:
    """The states of one member of a group after two epochs: that of the last, and the one before it.

    A member that is stopped while it writes leaves the group without a common last epoch, but not without one before. By the time
    that a member writes over its older state all others have written the newer one: they have shared sums since.
    """

    def __init__(self, path: Any, every: int, group: Group) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"checkpoint must be the path of a folder, got {path!r} of type {type(path).__name__}.")
        self._group = group
        self._slots = [Checkpoint(os.path.join(path, name), every) for name in ("even", "odd")]
        self._newest = 1

    def is_due(self, epoch: int) -> bool:
        """Whether the state after this epoch is stored, if the fit goes on."""
        return self._slots[0].is_due(epoch)

    def read(self, identity: Identity, epochs: int) -> State | None:
        """The stored state of this fit after the last epoch that all members have, or None."""
        states = [slot.read(identity, epochs) for slot in self._slots]
        own = {len(state.history): number for number, state in enumerate(states) if state is not None}
        said = [set(json.loads(text)) for text in self._group.gather(json.dumps(list(own)).encode())]
        common = max(set.intersection(*said), default=None)
        if common is None:
            return None
        self._newest = own[common]
        return states[self._newest]

    def write(self, state: State) -> None:
        """Store a state if it is due, in place of the older one."""
        if self._slots[1 - self._newest].write(state):
            self._newest = 1 - self._newest


def checkpoint_of(path: Any, every: int, group: Group) -> Checkpoint | GroupCheckpoint:
    """The folder of a fit, or of a member of a group."""
    return GroupCheckpoint(path, every, group) if group.divided else Checkpoint(path, every)


def last_state(path: Any) -> State:
    """The state that a fit has left in a folder, or a member of a group: of its last epoch."""
    slots = [slot for name in ("even", "odd") if (slot := Folder(os.path.join(path, name), "checkpoint", VERSION)).exists]
    found = [_restored(*folder.open())[1] for folder in slots or [Folder(path, "checkpoint", VERSION)]]
    return max(found, key=lambda state: len(state.history))


def _restored(manifest: Mapping[str, Any], payloads: Mapping[str, Any]) -> tuple[Identity, State]:
    """The fit of a checkpoint and its state."""
    facts, fingerprints, reason = manifest["facts"], manifest["fingerprints"], manifest["stop_reason"]
    parameters, arrays = payloads["parameters"], payloads.get("callback", {})
    if not all(isinstance(each, dict) for each in (facts, fingerprints, parameters, arrays)) or not isinstance(reason, str):
        raise TypeError("facts, fingerprints, parameters and arrays must have names, and stop_reason must be a string")
    history, tol = restored_epochs(manifest["history"]), check.number("tol", manifest["tol"], low=0.0)
    return Identity(facts, fingerprints), State(parameters, history, reason, tol, manifest["callback"], arrays)


def identity(
    model: str,
    settings: Mapping[str, Any],
    feedback: Feedback,
    towers: Mapping[str, Tower],
    given: Mapping[str, Mapping[str, Any] | None],
) -> Identity:
    """The identity of a fit. ``given`` are the arguments ``start`` and ``fixed``, whose values the towers' parameters have.

    The facts' names are stored in manifests.
    """
    facts = {"the model": model, **{name: _plain(value) for name, value in settings.items() if name not in RESUMABLE}}
    fingerprints = of_feedback(feedback)
    parameters = {name: parameter for tower in towers.values() for name, parameter in tower.parameters.items()}
    for side, tower in towers.items():
        facts[f"the list of columns of {side}s"] = list(tower.rows.columns)
        fingerprints |= of_columns(f"{side}s", tower.rows)
    for argument, values in given.items():
        facts[f"the list of parameters in {argument}"] = sorted(values or {})
        fingerprints |= {f"{argument}[{name!r}]": fingerprint([parameters[name].value]) for name in values or {}}
    return Identity(facts, fingerprints)


def _plain(value: Any) -> Any:
    """A setting as JSON; other objects, such as towers, by their repr without memory addresses."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
