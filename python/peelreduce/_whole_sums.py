"""How a reduce-scatter is made on a GPU, where exchanges only sum.

The array is summed as a whole, and everybody keeps a share, where few elements are not zero: that sends less than
scattering all elements does. Else NCCL scatters them.
"""

from __future__ import annotations

from typing import Any

_SPARSE = 0.25  # of the elements, in the union: a sum of so many sends half of what scattering all does, at most
_TRIALS = 2  # the first one may be dense, and only count
_SCATTERED = 32  # arrays, before another trial


class WholeSums:
    """Whether the next array is summed as a whole, by what all workers know of the last ones: they all find the same."""

    def __init__(self, strategy: str) -> None:
        self._strategy = strategy
        self._trials = _TRIALS
        self._scattered = 0  # since the last trial
        self._session = -1

    def begin(self, session: int) -> None:
        """Forgets what is known from another session: some workers may have had sums there that others had not."""
        if session != self._session:
            self._session, self._trials, self._scattered = session, _TRIALS, 0

    def pay(self) -> bool:
        """For the next array."""
        if self._strategy != "auto":
            return self._strategy != "dense"
        if self._trials == 0 and self._scattered == _SCATTERED:
            self._trials, self._scattered = _TRIALS, 0
        if self._trials == 0:
            self._scattered += 1
        return self._trials > 0

    def learn(self, report: dict[str, Any], elements: int) -> None:
        """From the sum of an array."""
        sparse = report["strategy"] != "dense" and report["union_elements"] <= _SPARSE * elements
        self._trials = _TRIALS if sparse else max(self._trials - 1, 0)
