"""When a worker is taken to hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from everypair.service.heartbeat import HANG_SECONDS, MAX_STEP, OPEN_SECONDS, PING_SECONDS, STUCK_SECONDS, Heartbeat, cpu_seconds


class Second(NamedTuple):
    """What happens between two looks at a worker."""

    seconds: float
    answers: bool
    computes: bool


def seconds(**fixed: bool) -> st.SearchStrategy[Second]:
    either = st.booleans()
    drawn = {name: st.just(fixed[name]) if name in fixed else either for name in ("answers", "computes")}
    return st.builds(Second, st.floats(0.25, 0.75) | st.just(3_600.0), **drawn)


def look(heartbeat: Heartbeat, passed: list[Second], opening: bool = False) -> list[str | None]:
    """What is found at each look."""
    cpu, found = 0.0, []
    for second in passed:
        if heartbeat.answered:
            heartbeat.ping(cpu)
        if second.answers:
            heartbeat.pong(heartbeat.sent)
        cpu += second.computes
        found.append(heartbeat.why_hung(second.seconds, cpu, opening))
    return found


@given(st.lists(seconds(answers=True), max_size=50), st.booleans())
def test_a_worker_that_answers_never_hangs(passed: list[Second], opening: bool) -> None:
    assert not any(look(Heartbeat(), passed, opening))


@given(st.lists(seconds(), max_size=20), st.booleans())
def test_a_worker_that_is_stopped_hangs_after_some_seconds(before: list[Second], opening: bool) -> None:
    """Whatever was before, and however long the supervisor itself was stopped: that counts as a look."""
    heartbeat = Heartbeat()
    look(heartbeat, before, opening)
    heartbeat.ping(None)
    heartbeat.pong(heartbeat.sent)
    looks = int(HANG_SECONDS / PING_SECONDS)
    found = look(heartbeat, [Second(PING_SECONDS, False, False)] * (looks + 2), opening)
    assert found[-1] is not None
    assert "neither answered nor computed" in found[-1]
    assert [why is not None for why in found].index(True) == looks - 1
    assert PING_SECONDS + HANG_SECONDS < 2.0, "clients of a worker wait no longer: one may stop right after an answer"


@given(st.lists(seconds(answers=False, computes=True), min_size=1, max_size=400), st.booleans())
def test_a_worker_that_computes_has_longer_to_answer(passed: list[Second], opening: bool) -> None:
    found = look(Heartbeat(), passed, opening)
    total, limit = 0.0, OPEN_SECONDS if opening else STUCK_SECONDS
    for second, why in zip(passed, found, strict=True):
        total += min(second.seconds, MAX_STEP)
        assert (why is not None) == (total >= limit)


@given(st.integers(1, 5))
def test_an_answer_to_an_earlier_ping_is_none_to_the_last(later: int) -> None:
    heartbeat = Heartbeat()
    first = heartbeat.ping(None)
    for _ in range(later):
        heartbeat.ping(None)
    heartbeat.pong(first)
    assert not heartbeat.answered
    heartbeat.pong(heartbeat.sent)
    assert heartbeat.answered


def test_computation_of_a_process_is_seen() -> None:
    assert cpu_seconds(os.getpid()) is None, "this thread computes"
    assert cpu_seconds(2**30) is None, "there is no such process"
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            os.kill(process.pid, signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)  # it is stopped now
            before = cpu_seconds(process.pid)
            assert before is not None
            assert cpu_seconds(process.pid) == before
        finally:
            process.kill()
