"""Publish finished grading runs of shipped pipelines into results/.

python scripts/record_baseline.py RUN_DIRECTORY…
"""

from __future__ import annotations

import argparse
from pathlib import Path

from transitbench.published import record_run

RESULTS = Path(__file__).resolve().parent.parent / "results"


def main() -> None:
    """Record each run that is named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "runs", nargs="+", type=Path, help="directories of `transitbench grade` runs"
    )
    for run in parser.parse_args().runs:
        entry = record_run(RESULTS, run)
        print(f"{entry['row']} on {entry['set']}: S = {entry['S']:.3f}")


if __name__ == "__main__":
    main()
