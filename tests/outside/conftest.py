"""What several tests use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def switch() -> Iterator[str]:
    """The address of a running `peel switch`, whose secret is "a secret that nobody guesses"."""
    process = subprocess.Popen(
        [os.environ.get("PEEL", "peel"), "switch", "--listen", "127.0.0.1:0", "--slots", "8192"],
        env={**os.environ, "PEEL_SWITCH_SECRET": "a secret that nobody guesses"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[2].rstrip(",")
    finally:
        process.kill()
        process.communicate()
