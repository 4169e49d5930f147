"""No search: prints what ``answers.json`` holds for this very file.

The grader writes ``answers.json`` beside a copy of this file: per sha256 of a star file its planets,
with ``[period_days, t0_days, score]`` each. With a threshold at MES 7.1 this is what a perfect search at
Kepler's detection limit would score; without one it is the gold solution, which must score exactly 1.
"""

import hashlib
import json
import sys
from pathlib import Path


def main() -> None:
    answers = Path(__file__).parent / "answers.json"
    if not answers.is_file():
        sys.exit(
            "answers.json is missing: run this pipeline by its name, "
            "`transitbench grade reference_detector --set SET`, so that the grader writes it"
        )
    digest = hashlib.sha256(Path(sys.argv[1]).read_bytes()).hexdigest()
    for period_days, t0_days, score in json.loads(answers.read_text())[digest]:
        print(f"{period_days!r},{t0_days!r},{score!r}")


main()
