"""The recipes of docs/recovery.md, with processes that are killed indeed."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import jobs
import pytest
import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).parent / "recovery"))
import restart  # noqa: E402
import survivors  # noqa: E402

_PROGRAMS = pathlib.Path(os.environ.get("OUTSIDE_PROGRAMS", "."))


def test_torchrun_starts_a_job_again_from_its_checkpoint(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", restart.__file__, str(tmp_path)]
    # Without the last one workers of the second attempt read in the store where those of the first one listened.
    environment = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "weights.pt")
    assert found["first"] == 3

    model = restart.make_model()
    optimizer = restart.make_optimizer(model)
    for step in range(restart.STEPS):
        optimizer.zero_grad()
        for rank in range(2):
            (restart.loss_of(model, step, rank) / 2).backward()
        optimizer.step()
    for name, weights in model.state_dict().items():
        torch.testing.assert_close(found["model"][name], weights)


def _survive(worker: jobs.Worker, lost: int) -> object:
    store = dist.TCPStore("127.0.0.1", worker.port, is_master=False)
    return survivors.train(store, worker.rank, worker.size, lost)


def _weights_of_survivors(size: int, lost: int) -> torch.Tensor:
    """What the survivors should have: three steps of all, and the others without the one that was lost."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Embedding(3000, 16), torch.nn.Linear(16, 1))
    for step in range(survivors.STEPS):
        names = [name for name in range(size) if name != lost or step < 3]
        model.zero_grad()
        for name in names:
            draw = torch.Generator().manual_seed(100 * step + name)
            (model(torch.randint(3000, (32,), generator=draw)).square().mean() / len(names)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    return survivors.flat(model)


def test_survivors_form_a_smaller_group() -> None:
    with jobs.started(3, _survive, 1) as job:
        for rank in range(3):
            assert job.wait_ended(rank), f"worker {rank} hangs: {job.fates}"
        for rank in (0, 2):
            returned = job.fates[rank].find("returned")
            assert returned is not None, job.fates[rank]
            assert returned[1]["names"] == [0, 2]
            assert len(returned[1]["errors"]) == 1
            torch.testing.assert_close(torch.tensor(returned[1]["weights"]), _weights_of_survivors(3, 1))


def test_survivors_of_mpi_make_a_new_communicator(tmp_path: pathlib.Path) -> None:
    mpirun = shutil.which("mpirun")
    if not (_PROGRAMS / "mpi_recovery").exists() or mpirun is None:
        pytest.skip("there is no transport over MPI, or no mpirun")
    if "Open MPI" not in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("mpirun is not Open MPI's")
    command = [mpirun, "--enable-recovery", "--oversubscribe", "-np", "4"]
    command += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [*command, _PROGRAMS / "mpi_recovery", tmp_path], env=environment, capture_output=True, text=True, timeout=120
    )
    told = {path.name: path.read_text().strip() for path in tmp_path.glob("done.*")}
    # Two steps of four workers and three of those who are left.
    assert told == {"done.0": "17", "done.1": "17", "done.3": "17"}, done.stderr
