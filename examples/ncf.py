"""A recommender (NeuMF: two embeddings of users and items each, and a small network), trained by several workers.

    torchrun --nproc-per-node 4 examples/ncf.py                 # small: 3.0 million parameters
    torchrun --nproc-per-node 4 examples/ncf.py --full          # 28.9 million, as for MovieLens-25M (the paper: 29.7)
    torchrun --nproc-per-node 4 examples/ncf.py --reduce ddp    # without peelreduce

Ratings are drawn, since the data set cannot be part of a package: popularity of items follows Zipf's law, users are
uniform, and some items are liked more than others. A step touches a thousand rows of each embedding; the gradient of all
others is zero.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel
from training import Workload, draw_zipf, make_parser, register_hook, train, zipf_table


class NeuMF(torch.nn.Module):
    def __init__(self, users: int, items: int, width: int, layers: list[int]) -> None:
        super().__init__()
        self.user_factors = torch.nn.Embedding(users, width)
        self.item_factors = torch.nn.Embedding(items, width)
        self.user_inputs = torch.nn.Embedding(users, width)
        self.item_inputs = torch.nn.Embedding(items, width)
        sizes = [2 * width, *layers]
        pairs = [(torch.nn.Linear(a, b), torch.nn.ReLU()) for a, b in zip(sizes, sizes[1:], strict=False)]
        self.network = torch.nn.Sequential(*(layer for pair in pairs for layer in pair))
        self.output = torch.nn.Linear(width + sizes[-1], 1)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        product = self.user_factors(users) * self.item_factors(items)
        deep = self.network(torch.cat([self.user_inputs(users), self.item_inputs(items)], dim=1))
        return self.output(torch.cat([product, deep], dim=1)).squeeze(1)


def make_workload(*, full: bool, batch: int | None = None) -> Workload:
    users, items = (162_541, 62_423) if full else (16_254, 6_242)
    batch = batch or 1024
    popularity = zipf_table(items)
    quality = torch.sigmoid(2 * torch.randn(items, generator=torch.Generator().manual_seed(0)))

    def draw_batch(step: int, rank: int) -> tuple[torch.Tensor, ...]:
        draw = torch.Generator().manual_seed(step * 1000 + rank)
        chosen = torch.randint(users, (batch,), generator=draw)
        rated = draw_zipf(popularity, (batch,), draw)
        return chosen, rated, (torch.rand(batch, generator=draw) < quality[rated]).float()

    def loss_of(
        model: torch.nn.Module, chosen: torch.Tensor, rated: torch.Tensor, liked: torch.Tensor
    ) -> torch.Tensor:
        return binary_cross_entropy_with_logits(model(chosen, rated), liked)

    model = NeuMF(users, items, 64, [256, 128, 64])
    return Workload(model, lambda parameters: torch.optim.SGD(parameters, lr=0.5), draw_batch, loss_of)


def main() -> None:
    options = make_parser(__doc__, "162,541 users and 62,423 items instead of a tenth", "1024").parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    work = make_workload(full=options.full, batch=options.batch)
    model = DistributedDataParallel(work.model, gradient_as_bucket_view=True)
    state = register_hook(options, model)
    train(options, work, model, state)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
