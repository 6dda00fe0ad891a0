"""Training without torch, for tests of what starts it."""

from pathlib import Path

TRAIN = Path(__file__).with_name("train.py")
