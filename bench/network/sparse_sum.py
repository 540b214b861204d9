"""Sums a sparse COO gradient, with torch's own all-reduce over Gloo and with peelreduce, in turn.

    bench/network/train --hosts 4 --rate 1gbit bench/network/sparse_sum.py

The gradient is that of an embedding: some rows of a table, drawn by each worker, the k-th of them as likely as 1/k, as
words are (or all alike, with --uniform). Values are small integers, so that sums are exact in any order; both results are
compared with the sum of what all workers drew.
"""

import argparse
import statistics
import time

import peelreduce
import torch
import torch.distributed as dist


def draw(rank: int, step: int, options: argparse.Namespace) -> torch.Tensor:
    """What this worker adds in this step."""
    source = torch.Generator().manual_seed(1000 * step + rank)
    if options.uniform:
        drawn = torch.randint(options.rows, (options.touched,), generator=source)
    else:
        drawn = torch.pow(float(options.rows), torch.rand(options.touched, generator=source)).long() - 1
    rows = drawn.clamp_max(options.rows - 1).unique()
    values = torch.randint(1, 100, (rows.numel(), options.width), generator=source).float()
    shape = (options.rows, options.width)
    return torch.sparse_coo_tensor(rows[None], values, shape, is_coalesced=True, check_invariants=False)


def expected(step: int, options: argparse.Namespace) -> torch.Tensor:
    total = draw(0, step, options)
    for rank in range(1, dist.get_world_size()):
        total = total + draw(rank, step, options)
    return total.coalesce()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=162_541, help="of the table")
    parser.add_argument("--width", type=int, default=64, help="of a row")
    parser.add_argument("--touched", type=int, default=1024, help="rows that a worker draws, with repetition")
    parser.add_argument("--uniform", action="store_true", help="draw all rows alike")
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = peelreduce.State()
    sums = {
        "torch": lambda tensor: dist.all_reduce(tensor),
        "peelreduce": lambda tensor: peelreduce.all_reduce(tensor, state=state),
    }
    times: dict[str, list[float]] = {name: [] for name in sums}
    wrong = 0
    for step in range(options.repeat):
        known = expected(step, options)
        for name, perform in sums.items():
            tensor = draw(rank, step, options)
            dist.barrier()
            begin = time.perf_counter()
            perform(tensor)
            times[name].append(time.perf_counter() - begin)
            got = tensor.coalesce()
            same = torch.equal(got.indices(), known.indices()) and torch.equal(got.values(), known.values())
            wrong += not same
    if rank == 0:
        median = {name: statistics.median(all_times[3:] or all_times) for name, all_times in times.items()}
        for name, seconds in median.items():
            print(f"{name}: {seconds * 1e3:.1f} ms, wrong {wrong}")
        report = state.report()
        own = draw(rank, 0, options)._nnz()
        print(f"{own} rows of one worker, {report['items']} of all; by {report['strategy']}, {report['bytes_sent']} bytes sent")
        print(f"peelreduce is {median['torch'] / median['peelreduce']:.2f} times as fast")
    dist.destroy_process_group()
    if wrong:
        raise SystemExit("sparse_sum.py: a sum was wrong; please report it.")


if __name__ == "__main__":
    main()
