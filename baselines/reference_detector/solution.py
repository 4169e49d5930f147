"""An ideal detector: claims every planet above Kepler's threshold, MES ≥ 7.1, at its true ephemeris.

Usage: ``python solution.py STAR.npz`` prints ``period_days,t0_days,score``.

It is the score that detection at Kepler's threshold without a single false alarm would reach. It reads
the answers from ``answers.json`` beside it, ``{sha256 of the star file: [[period_days, t0_days,
score], …]}``, which whoever grades it on a set writes into a copy of this directory from the set's
truth; stars without such a planet have no entry or an empty one.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

ANSWERS = Path(__file__).with_name("answers.json")


def main(star_file: str) -> None:
    try:
        answers = json.loads(ANSWERS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        sys.exit(
            f"reference_detector: {ANSWERS.name} is missing beside solution.py. It holds the answers of "
            "the set that is graded and is never committed: see baselines/README.md."
        )
    star = hashlib.sha256(Path(star_file).read_bytes()).hexdigest()
    for period_days, t0_days, score in answers.get(star, ()):
        print(f"{period_days!r},{t0_days!r},{score!r}")


if __name__ == "__main__":
    main(sys.argv[1])
