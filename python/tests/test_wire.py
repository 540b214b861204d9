"""What the wire of a GPU does with tensors, on tensors of the host: whatever the backend of a group can."""

import pytest
import torch
import torch.distributed as dist
from peelreduce import _wire
from peelreduce._whole_sums import WholeSums
from workers import run_workers


def _words(rank: int, count: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rank)
    return torch.randint(-(2**62), 2**62, (count,), generator=draw) & torch.randint(
        -(2**62), 2**62, (count,), generator=draw
    )


def _combine(rank: int, size: int) -> None:
    for count in (0, 1, 2, 3, 7, 8, 64, 1024, 1025, 1026, 1031, 4096, 6000, 6007):
        for short in (0, 1 << 10):  # in slices, and whole
            _wire._SHORT = short
            data = _words(rank, count)
            unit = 2 * size  # as or_scratch_bytes() has it, in words
            scratch = torch.full(((count + unit - 1) // unit * unit,), -1)
            _wire.combine_words(data, scratch, dist.group.WORLD)
            expected = _words(0, count)
            for worker in range(1, size):
                expected |= _words(worker, count)
            assert torch.equal(data, expected), (count, short)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_words_are_combined_by_or(size: int) -> None:
    run_workers(size, _combine)


def _all_to_all(into: list[torch.Tensor], out: list[torch.Tensor], group: dist.ProcessGroup) -> None:
    """Of parts of different lengths, as NCCL has it and Gloo has not."""
    ranks = range(group.size())
    works = [dist.isend(out[to], to) for to in ranks if out[to].numel() != 0]
    works += [dist.irecv(into[sender], sender) for sender in ranks if into[sender].numel() != 0]
    for work in works:
        work.wait()


def _deliver(rank: int, size: int) -> None:
    dist.all_to_all = _all_to_all
    pieces = 3

    def piece(sender: int, receiver: int, number: int) -> torch.Tensor:
        length = (5 * sender + 3 * receiver) % 7 * number  # some are empty
        return torch.arange(length, dtype=torch.int8) + sender

    leaving = [piece(rank, receiver, number) for receiver in range(size) for number in range(pieces)]
    coming = [torch.full_like(piece(sender, rank, number), -1) for sender in range(size) for number in range(pieces)]
    _wire.deliver(leaving, coming, dist.group.WORLD)
    for sender in range(size):
        for number in range(pieces):
            expected = piece(sender, rank, number)
            got = coming[sender * pieces + number]
            assert torch.equal(got, torch.full_like(expected, -1) if sender == rank else expected)


@pytest.mark.parametrize("size", [2, 3])
def test_pieces_go_where_they_belong(size: int) -> None:
    run_workers(size, _deliver)


def _add(rank: int, size: int) -> None:
    for dtype in (torch.int16, torch.float32, torch.bfloat16, torch.int64):
        data = torch.tensor([1, 2, 3], dtype=dtype)
        _wire.add_up(data, dist.group.WORLD)
        assert torch.equal(data, torch.tensor([size, 2 * size, 3 * size], dtype=dtype))
    wrapped = torch.tensor([2**15 - 1], dtype=torch.int16)
    _wire.add_up(wrapped, dist.group.WORLD)
    assert wrapped.item() == -2


def test_all_types_are_added_and_integers_wrap() -> None:
    run_workers(2, _add)


def _report(strategy: str, share: float) -> dict:
    return {"strategy": strategy, "union_elements": share * 1000}


def test_scatters_are_sums_of_the_whole_while_that_sends_less() -> None:
    whole = WholeSums("auto")
    assert whole.pay()
    whole.learn(_report("dense", 1), 1000)  # the first sum only counts
    for _ in range(50):
        assert whole.pay()
        whole.learn(_report("split", 0.1), 1000)
    for _ in range(2):
        assert whole.pay()
        whole.learn(_report("split", 0.5), 1000)
    assert [whole.pay() for _ in range(33)] == 32 * [False] + [True]  # and then it is tried again


def test_scatters_of_another_session_are_tried_anew() -> None:
    whole = WholeSums("auto")
    whole.begin(3)
    for _ in range(2):
        whole.learn(_report("dense", 1), 1000)
    assert not whole.pay()
    whole.begin(3)
    assert not whole.pay()
    whole.begin(4)
    assert whole.pay()


def test_scatters_are_as_asked_for() -> None:
    assert WholeSums("split").pay()
    assert not WholeSums("dense").pay()
