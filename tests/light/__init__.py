"""Training without torch, for tests of what starts it."""

from pathlib import Path

TRAIN = Path(__file__).with_name("train.py")
# As a venv, with a torchrun that needs no torch: for tests of what starts it, and not of what it does.
VENV = Path(__file__).parent
BIN = VENV / "bin"
