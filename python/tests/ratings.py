"""A small model to train."""

import torch


class Ratings(torch.nn.Module):
    """An embedding whose gradient is mostly zero, and layers whose is not."""

    def __init__(self, rows: int, sparse: bool = False) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(rows, 8, sparse=sparse)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(self.rows(rows)).squeeze(1)
