"""`python -m sluice` runs the command `sluice`."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main(prog_name="sluice")
