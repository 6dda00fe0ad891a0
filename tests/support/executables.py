"""Programs that a test makes."""

from pathlib import Path


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    """Write a program that everybody may run, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.chmod(0o755)  # only root may write a file that is read-only
    path.write_text(text)
    path.chmod(0o755)
    return path
