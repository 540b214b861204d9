"""Which tensors of one kind this library sums, and which it hands on to torch because its sums do not pay.

A dense sum of this library is one of torch, and the way through a lane: with two workers on two cores, 25 MiB over Gloo took
a tenth longer on that way, and 1 MiB a third. So a kind of tensors that turned out to be dense, or too short for a link as
fast as theirs, is handed on for a while, and then tried again, each time after a longer while. A first trial is of several
sums, since sparse tensors should not wait for it. A later one is of a single sum, where one tells (all-reduces: a first sum
counts the union, whatever its strategy), and what follows it goes where the tensors before it went until it is known whether
that sum paid. That makes an odd number of tensors from trial to trial, so that each of two or four tensors of one kind in a
step has its turn.

All workers must find the same, and they know of no moment at which a sum is complete on all of them. So what is found
depends on numbers alone: whether the n-th tensor is handed on follows from the union, which all workers know, of the
tensor _BEHIND before it. Mostly that one is complete by then; if it is not, whoever submits waits for it, while the lanes
still have all tensors between to sum.
"""

from __future__ import annotations

from collections import deque

from ._tasks import ArrayState, Outcome

_BEHIND = 4
_IN_VAIN = 2  # sums in a row that end the first trial
_SHORTEST, _LONGEST = 32, 512  # tensors that are handed on between two trials


class Trials:
    """Of the tensors of one kind, in the order in which they are submitted."""

    def __init__(self, *, one_tells: bool = True) -> None:
        self._one_tells = one_tells
        self.state: ArrayState | None = None  # of this trial, which begins with none
        self.handed_on = 0
        self._left = 0  # tensors to be handed on
        self._pause = _SHORTEST
        self._in_vain = 0  # in a row
        self._is_known_dense = False  # by the last trial, so that the next one is a single sum
        self._outcomes: deque[Outcome] = deque()

    def hands_on(self) -> bool:
        """Whether the next tensor is handed on. If it is not, learn() may find that it is after all; else submitted()
        follows."""
        if self._left == 0:
            return False
        self._left -= 1
        self.handed_on += 1
        if self._left == 0 and not self._outcomes:
            self.state = None
        return True

    def learn(self) -> None:
        """From an earlier tensor, for which it waits: a sum ends within its time-outs, and who went on without its outcome
        would find something else than the other workers."""
        if len(self._outcomes) < (1 if self._is_known_dense else _BEHIND):
            return
        oldest = self._outcomes.popleft()
        oldest.done.wait()
        if oldest.pays is not False:
            self._in_vain, self._pause = 0, _SHORTEST
            self._is_known_dense = False
            return
        self._in_vain += 1
        if self._is_known_dense or self._in_vain == _IN_VAIN:
            self._left, self._pause = self._pause, min(2 * self._pause, _LONGEST)
            self._in_vain = 0
            self._is_known_dense = self._one_tells
            self._outcomes.clear()

    def submitted(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if self._is_known_dense:
            self._left = _BEHIND
