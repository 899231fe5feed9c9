"""The service under faults at random, seeded moments: every answer right or a clean refusal, full service soon after each fault.

Faults: a worker is killed, hangs (SIGSTOP), or is told to end; another model is saved, loaded by a signal, or copied over the
served one file by file; the service is replaced by another one on its port; the disk of temporary files is full; clients send their
requests a byte at a time. Meanwhile clients ask for recommendations without a pause and compare every answer with the lists of the
model that it names.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import everypair as ep
from benchmarks.service import processes
from benchmarks.service.client import HOST, Client, connect
from everypair.service.served_model import ServedModel

N = 10  # items of a recommendation
CLIENTS = 8
PAUSE = (4.0, 12.0)  # seconds between faults
PROBES = 24  # new connections that must all be answered: more than enough to reach every worker
PROBE_SECONDS = 0.25  # in which each must be
WITHIN = 2.0  # seconds after a fault, in which all requests must be answered again
GROWTH = 1.15  # of private memory, at most: the last third of the time over the one before
GIVE_UP = 60.0  # seconds after a fault
SLOW_CLIENTS, SLOW_SECONDS = 150, 3.0
DISK, DISK_SECONDS = "16m", 1.0  # its size; how long it is full
REFUSALS = {429, 503}  # clean ones
BREAKING = ("a worker is killed", "a worker hangs")  # faults that lose the requests of a worker
UNANSWERED = ("no answer in time", "connection refused")
LOST = (ConnectionError, BrokenPipeError, asyncio.IncompleteReadError)


@dataclass
class Findings:
    """What clients saw, and by fault the seconds until new requests were all answered, and until all workers did so."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    recovery: dict[str, list[float]] = field(default_factory=dict)
    completion: dict[str, list[float]] = field(default_factory=dict)
    memory: list[tuple[float, int]] = field(default_factory=list)  # seconds, bytes of all workers
    longest: float = 0.0  # seconds until a client had an answer, or knew that it will have none


@dataclass
class Subject:
    """The service under test, and what it must answer.

    Attributes
    ----------
    process : Popen
        The service, which another one may replace.
    folder : Path
        The model that is served.
    models : list of Path
        Folders of models that take turns there.
    expected : dict
        By version of a model, the list of each user.
    disk : Path, or None
        Of temporary files, if it can be filled.
    """

    process: subprocess.Popen[bytes]
    n_workers: int
    port: int
    folder: Path
    models: list[Path]
    expected: dict[str, dict[Any, list[Any]]]
    users: list[Any]
    disk: Path | None
    random: np.random.Generator
    successors: ExitStack
    environment: dict[str, str]
    struck: float = 0.0  # when the last fault did
    turn: int = 0
    tasks: set[asyncio.Future[Any]] = field(default_factory=set)  # referenced here, or they may be collected while they run

    @property
    def workers(self) -> list[int]:
        return processes.worker_pids(self.process)

    def some_worker(self) -> int:
        pids = self.workers
        return pids[int(self.random.integers(len(pids)))]

    def next_model(self) -> Path:
        self.turn += 1
        return self.models[self.turn % len(self.models)]


def soak_with_faults(dataset: ep.Dataset, factors: int, workers: int, seconds: float, seed: int) -> Findings:
    """Run the service under faults for so many seconds, and print what was found."""
    with tempfile.TemporaryDirectory() as name, _small_disk(Path(name) / "tmp") as disk:
        root, port = Path(name), processes.free_port()
        models = [root / "models" / str(j) for j in range(2)]
        expected = dict(_fitted(dataset, factors, path, j) for j, path in enumerate(models))
        shutil.copytree(models[0], root / "model")
        temporary = {} if disk is None else {"TMPDIR": str(disk)}
        with processes.everypair_service(root / "model", port, workers, **temporary) as process, ExitStack() as successors:
            users, random = dataset.users.values.to_pylist(), np.random.default_rng(seed)
            subject = Subject(process, workers, port, root / "model", models, expected, users, disk, random, successors, temporary)
            found = asyncio.run(_run(subject, seconds))
    _report(found, seconds)
    return found


def _fitted(dataset: ep.Dataset, factors: int, folder: Path, seed: int) -> tuple[str, dict[Any, list[Any]]]:
    """Fit and save a model: its version, and the list of each user."""
    recommender = ep.Recommender(ep.MF(factors=factors, epochs=processes.EPOCHS, random_state=seed)).fit(dataset)
    recommender.save(folder)
    lists: dict[Any, list[Any]] = {user: [] for user in dataset.users.values.to_pylist()}
    table = recommender.recommend(list(lists), n=N)
    for user, item in zip(table[dataset.user_column].to_pylist(), table[dataset.item_column].to_pylist(), strict=True):
        lists[user].append(item)
    return ServedModel.open(folder).version, lists


@contextmanager
def _small_disk(path: Path) -> Iterator[Path | None]:
    """A file system that can be filled; None without the right to mount one."""
    path.mkdir()
    mounted = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)], capture_output=True).returncode == 0
    )
    if not mounted:
        print("no right to mount a small file system: the disk is not filled.")
    try:
        yield path if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(path)], check=True)


async def _run(subject: Subject, seconds: float) -> Findings:
    subject.struck = time.perf_counter()
    if await _until(_all_workers_answer, subject) == float("inf"):
        raise RuntimeError("the service did not start.")
    found, end = Findings(), time.perf_counter() + seconds
    clients = [asyncio.ensure_future(_ask(subject, found, end, j)) for j in range(CLIENTS)]
    memory = asyncio.ensure_future(_read_memory(subject, found, end))
    faults: dict[str, Callable[[Subject], Awaitable[None]]] = {
        "a worker is killed": _kill,
        "a worker hangs": _hang,
        "a worker is told to end": _end,
        "a model is saved": _save,
        "a reload by a signal": _reload,
        "a model is copied over": _copy_over,
        "the service is replaced": _replace,
        "slow clients": _slow_clients,
    }
    if subject.disk is not None:
        faults["a full disk"] = _fill_disk
    names: list[str] = []
    while time.perf_counter() < end - PAUSE[1]:
        await asyncio.sleep(float(subject.random.uniform(*PAUSE)))
        names = names or subject.random.permutation(list(faults)).tolist()  # each as often as any other
        name, subject.struck = names.pop(), time.perf_counter()
        await faults[name](subject)
        answered = await _until(_all_answered, subject)
        complete = await _until(_all_workers_answer, subject)
        found.recovery.setdefault(name, []).append(answered)
        found.completion.setdefault(name, []).append(complete)
        at = seconds - (end - subject.struck)
        print(f"{at:6.1f} s  {name}: all answered after {answered:.2f} s, by all workers after {complete:.2f} s", flush=True)
    await asyncio.gather(*clients, memory)
    return found


async def _ask(subject: Subject, found: Findings, end: float, seed: int) -> None:
    """Ask without a pause, over connections that are kept, and check every answer."""
    random = np.random.default_rng(seed)
    while time.perf_counter() < end:
        began = time.perf_counter()
        try:
            async with connect(subject.port) as client:
                while time.perf_counter() < end and not client.last:
                    began = time.perf_counter()
                    user = subject.users[int(random.integers(len(subject.users)))]
                    found.answers[await _checked(subject, client, user, found)] += 1
                    found.longest = max(found.longest, time.perf_counter() - began)
        except TimeoutError:
            found.answers["no answer in time"] += 1
        except ConnectionRefusedError:
            found.answers["connection refused"] += 1
            await asyncio.sleep(0.01)
        except LOST:
            found.answers["connection lost"] += 1
        found.longest = max(found.longest, time.perf_counter() - began)


async def _checked(subject: Subject, client: Client, user: Any, found: Findings) -> str:
    async with asyncio.timeout(GIVE_UP):
        status, body = await client.request("POST", "/recommend", {"user": user, "n": N})
    if status in REFUSALS:
        return f"refused ({status})"
    problem = _problem(subject, status, body, user)
    if problem is None:
        return "right"
    found.wrong.append(problem)
    return "wrong"


def _problem(subject: Subject, status: int, body: bytes, user: Any) -> str | None:
    """What is wrong with an answer, if anything."""
    if status != 200:
        return f"status {status}: {body[:200]!r}"
    answer = json.loads(body)
    items = [entry["item"] for entry in answer["items"]]
    if answer["model"] not in subject.expected:
        return f"an unknown model: {answer['model']}"
    wanted = subject.expected[answer["model"]][user]
    return None if items == wanted else f"user {user!r}: {items} instead of {wanted}"


async def _until(condition: Callable[[Subject], Awaitable[bool]], subject: Subject) -> float:
    """Seconds from the last fault until a condition is met."""
    while time.perf_counter() - subject.struck < GIVE_UP:
        if await condition(subject):
            return time.perf_counter() - subject.struck
        await asyncio.sleep(0.02)
    return float("inf")


async def _all_answered(subject: Subject) -> bool:
    """Whether new connections are all answered at once."""
    return all(await asyncio.gather(*(_probe(subject, j) for j in range(PROBES))))


async def _all_workers_answer(subject: Subject) -> bool:
    """Whether as many workers serve as there should be, none of them stopped, and new connections are all answered."""
    with suppress(OSError, *LOST):
        async with asyncio.timeout(PROBE_SECONDS), connect(subject.port) as client:
            _, text = await client.request("GET", "/metrics")
            serving = re.search(rb"^everypair_workers (\S+)$", text, re.MULTILINE)
            whole = serving is not None and float(serving[1]) == len(subject.workers) == subject.n_workers
            return whole and not any(map(processes.is_stopped, subject.workers)) and await _all_answered(subject)
    return False


async def _probe(subject: Subject, j: int) -> bool:
    with suppress(OSError, *LOST):
        async with asyncio.timeout(PROBE_SECONDS), connect(subject.port) as client:
            user = subject.users[j % len(subject.users)]
            status, body = await client.request("POST", "/recommend", {"user": user, "n": N})
            return _problem(subject, status, body, user) is None
    return False


# faults


async def _kill(subject: Subject) -> None:
    os.kill(subject.some_worker(), signal.SIGKILL)


async def _hang(subject: Subject) -> None:
    os.kill(subject.some_worker(), signal.SIGSTOP)


async def _end(subject: Subject) -> None:
    os.kill(subject.some_worker(), signal.SIGTERM)


async def _replace(subject: Subject) -> None:
    """As an upgrade does: another service takes over the port, and the old one is told to stop."""
    service = processes.succeeding_service(subject.folder, subject.port, subject.n_workers, **subject.environment)
    old, subject.process = subject.process, await asyncio.to_thread(subject.successors.enter_context, service)
    subject.struck = time.perf_counter()
    old.send_signal(signal.SIGTERM)
    _start(subject, asyncio.to_thread(old.wait, GIVE_UP))


async def _reload(subject: Subject) -> None:
    await _save(subject)
    subject.process.send_signal(signal.SIGHUP)


async def _save(subject: Subject) -> None:
    """As ``save`` does: the folder's files are replaced by renames."""
    await asyncio.to_thread(lambda: ep.load(subject.next_model()).save(subject.folder))


async def _copy_over(subject: Subject) -> None:
    """As ``cp -f model/* served/`` does: each file is truncated and written again; the reload after it may be refused meanwhile."""

    def copy() -> None:
        for source in sorted(subject.next_model().iterdir()):
            target = subject.folder / source.name
            if target.exists():
                target.chmod(0o644)
            shutil.copyfile(source, target)

    await asyncio.to_thread(copy)


async def _slow_clients(subject: Subject) -> None:
    """Connections that send a byte of a body now and then."""

    async def one() -> None:
        with suppress(OSError, *LOST):
            _, writer = await asyncio.open_connection(HOST, subject.port)
            writer.write(f"POST /recommend HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 50\r\n\r\n".encode())
            for _ in range(3):
                writer.write(b"{")
                await writer.drain()
                await asyncio.sleep(SLOW_SECONDS / 3)
            writer.close()

    for _ in range(SLOW_CLIENTS):
        _start(subject, one())
    await asyncio.sleep(0.2)  # they are connected


async def _fill_disk(subject: Subject) -> None:
    """Fill the disk of temporary files, save a model meanwhile, and free it again."""
    assert subject.disk is not None
    filler = subject.disk / "filler"

    async def free() -> None:
        await asyncio.sleep(DISK_SECONDS)
        filler.unlink(missing_ok=True)

    with suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
    _start(subject, free())
    await _save(subject)


def _start(subject: Subject, work: Coroutine[Any, Any, Any]) -> None:
    subject.tasks.add(task := asyncio.ensure_future(work))
    task.add_done_callback(subject.tasks.discard)


async def _read_memory(subject: Subject, found: Findings, end: float) -> None:
    began = time.perf_counter()
    while time.perf_counter() < end:
        with suppress(OSError, KeyError):  # a worker may end while it is read
            total = sum(processes.resident_memory(pid)[1] for pid in subject.workers)
            found.memory.append((time.perf_counter() - began, total))
        await asyncio.sleep(1.0)


def _report(found: Findings, seconds: float) -> None:
    rate = sum(found.answers.values()) / seconds
    print(f"answers: {dict(found.answers.most_common())}, {rate:.0f}/s, longest wait {found.longest:.2f} s")
    for name, times in sorted(found.recovery.items()):
        whole = found.completion[name]
        print(
            f"  {name:<24} {len(times):3d} times, all answered after {np.median(times):.2f} s, at most {max(times):.2f} s; "
            f"by all workers after {np.median(whole):.2f} s, at most {max(whole):.2f} s"
        )
    print("private memory of all workers, median of each third: " + ", ".join(f"{size:.0f} MiB" for size in _thirds(found)))
    problems = failures(found)
    print("\n".join(f"FAILED: {problem}" for problem in problems) or "passed: every answer right or refused, in time, flat memory")


def failures(found: Findings) -> list[str]:
    """What a service that survives faults must not do."""
    problems = [f"wrong: {problem}" for problem in found.wrong[:10]]
    broken = sum(len(found.recovery.get(name, ())) for name in BREAKING)
    if found.answers["connection lost"] > CLIENTS * broken:
        problems.append(f"{found.answers['connection lost']} connections lost, with {broken} workers killed or stopped")
    problems += [f"{found.answers[name]} times: {name}" for name in UNANSWERED if found.answers[name]]
    slow = {name: max(times) for name, times in found.recovery.items() if max(times) > WITHIN}
    problems += [f"{name}: all answered after {longest:.2f} s" for name, longest in slow.items()]
    if found.longest > WITHIN:
        problems.append(f"a client waited for {found.longest:.2f} s")
    _, before, last = _thirds(found)
    if last > GROWTH * before:
        problems.append(f"memory grew from {before:.0f} to {last:.0f} MiB")
    return problems


def _thirds(found: Findings) -> list[float]:
    """The median of private memory in each third of the time, in MiB."""
    moments, sizes = np.array(found.memory).T
    parts = np.minimum(3 * moments / max(moments[-1], 1e-9), 2).astype(int)
    return [float(np.median(sizes[parts == part]) / 2**20) if (parts == part).any() else 0.0 for part in range(3)]
