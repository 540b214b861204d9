"""Sparsifiers: what of a dense gradient is sent now, and what waits.

    peelreduce.DDPState(sparsifier=peelreduce.TopK(0.01))

They are lossy by choice: the codec carries exactly what was selected, parameter by parameter, so that it does not depend
on how DDP puts parameters into buckets. Nothing is dropped for good: what is not sent is
added to the next step's gradient (error feedback), with momentum corrected as in Deep Gradient Compression (Lin et al.):
momentum is accumulated before the selection, and cleared where a value was sent. With momentum above 0 use an optimizer
without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

Memory = dict[str, torch.Tensor]


class Sparsifier:
    """Selects by magnitude, in this worker's own gradient of a parameter. Subclasses say from which magnitude on."""

    def __init__(self, momentum: float = 0.0) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, not {momentum}.")
        self.momentum = momentum

    def threshold(self, magnitudes: torch.Tensor) -> torch.Tensor | float:
        """Values of at least this magnitude are sent."""
        raise NotImplementedError

    def apply(self, gradient: torch.Tensor, memory: Memory, sizes: Sequence[int] | None = None) -> None:
        """Replaces the gradient by what is sent of it; `memory` holds what is not. Non-finite values are sent.

        With `sizes` it is that of several parameters, one after another, and each is selected from by itself.
        """
        waiting = memory.setdefault("waiting", torch.zeros_like(gradient))
        if self.momentum > 0:
            velocity = memory.setdefault("velocity", torch.zeros_like(gradient))
            velocity.mul_(self.momentum).add_(gradient)
            waiting.add_(velocity)
        else:
            waiting.add_(gradient)
        magnitudes = waiting.abs()
        parts = [magnitudes] if sizes is None else magnitudes.split(list(sizes))
        kept = torch.cat([part < self.threshold(part) for part in parts])  # false for NaN
        gradient.copy_(waiting.masked_fill(kept, 0))
        waiting.mul_(kept)
        waiting.nan_to_num_(0, 0, 0)  # infinity times false
        if self.momentum > 0:
            velocity.mul_(kept).nan_to_num_(0, 0, 0)


class TopK(Sparsifier):
    """The given share of each parameter: its largest values. Values as large as the smallest of them are sent too."""

    def __init__(self, share: float, momentum: float = 0.0) -> None:
        super().__init__(momentum)
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, not {share}.")
        self.share = share

    def threshold(self, magnitudes: torch.Tensor) -> torch.Tensor | float:
        if magnitudes.numel() == 0:
            return 0.0
        rank = magnitudes.numel() - max(1, round(self.share * magnitudes.numel())) + 1
        return magnitudes.flatten().kthvalue(rank).values


class Threshold(Sparsifier):
    """Values of at least a given magnitude."""

    def __init__(self, magnitude: float, momentum: float = 0.0) -> None:
        super().__init__(momentum)
        if not magnitude > 0:
            raise ValueError(f"magnitude must be above 0, not {magnitude}.")
        self.magnitude = magnitude

    def threshold(self, magnitudes: torch.Tensor) -> torch.Tensor | float:
        return self.magnitude
