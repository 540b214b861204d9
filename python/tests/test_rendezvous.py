"""How workers meet, with threads in the place of workers."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import peelreduce
import pytest
import torch.distributed as dist
from peelreduce._rendezvous import Failure, Left, Pulse, Round, error_of, rounds
from peelreduce._store import Asker, Store
from peelreduce._transport import make_device


def _store() -> Store:
    return Store(dist.HashStore(), Asker())


def _meet(store: Store, rank: int, size: int, left: Left, timeout: float = 20.0, first: int = 0) -> Round:
    pulse = Pulse("127.0.0.1")
    for found in rounds(store, rank, size, first):
        found.join(left, pulse.address)
        if found.await_fate(timeout, lambda: False):
            found.pulse = pulse  # lives as long as the round
            return found
    raise AssertionError


def _meet_all(store: Store, lefts: list[Left], timeout: float = 20.0) -> list[Future[Round]]:
    with ThreadPoolExecutor(len(lefts)) as pool:
        return [pool.submit(_meet, store, rank, len(lefts), left, timeout) for rank, left in enumerate(lefts)]


def test_workers_meet_in_the_first_round_that_nobody_has_decided() -> None:
    store = _store()
    assert [one.result().number for one in _meet_all(store, 3 * [Left()])] == [0, 0, 0]
    assert [one.result().number for one in _meet_all(store, 3 * [Left(0, 7)])] == [1, 1, 1]


def test_workers_at_different_places_are_told_until_all_were_reset() -> None:
    store = _store()
    for lefts in (
        [Left(0, 7), Left(0, 8)],
        [Left(0, 7, failed=1), Left(0, 7)],  # one has the sum, and the other has not
        [Left(0, 7, failed=1), Left(0, 7, failed=1, unmet=1)],
        [Left(0, 7), Left()],
        [Left(reset=True), Left(0, 7)],
    ):
        for one in _meet_all(store, lefts):
            with pytest.raises(peelreduce.Disagreement, match=r"different places .* call peelreduce.reset\(\) on every"):
                one.result()
    assert {one.result().number for one in _meet_all(store, 2 * [Left(reset=True)])} == {5}


def test_who_did_not_come_is_named_and_found_again() -> None:
    store = _store()
    with ThreadPoolExecutor(2) as pool:
        alone = [pool.submit(_meet, store, rank, 4, Left(), 0.2) for rank in (0, 3)]
        for one in alone:
            with pytest.raises(peelreduce.TimedOut, match="Workers 1 and 2 did not call within 0.2 s"):
                one.result()
    assert {one.result().number for one in _meet_all(store, 4 * [Left()])} == {1}


def test_a_worker_that_was_given_up_waits_in_the_next_round() -> None:
    store = _store()
    round_ = Round(store, 0, 0, 2)
    round_.join(Left(), None)
    with pytest.raises(peelreduce.TimedOut, match="Worker 1 did not call"):
        round_.await_fate(0.1, lambda: False)
    late = Round(store, 0, 1, 2)  # it had looked for the round's fate just before
    late.join(Left(), None)
    assert not late.await_fate(0.1, lambda: False)


def test_a_worker_that_closes_does_not_keep_the_others_waiting() -> None:
    store = _store()
    closed = threading.Event()
    first, second = Round(store, 0, 0, 3), Round(store, 0, 1, 3)
    with ThreadPoolExecutor(2) as pool:
        for one in (first, second):
            one.join(Left(), None)
        waiting = [pool.submit(first.await_fate, 20, closed.is_set), pool.submit(second.await_fate, 20, lambda: False)]
        closed.set()
        for one in waiting:
            with pytest.raises(peelreduce.TimedOut, match="Worker 0 closed its lanes before they were made"):
                one.result(20)


def test_the_first_failure_is_everybodys() -> None:
    one, other = (future.result() for future in _meet_all(_store(), 2 * [Left()]))
    assert one.failure() is None
    first = Failure("timed_out", 0, "Worker 1 did not come.")
    assert one.fail(first) == first
    assert other.fail(Failure("transport", 1, "Worker 0 hung up.")) == first
    assert other.failure() == first
    assert isinstance(error_of(first), peelreduce.TimedOut)


def test_a_process_that_ended_is_told_from_one_that_closed_and_from_one_that_lives() -> None:
    made = [future.result() for future in _meet_all(_store(), 3 * [Left()])]
    assert made[0].who_is_gone() == ""
    made[1].note_closed()
    assert made[0].who_is_gone().startswith("Worker 1 closed the lanes")
    made[2].pulse.close()
    assert made[0].who_is_gone() == "Worker 2 is gone"


def test_who_waits_is_not_late() -> None:
    made = [future.result() for future in _meet_all(_store(), 3 * [Left()])]
    made[1].note_waiting(5)
    assert made[0].who_is_late(5) == "Worker 2 did not come to it"
    assert made[0].who_is_late(6) == "Worker 2 did not come to it"  # worker 1 waits for it too, in the sum before
    made[1].note_moving(5)  # it has the sum, and computes
    assert made[0].who_is_late(5) == "Worker 2 did not come to it"
    made[2].note_waiting(5)
    made[2].note_moving(5)
    made[1].note_waiting(6)
    assert made[0].who_is_late(5) == "Worker 2 stopped in the middle of it"
    made[2].note_waiting(7)
    assert made[0].who_is_late(6) == "Worker 2 did not come to it"
    made[2].note_waiting(6)
    assert made[0].who_is_late(6) == ""


def test_a_store_that_does_not_answer_is_told_within_the_limit() -> None:
    goes_on = threading.Event()
    asker = Asker()
    with pytest.raises(peelreduce.TransportFailed, match="does not answer"):
        asker.ask(lambda: goes_on.wait(60), limit=0.1)
    with pytest.raises(peelreduce.TransportFailed, match="does not answer"):  # at once
        asker.ask(lambda: 1, limit=60)
    goes_on.set()
    asker._unanswered.result(60)
    assert asker.ask(lambda: 2, limit=60) == 2
    asker.stop()


def test_many_may_ask_whether_a_process_lives() -> None:
    made = [future.result() for future in _meet_all(_store(), 3 * [Left()])]
    for _ in range(100):
        assert made[0].who_is_gone() == ""


def test_lanes_listen_on_the_interface_that_gloo_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo,eth7")
    _, address = make_device()
    assert address is not None
    assert address[0] in ("127.0.0.1", "::1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    with pytest.raises(RuntimeError):
        make_device()
