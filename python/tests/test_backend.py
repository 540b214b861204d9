"""Programs that know nothing of this library, with the backend "peel" against the backend "gloo"."""

import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import peelreduce
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from peelreduce import _transport
from peelreduce._link import LinkFacts
from peelreduce._tasks import Outcome
from peelreduce._trials import Trials
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _abort_process_group, _coalescing_manager, _set_pg_timeout
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from workers import run_script, run_until_told, run_workers, tell_error

_LONG = 1 << 18  # elements of a tensor that is not handed on


def run_both(size: int, function: Callable[..., Any], *arguments: Any) -> tuple[list[Any], list[Any]]:
    """What each worker returns with Gloo, and with this backend."""
    plain = run_workers(size, function, *arguments)
    return plain, run_workers(size, function, *arguments, backend="peel")


def _stats(group: dist.ProcessGroup | None = None) -> dict:
    """Of a group that sums with this library; others have none."""
    return getattr(group or dist.group.WORLD, "stats", dict)()


def _sparse(rank: int, length: int = _LONG, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Whole numbers, mostly 0, so that every order gives the same sum."""
    draw = torch.Generator().manual_seed(rank)
    values = torch.randint(-8, 8, (length,), generator=draw).to(dtype)
    return values * (torch.rand(length, generator=draw) < 0.01)


# ---- how torch finds it

_ALONE = """
import sys
import torch
assert "peelreduce" not in sys.modules
torch.distributed.init_process_group("peel", init_method="file://" + sys.argv[1], rank=0, world_size=1)
tensor = torch.ones(1 << 20)
torch.distributed.all_reduce(tensor)
print(torch.distributed.get_backend(), float(tensor.sum()))
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_torch_finds_it_without_an_import(tmp_path: pathlib.Path, autoload: str) -> None:
    """Versions that know the entry points of backends do so even if none are loaded with torch."""
    if autoload == "0" and not hasattr(dist.Backend, "_ensure_backend_registered"):
        pytest.skip("this torch knows the entry points that are loaded with it alone")
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", _ALONE, str(tmp_path / "store")]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert printed.stdout.endswith(f"peel {float(1 << 20)}\n"), printed.stderr  # Gloo may print before


# ---- training


class Recommender(torch.nn.Module):
    """Embeddings whose gradient is mostly zero, and layers whose is not."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(20_000, 16, sparse=sparse)
        self.items = torch.nn.Embedding(24_000, 16)
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 600), torch.nn.ReLU(), torch.nn.Linear(600, 600))
        self.unused = torch.nn.Linear(5, 5)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat([self.users(users), self.items(items)], dim=1)).mean(1)


def _have_a_slow_link() -> None:
    """What is chosen in this worker no longer depends on how busy the machine is."""
    _transport.measure_link = lambda group: LinkFacts(latency_s=1e-4, bytes_per_second=1e8, copy_bytes_per_second=1e10)


def _train(rank: int, size: int, sparse: bool, kwargs: dict) -> tuple[torch.Tensor, dict]:
    _have_a_slow_link()
    torch.manual_seed(7)
    model = DistributedDataParallel(Recommender(sparse), bucket_cap_mb=1, **kwargs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        draw = torch.Generator().manual_seed(1000 * step + rank)
        users, items = (torch.randint(length, (32,), generator=draw) for length in (20_000, 24_000))
        optimizer.zero_grad()
        model(users, items).pow(2).mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.module.parameters()]), _stats()


@pytest.mark.parametrize(
    "kwargs", [{"find_unused_parameters": True}, {"static_graph": True, "gradient_as_bucket_view": True}]
)
def test_ddp_gives_the_bits_of_gloo(kwargs: dict) -> None:
    plain, ours = run_both(2, _train, False, kwargs)
    for (expected, nothing), (got, stats) in zip(plain, ours, strict=True):
        assert torch.equal(expected, got)
        assert not nothing
        totals = [one["totals"] for one in stats.values()]
        assert sum(one["bytes_sent"] for one in totals) < 0.8 * sum(one["dense_bytes"] for one in totals)


@pytest.mark.slow
def test_ddp_of_sparse_gradients() -> None:
    plain, ours = run_both(2, _train, True, {"find_unused_parameters": True})
    for (expected, _), (got, stats) in zip(plain, ours, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)
        assert any("sparse" in kind for kind in stats)


@pytest.mark.slow
def test_three_workers_of_ddp_have_the_same_weights() -> None:
    plain, ours = run_both(3, _train, False, {"find_unused_parameters": True})
    for got, _ in ours:
        assert torch.equal(got, ours[0][0])
        torch.testing.assert_close(got, plain[0][0], rtol=1e-6, atol=1e-7)


def _train_shards(rank: int, size: int, shape: tuple[int, ...]) -> tuple[torch.Tensor, dict]:
    _have_a_slow_link()
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(80_000, 8), torch.nn.Flatten(), torch.nn.Linear(32, 10))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    for module in (model[0], model):
        fully_shard(module, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        draw = torch.Generator().manual_seed(100 * step + rank)
        optimizer.zero_grad()
        model(torch.randint(80_000, (6, 4), generator=draw)).pow(2).mean().backward()
        optimizer.step()
    weights = torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])
    return weights, {dim: _stats(mesh[dim].get_group()) for dim in mesh.mesh_dim_names}


def test_fsdp_gives_the_bits_of_gloo() -> None:
    plain, ours = run_both(2, _train_shards, (2,))
    for (expected, _), (got, stats) in zip(plain, ours, strict=True):
        assert torch.equal(expected, got)
        (scattered,) = stats["shard"].values()
        assert scattered["totals"]["bytes_sent"] < scattered["totals"]["dense_bytes"]


@pytest.mark.slow
def test_hybrid_shards_are_summed_over_both_dimensions() -> None:
    plain, ours = run_both(4, _train_shards, (2, 2))
    for got, stats in ours:
        assert torch.equal(got, ours[0][0])
        torch.testing.assert_close(got, plain[0][0], rtol=1e-6, atol=1e-7)
        assert all("reduce_scatter" in kind for kind in stats["shard"]) and stats["shard"]
        assert all("all_reduce" in kind for kind in stats["replicate"]) and stats["replicate"]


_LIGHTNING = """
import os, sys
import torch
os.environ.update(TORCHELASTIC_RUN_ID="run", LOCAL_WORLD_SIZE="2", GROUP_RANK="0")  # as torchrun sets them
class Model({base}):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(40_000, 16)
        self.layer = torch.nn.Linear(16, 4)
    def forward(self, rows):
        return self.layer(self.table(rows))
    def training_step(self, batch, number):
        return self(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
torch.manual_seed(3)
rows = torch.utils.data.TensorDataset(torch.randint(40_000, (64,)))
{train}
print(torch.distributed.get_backend())
for parameter in model.parameters():
    print(parameter.detach().double().sum().item(), parameter.detach().flatten()[:5].tolist())
"""

_FABRIC = """
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
fabric = Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=sys.argv[1], bucket_cap_mb=1))
fabric.launch()
model = Model()
model, optimizer = fabric.setup(model, model.configure_optimizers())
for number, batch in enumerate(fabric.setup_dataloaders(torch.utils.data.DataLoader(rows, batch_size=8))):
    optimizer.zero_grad()
    fabric.backward(model(batch[0]).pow(2).mean())
    optimizer.step()
"""

_TRAINER = """
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
model = Model()
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
strategy = DDPStrategy(process_group_backend=sys.argv[1], bucket_cap_mb=1)
Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=1, **quiet).fit(
    model, torch.utils.data.DataLoader(rows, batch_size=8)
)
"""

_ACCELERATE = """
torch.distributed.init_process_group(sys.argv[1])
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = Model()
loader = torch.utils.data.DataLoader(rows, batch_size=8)
model, optimizer, loader = accelerator.prepare(model, model.configure_optimizers(), loader)
for batch in loader:
    optimizer.zero_grad()
    accelerator.backward(model(batch[0]).pow(2).mean())
    optimizer.step()
"""

_TRANSFORMERS = """
torch.distributed.init_process_group(sys.argv[1])
from transformers import Trainer, TrainingArguments
class Model(Model):
    def forward(self, rows):
        return {"loss": super().forward(rows).pow(2).mean()}
model = Model()
quiet = dict(report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True)
folder = os.path.dirname(__file__)
arguments = TrainingArguments(folder, use_cpu=True, per_device_train_batch_size=4, num_train_epochs=1, **quiet)
Trainer(model, arguments, train_dataset=[{"rows": one[0]} for one in rows]).train()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "base", "train"),
    [
        ("lightning", "torch.nn.Module", _FABRIC),
        ("lightning", "__import__('lightning').pytorch.LightningModule", _TRAINER),
        ("accelerate", "torch.nn.Module", _ACCELERATE),
        ("transformers", "torch.nn.Module", _TRANSFORMERS),
    ],
    ids=["fabric", "lightning", "accelerate", "transformers"],
)
def test_frameworks_need_its_name_alone(tmp_path: pathlib.Path, package: str, base: str, train: str) -> None:
    pytest.importorskip(package)
    script = tmp_path / "train.py"
    script.write_text(_LIGHTNING.format(base=base, train=train))
    plain, ours = (run_script(2, script, backend) for backend in ("gloo", "peel"))
    for expected, got in zip(plain, ours, strict=True):
        _, backend, weights = got.rpartition("peel\n")  # some print before that how long they took
        assert backend
        assert weights == expected.rpartition("gloo\n")[2] != ""


# ---- single collectives


def _perform_all(rank: int, size: int) -> dict[str, Any]:
    """Every collective of torch.distributed that Gloo has."""
    got: dict[str, Any] = {}
    for name, length in (("short", 12), ("long", _LONG)):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64):
            for op in ("SUM", "AVG", "MAX", "MIN", "PRODUCT"):
                if op == "AVG" and not dtype.is_floating_point:
                    continue
                tensor = _sparse(rank, length, dtype)
                dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
                got[f"all_reduce {name} {dtype} {op}"] = tensor
        own = _sparse(rank, length)
        got[f"scattered {name}"] = torch.empty(length // size)
        dist.reduce_scatter_tensor(got[f"scattered {name}"], own)
        assert torch.equal(own, _sparse(rank, length))  # the input is kept
        got[f"reduced {name}"] = own.clone()
        dist.reduce(got[f"reduced {name}"], dst=0)
        got[f"gathered {name}"] = torch.empty(length * size)
        dist.all_gather_into_tensor(got[f"gathered {name}"], own)
        got[f"broadcast {name}"] = own.clone()
        dist.broadcast(got[f"broadcast {name}"], src=size - 1)
        got[f"exchanged {name}"] = torch.empty(length)
        dist.all_to_all_single(got[f"exchanged {name}"], own)
        got[f"functional {name}"] = functional.all_reduce(own, "sum", dist.group.WORLD).wait()
        got[f"functional scattered {name}"] = functional.reduce_scatter_tensor(own, "avg", 0, dist.group.WORLD).wait()
        got[f"transposed {name}"] = _sparse(rank, length).view(2, -1).t()  # whose elements fill their memory
        dist.all_reduce(got[f"transposed {name}"])
        coalesced = [_sparse(rank, length), _sparse(rank + 9, 7), _sparse(rank + 5, length)]
        with _coalescing_manager():
            for tensor in coalesced:
                dist.all_reduce(tensor)
        got[f"coalesced {name}"] = coalesced
    if rank == 0:
        dist.send(torch.arange(5.0), dst=1)
    elif rank == 1:
        got["sent"] = torch.empty(5)
        dist.recv(got["sent"], src=0)
    got["objects"] = [None] * size
    dist.all_gather_object(got["objects"], {"rank": rank})
    sparse = _sparse(rank, 64 * 30).view(64, 30).to_sparse()
    dist.all_reduce(sparse)
    got["sparse"] = sparse.to_dense()
    dist.barrier()
    return got


def _flat(value: Any) -> list[Any]:
    return [one for part in value for one in _flat(part)] if isinstance(value, list) else [value]


def test_every_collective_gives_what_gloo_gives() -> None:
    plain, ours = run_both(2, _perform_all)
    for expected, got in zip(plain, ours, strict=True):
        assert expected.keys() == got.keys()
        for name in expected:
            for left, right in zip(_flat(expected[name]), _flat(got[name]), strict=True):
                same = torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right
                assert same, name


def _sum_gaps(rank: int, size: int) -> None:
    """Dense sums, of which most are handed on: what Gloo makes of memory with gaps must not be what a sum becomes."""
    for number in range(12):
        whole = torch.arange(2.0 * _LONG) + rank + number
        before = whole.clone()
        for tensor in (whole[::2], torch.ones(1).expand(_LONG)):
            with pytest.raises(ValueError, match=r"sum (tensor.contiguous\(\)|a clone of it)"):
                dist.all_reduce(tensor)
        assert torch.equal(whole, before)
        dist.all_reduce(whole)
        assert torch.equal(whole, 2 * (torch.arange(2.0 * _LONG) + number) + 1)


def test_elements_that_do_not_fill_their_memory_are_refused() -> None:
    run_workers(2, _sum_gaps, backend="peel")


class Coalescing:
    """In the place of a group of NCCL, which performs what a block of collectives asked for when the block ends."""

    def __init__(self, plain: dist.ProcessGroup) -> None:
        self._plain = plain
        self.is_open = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def _start_coalescing(self, device: torch.device) -> None:
        self.is_open = True

    def _end_coalescing(self, device: torch.device) -> None:
        self.is_open = False


def _coalesce(rank: int, size: int) -> None:
    group = dist.group.WORLD
    group._plain = Coalescing(group._plain)
    dist.all_reduce(_sparse(rank))  # which makes the lanes
    tensors = [torch.ones(_LONG), torch.ones(3), torch.ones(_LONG)]
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["worker 0 is ahead"])
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as block:
        for tensor in tensors:
            dist.all_reduce(tensor)
        assert group._plain.is_open
    assert not group._plain.is_open
    if rank == 0:
        (work,) = block.works
        assert not work.is_completed()
        store.set("worker 0 is ahead", "")
    block.wait()
    for tensor in (tensors[0], tensors[2]):
        assert torch.equal(tensor, torch.full((_LONG,), 2.0))


def test_the_end_of_a_coalesced_block_waits_for_sums_of_ours() -> None:
    run_workers(2, _coalesce, backend="peel")


def _refuse_one(rank: int, size: int) -> None:
    """A worker whose tensor was refused finds the same tensors handed on as the others do."""
    for number in range(60):
        tensor = torch.ones(_LONG)
        if number == 1:  # while they are summed
            with pytest.raises((ValueError, peelreduce.Error), match="share memory"):
                dist.all_reduce(torch.ones(1).expand(_LONG) if rank == 0 else tensor)
        else:
            dist.all_reduce(tensor)
            assert float(tensor[0]) == size
    ((_, kind),) = _stats().items()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(counts, torch.tensor([kind["handed_on"]]))
    assert len(set(map(int, counts))) == 1
    assert int(counts[0]) > 0


def test_a_refusal_keeps_workers_in_step() -> None:
    run_workers(2, _refuse_one, backend="peel")


def _choose(rank: int, size: int) -> None:
    for tensor in (_sparse(rank, 1000), _sparse(rank, _LONG, torch.int64), _sparse(rank, _LONG) > 0):
        dist.all_reduce(tensor)
    dist.all_reduce(_sparse(rank), dist.ReduceOp.MAX)
    assert _stats() == {}  # and no lanes were made for any of them
    dist.all_reduce(_sparse(rank))
    dist.all_reduce(_sparse(rank), dist.ReduceOp.AVG)
    dist.all_reduce(_sparse(rank, 2 * _LONG, torch.bfloat16))
    dist.reduce_scatter_tensor(torch.empty(_LONG // size), _sparse(rank))
    kinds = [f"{kind}: {one['totals']['steps']}" for kind, one in _stats().items()]
    assert kinds == [
        f"all_reduce of cpu float32 [{_LONG}], summed: 1",
        f"all_reduce of cpu float32 [{_LONG}], averaged: 1",
        f"all_reduce of cpu bfloat16 [{2 * _LONG}], summed: 1",
        f"reduce_scatter of cpu float32 [{_LONG}], summed: 1",
    ]


@pytest.mark.slow
def test_only_long_sums_of_floats_are_ours() -> None:
    run_workers(2, _choose, backend="peel")


def _subgroups(rank: int, size: int) -> None:
    pair = dist.new_group([0, 2])
    other = dist.new_group([0, 1], backend="gloo")
    everybody = dist.new_group(backend="peel", timeout=timedelta(seconds=20))
    tensor = torch.full((_LONG,), rank + 1.0)
    dist.all_reduce(tensor, group=pair)
    assert torch.equal(tensor, torch.full((_LONG,), 4.0 if rank != 1 else 2.0))
    if rank != 1:
        assert dist.get_backend(pair) == "peel"
        assert _stats(pair)
        dist.destroy_process_group(pair)
    dist.all_reduce(tensor, group=other)
    dist.all_reduce(tensor, group=everybody)
    assert float(tensor[-1]) == [16.0, 16.0, 16.0][rank]
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("dp",))
    peelreduce.all_reduce(tensor, group=mesh["dp"])  # over the same lanes
    assert float(tensor[0]) == 48.0


def test_subgroups_are_groups_of_their_own() -> None:
    run_workers(3, _subgroups, backend="peel")


# ---- tensors that are dense


def _pattern(pays: Callable[[int], bool | None], count: int, *, one_tells: bool = True) -> str:
    """Of tensors that are handed on (h) and summed (s)."""
    trials, found = Trials(one_tells=one_tells), ""
    for number in range(count):
        if not trials.hands_on():
            trials.learn()
            if not trials.hands_on():
                outcome = Outcome(threading.Event())
                outcome.pays = pays(number)
                outcome.done.set()
                trials.submitted(outcome)
                found += "s"
                continue
        found += "h"
    return found


@pytest.mark.slow
def test_dense_tensors_are_handed_on_between_trials() -> None:
    pauses = [32, 64, 128, 256, 512, 512]
    assert _pattern(lambda number: False, 1534, one_tells=False) == "".join(5 * "s" + pause * "h" for pause in pauses)
    again = "".join("s" + (4 + pause) * "h" for pause in pauses[1:])
    assert _pattern(lambda number: False, 37 + len(again)) == 5 * "s" + 32 * "h" + again
    assert "h" not in _pattern(lambda number: number % 2 == 1, 200)
    assert "h" not in _pattern(lambda number: None, 200)  # they fail
    assert _pattern(lambda number: number >= 300, 600) == (
        5 * "s" + 32 * "h" + "s" + 68 * "h" + "s" + 132 * "h" + "s" + 260 * "h" + "s" + 4 * "h" + 95 * "s"
    )
    sparse_again = _pattern(lambda number: number == 37, 80)  # one sum that pays makes the next trial a first one
    assert sparse_again == 5 * "s" + 32 * "h" + "s" + 4 * "h" + 5 * "s" + 32 * "h" + "s"


@pytest.mark.parametrize("turn", range(4))
def test_each_of_four_tensors_has_its_turn_in_trials(turn: int) -> None:
    """Of one kind, in every step, of which one turns sparse."""
    found = _pattern(lambda number: number > 40 and number % 4 == turn, 4000)
    assert "sssss" in found[40:]


def _dense(number: int, rank: int) -> torch.Tensor:
    return torch.randn(_LONG, generator=torch.Generator().manual_seed(100 * number + rank))


def _sum_at_random(rank: int, size: int) -> int:
    """Many at once, which end in another order and at other times on every worker."""
    draw = random.Random(rank)
    works = []
    for number in range(60):
        tensor = _dense(number, rank)
        works.append((number, tensor, dist.all_reduce(tensor, async_op=True)))
        time.sleep(draw.choice([0, 0, 0, 0.003]))
        if draw.random() < 0.1:
            for _, _, work in works:
                work.wait()
    for number, tensor, work in works:
        work.wait()
        torch.testing.assert_close(tensor, sum(_dense(number, one) for one in range(size)))
    (kind,) = _stats().values()
    return kind["handed_on"]


@pytest.mark.slow
def test_workers_hand_on_the_same_tensors() -> None:
    handed_on = run_workers(3, _sum_at_random, backend="peel")
    assert handed_on == 3 * [60 - 5 - 1]


# ---- what a work tells


def _work(rank: int, size: int) -> None:
    dist.all_reduce(_sparse(rank))  # which makes the lanes
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["worker 0 has waited"])
    tensor = torch.ones(_LONG)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        assert not work.is_completed()
        with pytest.raises(peelreduce.TimedOut, match="still under way after 0.1 s; wait for it again"):
            work.wait(timedelta(seconds=0.1))
        store.set("worker 0 has waited", "")
    assert work.wait()
    assert work.is_completed()
    assert work.result()[0] is tensor
    assert torch.equal(tensor, torch.full((_LONG,), 2.0))
    works = [dist.all_reduce(one, async_op=True) for one in (torch.ones(_LONG), torch.ones(3), torch.ones(_LONG))]
    followed = works[0].get_future().then(lambda future: future.value()[0] * 2)
    assert float(followed.wait()[0]) == 4
    assert [float(one.get_future().wait()[0][0]) for one in works] == [2, 2, 2]
    assert all(one.wait() for one in works)


def test_a_work_is_one_of_torch() -> None:
    run_workers(2, _work, backend="peel")


# ---- errors


def _come_late(rank: int, size: int) -> None:
    _set_pg_timeout(timedelta(seconds=2), dist.group.WORLD)
    begin = time.monotonic()
    if rank == 0:
        with pytest.raises(peelreduce.TimedOut, match="Worker 1 did not call within 2 s"):
            dist.all_reduce(_sparse(rank))
        assert time.monotonic() - begin < 20
    _set_pg_timeout(timedelta(seconds=60), dist.group.WORLD)
    dist.barrier()
    tensor = torch.ones(_LONG)
    dist.all_reduce(tensor)  # connects anew
    assert float(tensor[0]) == 2


@pytest.mark.slow
def test_the_time_out_is_that_of_the_group() -> None:
    run_workers(2, _come_late, backend="peel")


def _abort(rank: int, size: int) -> None:
    group = dist.new_group(backend="peel")
    dist.all_reduce(_sparse(rank), group=group)
    if rank == 0:
        work = dist.all_reduce(_sparse(rank), group=group, async_op=True)  # for which nobody else comes
        begin = time.monotonic()
        _abort_process_group(group)
        with pytest.raises(peelreduce.TransportFailed, match="The process group was aborted before this sum had ended"):
            work.wait()
        assert time.monotonic() - begin < 30  # the time-out is 60
    dist.barrier()


@pytest.mark.slow
def test_an_abort_ends_what_is_under_way() -> None:
    run_workers(2, _abort)


def _die(rank: int, size: int, folder: str) -> None:
    torch.manual_seed(7)
    model = DistributedDataParallel(Recommender(sparse=False), bucket_cap_mb=1, find_unused_parameters=True)
    for step in range(9):
        if rank == 2 and step == 3:
            os._exit(1)
        draw = torch.Generator().manual_seed(1000 * step + rank)
        loss = model(*(torch.randint(20_000, (32,), generator=draw) for _ in range(2))).pow(2).mean()
        begin = time.monotonic()
        try:
            loss.backward()
        except RuntimeError as error:
            tell_error(rank, folder, time.monotonic() - begin, error)


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error_of_the_others(tmp_path: pathlib.Path) -> None:
    for seconds, error in run_until_told(_die, str(tmp_path), backend="peel"):
        assert seconds < 30
        assert error


def _begin_again(rank: int, size: int, folder: str) -> None:
    for turn in range(2):
        tensor = torch.ones(_LONG)
        dist.all_reduce(tensor)
        assert float(tensor[0]) == size
        group = dist.group.WORLD
        dist.barrier()
        dist.destroy_process_group()
        with pytest.raises((peelreduce.Misuse, ValueError)):
            group.allreduce([tensor])
        dist.init_process_group("peel", init_method=f"file://{folder}/store{turn}", rank=rank, world_size=size)


@pytest.mark.slow
def test_a_destroyed_group_makes_room_for_another(tmp_path: pathlib.Path) -> None:
    run_workers(2, _begin_again, str(tmp_path), backend="peel")


def _sum_in_callbacks(rank: int, size: int) -> None:
    dist.all_reduce(_sparse(rank))
    dist.barrier()
    if rank == 1:
        dist.barrier()  # the callback of worker 0 is there before the sum is
    work = dist.all_reduce(_sparse(rank), async_op=True)
    if rank == 0:
        future = work.get_future().then(lambda _: dist.all_reduce(_sparse(rank)))
        dist.barrier()
        with pytest.raises(RuntimeError, match="submit it from the thread that trains"):
            future.wait()
    work.wait()
    dist.barrier()


@pytest.mark.slow
def test_a_sum_in_a_callback_is_refused_at_once() -> None:
    run_workers(2, _sum_in_callbacks, backend="peel")


def _misuse(rank: int, size: int) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(TypeError, match="leave pg_options out"):
            dist.new_group(backend="peel", pg_options=object())
    with pytest.raises(ValueError, match="sum a clone of it"):
        dist.all_reduce(torch.ones(1).expand(_LONG))


def test_misuse_gets_a_sentence() -> None:
    run_workers(2, _misuse, backend="peel")
