"""Who sums tensors of GPUs where: what workers tell each other, without a GPU."""

import threading
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from peelreduce import _core, _gpu, _sides
from peelreduce._dispatcher import Lanes, Task
from peelreduce._link import measure_link
from peelreduce._rendezvous import Left, Round
from peelreduce._store import Asker, Store
from peelreduce._wire import Wire
from workers import run_workers


def _ask(rank: int, size: int) -> list[str]:
    store = Store(dist.distributed_c10d._get_default_store(), Asker())
    return Round(store, 0, rank, size).collect("able", f"worker {rank} cannot" if rank == 1 else "yes", 30)


def test_all_workers_hear_all_answers() -> None:
    assert run_workers(3, _ask) == 3 * [["yes", "worker 1 cannot", "yes"]]


def _obstacle(rank: int, size: int) -> str:
    return _sides.obstacle(dist.get_backend_config(dist.group.WORLD))


def test_a_group_without_nccl_is_an_obstacle() -> None:
    expected = _gpu.missing or "the process group has no NCCL"
    assert run_workers(1, _obstacle)[0].startswith(expected)


def test_what_there_is_can_be_told() -> None:
    assert _gpu.about().startswith("no: " if _gpu.missing else "built with CUDA ")


FIRST, SECOND = torch.device("cuda", 1), torch.device("cuda", 0)


def test_the_first_device_to_be_submitted_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever lane comes first to a task."""
    side = object()
    monkeypatch.setattr(_sides.Sides, "_decide", lambda self, device, *others: side if device == FIRST else None)
    monkeypatch.setattr(Lanes, "_run", lambda self, number: None)
    lanes = Lanes(None, None, Left(), 0)
    for device in (FIRST, SECOND):
        task = Task()
        task.device = device
        lanes.submit(task)
    assert lanes._sides.side_of(SECOND, None, 30) is None
    assert lanes._sides.side_of(FIRST, None, 30) is side


def test_an_error_aborts_the_wire_while_another_lane_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    deciding, aborted = threading.Event(), threading.Event()

    def decide(self: _sides.Sides, device: torch.device, *others: object) -> None:
        self._wire = SimpleNamespace(abort=aborted.set)
        deciding.set()
        assert aborted.wait(30)
        raise _core.Error("aborted")

    monkeypatch.setattr(_sides.Sides, "_decide", decide)
    sides = _sides.Sides(None, _core.ScratchPool())
    sides.note(FIRST)
    heard: list[str] = []

    def ask() -> None:
        try:
            sides.side_of(FIRST, None, 30)
        except _core.Error as error:
            heard.append(str(error))

    lanes = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    for lane in lanes:
        lane.start()
    assert deciding.wait(30)
    sides.abort()
    for lane in lanes:
        lane.join(30)
    assert heard == ["aborted", "aborted"]


def test_what_is_on_the_wire_is_awaited_for_so_long() -> None:
    stuck = SimpleNamespace(query=lambda: False)
    wire = SimpleNamespace(device=FIRST, _timeout=0.01, stream=SimpleNamespace(record_event=lambda: stuck))
    with pytest.raises(_core.TimedOut, match="cuda:1 did not end within 0.01 s"):
        Wire.await_all(wire)


def _count_waits(rank: int, size: int) -> tuple[int, int]:
    performed, waited = 0, 0

    def counted(perform):
        def count(*arguments, **options):
            nonlocal performed
            performed += 1
            assert performed == waited + 1  # the one before is complete
            return perform(*arguments, **options)

        return count

    def wait() -> None:
        nonlocal waited
        waited += 1

    dist.all_reduce, dist.all_to_all_single = counted(dist.all_reduce), counted(dist.all_to_all_single)
    measure_link(dist.group.WORLD, wait=wait)
    return performed, waited


def test_every_collective_that_measures_is_awaited() -> None:
    for performed, waited in run_workers(2, _count_waits):
        assert performed == waited > 0
