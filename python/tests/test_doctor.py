"""python -m peelreduce.doctor, from outside."""

import subprocess
import sys


def test_it_says_what_there_is_and_checks_it() -> None:
    done = subprocess.run([sys.executable, "-m", "peelreduce.doctor"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "2 processes agree on a sum" in done.stdout
    for name in ("peelreduce", "torch", "codecs", "cuda", "nccl", "gloo"):
        assert any(line.startswith(name) for line in done.stdout.splitlines())
