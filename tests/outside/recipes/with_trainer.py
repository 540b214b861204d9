"""PeelReduce in the Trainer of transformers: torchrun --nproc-per-node 2 with_trainer.py

The Trainer wraps the model when training begins; a callback registers the hook then. Trains twice, without the hook and
with it: with two workers the weights are the same.
"""

import tempfile
from typing import Any

import peelreduce
import torch
import transformers
from torch.utils.data import Dataset


class PeelReduce(transformers.TrainerCallback):
    """Averages gradients by PeelReduce. Add it when the trainer is made, and give it the trainer."""

    def __init__(self, trainer: transformers.Trainer) -> None:
        self.trainer = trainer
        self.state = peelreduce.DDPState()

    def on_train_begin(self, *arguments: Any, **others: Any) -> None:
        self.trainer.model_wrapped.register_comm_hook(self.state, peelreduce.allreduce_hook)


class Ratings(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(5000, 16)
        self.score = torch.nn.Linear(16, 1)

    def forward(self, rows: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.score(self.rows(rows)).squeeze(-1)
        return {"loss": torch.nn.functional.mse_loss(scores, labels), "logits": scores}


class Rows(Dataset):
    def __init__(self) -> None:
        self._rows, self._labels = torch.randint(5000, (256,)), torch.randn(256)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"rows": self._rows[index], "labels": self._labels[index]}


def train(folder: str, *, hook: bool) -> tuple[torch.Tensor, peelreduce.DDPState | None]:
    """The weights after a few steps."""
    transformers.set_seed(7)
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        max_steps=4,
        per_device_train_batch_size=32,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    model = Ratings()
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Rows())
    callback = PeelReduce(trainer)
    if hook:
        trainer.add_callback(callback)
    trainer.train()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return weights, callback.state if hook else None


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, _ = train(folder, hook=False)
        hooked, state = train(folder, hook=True)
    assert torch.equal(plain, hooked)
    stats = state.stats()
    assert stats["steps"] == 4, stats
    print(f"transformers {transformers.__version__}: the same weights, {stats['bytes_sent']} bytes sent")


if __name__ == "__main__":
    main()
