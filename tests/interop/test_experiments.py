"""The experiments (tests/*/run.py) where something that they need is missing."""

import glob
import os
import subprocess
import sys

import experiment
import pytest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: packetdrill's runner needs the programs that its options name, and says so itself.
EXPERIMENTS = sorted(set(glob.glob(f"{TESTS}/*/run.py")) - {f"{TESTS}/packetdrill/run.py"})


@pytest.mark.parametrize("script", EXPERIMENTS, ids=lambda path: os.path.basename(os.path.dirname(path)))
def test_an_experiment_that_cannot_run_says_so(script, tmp_path):
    command = [sys.executable, script, "--bin", tmp_path / "firstflight"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # 0 would mean that it was tried, and everything held.
    assert ended.returncode == experiment.MISSING, ended.stderr
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert "cargo build" in line or "as root" in line, line
