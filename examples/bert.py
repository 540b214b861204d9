"""An encoder that answers questions (BERT: where in a text does the answer start and end?), trained by several workers.

    torchrun --nproc-per-node 4 examples/bert.py                # small: 0.7 million parameters
    torchrun --nproc-per-node 4 examples/bert.py --full         # BERT-base: 108.9 million (the paper: 109)
    torchrun --nproc-per-node 4 examples/bert.py --reduce ddp   # without peelreduce

Texts are drawn: word pieces follow Zipf's law, and the answer is where the pieces of the question come again. These
are drawn evenly, so that rare pieces are a first hint where to look. The gradient of word pieces that a step has not
seen is zero, that of all layers is not: an example between embeddings and networks without any.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from training import Workload, draw_zipf, make_parser, register_hook, train, zipf_table

START, SEPARATOR, SPECIAL = 0, 1, 2  # word pieces from SPECIAL on are words
QUESTION = 6  # word pieces of a question


class QuestionAnswering(torch.nn.Module):
    def __init__(self, pieces: int, positions: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.pieces = torch.nn.Embedding(pieces, width)
        self.positions = torch.nn.Embedding(positions, width)
        self.segments = torch.nn.Embedding(2, width)  # question or text
        for embedding in (self.pieces, self.positions, self.segments):
            torch.nn.init.normal_(embedding.weight, std=0.02)
        self.norm = torch.nn.LayerNorm(width)
        self.dropout = torch.nn.Dropout(0.1)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True)
            for _ in range(layers)
        )
        self.span = torch.nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """For each place, how likely the answer starts and ends there."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        known = self.pieces(tokens) + self.positions(places) + self.segments((places > QUESTION + 1).long())
        known = self.dropout(self.norm(known))
        for layer in self.layers:
            known = layer(known)
        return self.span(known)


def make_workload(*, full: bool, batch: int | None = None) -> Workload:
    pieces, length = (30_522, 384) if full else (2000, 64)
    batch = batch or (8 if full else 32)
    frequency = zipf_table(pieces - SPECIAL)

    def draw_batch(step: int, rank: int) -> tuple[torch.Tensor, ...]:
        draw = torch.Generator().manual_seed(step * 1000 + rank)
        tokens = draw_zipf(frequency, (batch, length), draw) + SPECIAL
        tokens[:, 1 : QUESTION + 1] = torch.randint(SPECIAL, pieces, (batch, QUESTION), generator=draw)
        tokens[:, 0] = START
        tokens[:, [QUESTION + 1, -1]] = SEPARATOR
        begin = torch.randint(QUESTION + 2, length - QUESTION - 1, (batch, 1), generator=draw)
        tokens.scatter_(1, begin + torch.arange(QUESTION), tokens[:, 1 : QUESTION + 1])
        return tokens, torch.cat([begin, begin + QUESTION - 1], dim=1)

    def loss_of(model: torch.nn.Module, tokens: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(tokens), answers)  # over places, for start and end

    def make_optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=5e-5 if full else 1e-3)

    model = QuestionAnswering(pieces, 512, 768, 12, 12) if full else QuestionAnswering(pieces, 512, 128, 2, 4)
    return Workload(model, make_optimizer, draw_batch, loss_of)


def main() -> None:
    full = "BERT-base with 30,522 word pieces and texts of 384, instead of 2 layers, 2,000 pieces and texts of 64"
    options = make_parser(__doc__, full, "8, or 32 without --full").parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    work = make_workload(full=options.full, batch=options.batch)
    model = DistributedDataParallel(work.model)
    state = register_hook(options, model)
    train(options, work, model, state)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
