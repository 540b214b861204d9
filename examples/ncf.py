"""A recommender (NeuMF: two embeddings of users and items each, and a small network), trained by several workers.

    torchrun --nproc-per-node 4 examples/ncf.py                 # small
    torchrun --nproc-per-node 4 examples/ncf.py --full          # 29 million parameters, as for MovieLens-25M
    torchrun --nproc-per-node 4 examples/ncf.py --reduce ddp    # without peelreduce

Ratings are drawn, since the data set cannot be part of a package: popularity of items follows Zipf's law, users are
uniform. A step touches a thousand rows of each embedding; the gradient of all others is zero.
"""

import argparse
import statistics
import time

import peelreduce
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


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


def draw_batch(step: int, rank: int, users: int, popularity: torch.Tensor, batch: int) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(step * 1000 + rank)
    chosen = torch.randint(users, (batch,), generator=draw)
    items = torch.searchsorted(popularity, torch.rand(batch, generator=draw)).clamp_max(popularity.numel() - 1)
    return chosen, items, torch.rand(batch, generator=draw).round()


def send_nothing(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For comparison: what a step takes without any communication. The models drift apart."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="162,541 users and 62,423 items instead of a tenth")
    parser.add_argument("--reduce", choices=["peel", "ddp", "nothing"], default="peel")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=1024)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    users, items = (162_541, 62_423) if options.full else (16_254, 6_242)
    popularity = torch.cumsum(1 / torch.arange(1, items + 1, dtype=torch.float64), 0).float()
    popularity /= popularity[-1].clone()
    model = DistributedDataParallel(NeuMF(users, items, 64, [256, 128, 64]))
    state = peelreduce.DDPState(strategy=options.strategy)
    if options.reduce == "peel":
        model.register_comm_hook(state, peelreduce.allreduce_hook)
    elif options.reduce == "nothing":
        model.register_comm_hook(None, send_nothing)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    times = []
    for step in range(options.steps):
        chosen, rated, liked = draw_batch(step, rank, users, popularity, options.batch)
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(chosen, rated), liked)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
        if rank == 0:
            print(f"step {step}: loss {loss.item():.6f}, {times[-1] * 1e3:.0f} ms", flush=True)
    if rank == 0:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        print(f"{parameters / 1e6:.1f} million parameters, {statistics.median(times[5:] or times) * 1e3:.0f} ms a step")
        if options.reduce == "peel":
            stats = state.stats()
            print(f"sent {stats['bytes_sent'] / max(stats['dense_bytes'], 1):.2%} of what dense sums send")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
