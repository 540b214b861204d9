"""PeelReduce in Accelerate: torchrun --nproc-per-node 2 with_accelerate.py, or accelerate launch.

What prepare() returns is a DistributedDataParallel, which takes the hook. The state goes into Accelerate's checkpoints.
Trains twice, without the hook and with it: with two workers the weights are the same.
"""

import tempfile

import accelerate
import peelreduce
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


class Ratings(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(5000, 16)
        self.score = torch.nn.Linear(16, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.score(self.rows(rows)).squeeze(-1)


def train(accelerator: accelerate.Accelerator, state: peelreduce.DDPState | None) -> torch.Tensor:
    """The weights after a few steps."""
    accelerate.utils.set_seed(7)
    model = Ratings()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.randint(5000, (256,)), torch.randn(256)), batch_size=32)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    if state is not None:
        model.register_comm_hook(state, peelreduce.allreduce_hook)
        accelerator.register_for_checkpointing(state)
    for rows, target in data:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(rows), target))
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def main() -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    plain = train(accelerator, None)
    state = peelreduce.DDPState()
    hooked = train(accelerator, state)
    assert torch.equal(plain, hooked)
    stats = state.stats()
    assert stats["steps"] == 4, stats
    folder = [tempfile.mkdtemp() if accelerator.is_main_process else ""]
    dist.broadcast_object_list(folder)
    accelerator.save_state(folder[0])
    accelerator.wait_for_everyone()
    state.step = 0
    accelerator.load_state(folder[0])
    assert state.step == 4
    print(f"accelerate {accelerate.__version__}: the same weights, {stats['bytes_sent']} bytes sent")
    accelerator.end_training()


if __name__ == "__main__":
    main()
