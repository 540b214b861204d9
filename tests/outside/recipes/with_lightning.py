"""PeelReduce in Lightning: torchrun --nproc-per-node 2 with_lightning.py

Lightning registers a hook by itself only on GPUs (DDPStrategy(ddp_comm_hook=...)), so a callback does it, which also
puts the state into checkpoints. Trains twice, without the hook and with it: with two workers the weights are the same.
"""

from typing import Any

import lightning
import peelreduce
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset


class PeelReduce(lightning.Callback):
    """Averages gradients by PeelReduce."""

    def __init__(self) -> None:
        self.state = peelreduce.DDPState()

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        trainer.strategy.model.register_comm_hook(self.state, peelreduce.allreduce_hook)

    def state_dict(self) -> dict[str, Any]:
        return self.state.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state.load_state_dict(state_dict)


class Ratings(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(5000, 16)
        self.score = torch.nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        rows, target = batch
        return torch.nn.functional.mse_loss(self.score(self.rows(rows)).squeeze(-1), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(callbacks: list[lightning.Callback]) -> torch.Tensor:
    """The weights after a few steps."""
    lightning.seed_everything(7, verbose=False)
    data = TensorDataset(torch.randint(5000, (256,)), torch.randn(256))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=1,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=True,
    )
    model = Ratings()
    trainer.fit(model, DataLoader(data, batch_size=32))
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def main() -> None:
    plain = train([])
    callback = PeelReduce()
    hooked = train([callback])
    assert torch.equal(plain, hooked)
    stats = callback.state.stats()
    assert stats["steps"] == 4, stats
    assert callback.state_dict()["step"] == 4
    print(f"lightning {lightning.__version__}: the same weights, {stats['bytes_sent']} bytes sent")


if __name__ == "__main__":
    main()
