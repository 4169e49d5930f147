"""Grade the current solution on the labelled stars, exactly as grading does on the hidden ones.

    python run_dev.py [--limit N] [--jobs N] [--kind eb]

Same cage, limits, matching and score. Prints S with its interval, a breakdown by kind and the stars
that lost points; writes dev_results.csv. Stops by itself shortly before the shell's time limit.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
BOX = json.loads((HERE / "box.json").read_bytes()) if (HERE / "box.json").is_file() else {}
"""What a box says of itself: ``library`` (where the grading code is), ``limits``, ``shell_limit_s``."""
if "library" in BOX:
    sys.path.insert(0, BOX["library"])

from transitbench.cage import SURVEY_LIMITS, Limits  # noqa: E402
from transitbench.errors import TransitBenchError  # noqa: E402
from transitbench.lightcurve import LightCurve  # noqa: E402
from transitbench.runner import StarResult, run_stars, usable_cores  # noqa: E402
from transitbench.score import Score, StarOutcome, score_rows  # noqa: E402
from transitbench.truth import KINDS, StarTruth, read_truth  # noqa: E402

SHELL_LIMIT_S = 940.0
"""A command in the agent's shell is killed after this long, unless the box says otherwise."""
MARGIN_S = 10.0
MAX_LOST_SHOWN = 20


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, help="only the first N stars")
    parser.add_argument("--jobs", type=int, help="stars at once (default: every core)")
    parser.add_argument("--kind", choices=KINDS, help="only stars of one kind")
    parser.add_argument(
        "--solution",
        type=Path,
        default=HERE / "solution",
        help="default: solution/ beside this file",
    )
    parser.add_argument(
        "--stars", type=Path, default=HERE, help="folder with stars/ and truth.json (default: here)"
    )
    parser.add_argument("--out", type=Path, default=Path("dev_results.csv"))
    parser.add_argument(
        "--time-limit", type=float, help="seconds; 0 = none (default: the shell's limit)"
    )
    return parser.parse_args()


def box_limits() -> tuple[Limits, float]:
    """Limits per star and the shell's time limit: the box's, or the survey's."""
    limits = Limits.from_json(BOX["limits"]) if "limits" in BOX else SURVEY_LIMITS
    return limits, float(BOX.get("shell_limit_s", SHELL_LIMIT_S))


def show_progress(done: int, total: int, started_s: float) -> None:
    filled = 30 * done // total
    left_s = (time.monotonic() - started_s) / done * (total - done)
    bar = "#" * filled + "." * (30 - filled)
    end = "\n" if done == total else ""
    print(
        f"\r[{bar}] {done}/{total} stars, {left_s:4.0f} s left",
        end=end,
        file=sys.stderr,
        flush=True,
    )


def print_report(score: Score, outcomes: list[StarOutcome], truth: dict[str, StarTruth]) -> None:
    document = score.to_json()

    def shown(key: str, digits: int = 3) -> str:
        value, bounds = document[key], document[f"{key}_ci95"]
        if value is None:
            return "–"
        return f"{value:.{digits}f}  (95 %: {bounds[0]:.{digits}f} … {bounds[1]:.{digits}f})"

    print(f"S = {shown('S')}   credit {document['credit']:g} − {document['n_false']} false")
    print(f"  for {document['n_planets']} planets on {document['n_stars']} stars")
    print(f"planets found            {shown('C')}")
    print(f"false candidates per 100 {shown('F_per_100', 1)}")
    print("by kind:      stars  planets  credit  false  stars called planet")
    for kind in KINDS:
        of_kind = [o for o in outcomes if o.kind == kind]
        if of_kind:
            called = sum(o.n_rows > 0 for o in of_kind)
            print(
                f"  {kind:<11} {len(of_kind):>5}  {sum(o.n_planets for o in of_kind):>7}"
                f"  {sum(o.credit for o in of_kind):>6g}  {sum(o.n_false for o in of_kind):>5}  {called:>5}"
            )
    lost = sorted(
        (o for o in outcomes if o.credit - o.n_false < o.n_planets),
        key=lambda o: (o.credit - o.n_false - o.n_planets, o.star),
    )
    if lost:
        print(f"stars that lost points ({len(lost)}, worst first):")
    for o in lost[:MAX_LOST_SHOWN]:
        planets = ", ".join(
            f"P={p.period_days:.3f} d MES={p.mes:.1f}" for p in truth[o.star].planets
        )
        print(
            f"  {o.star} {o.kind:<11} credit {o.credit:g}/{o.n_planets}, {o.n_false} false"
            f", {o.status}{'  ' + planets if planets else ''}"
        )
    if len(lost) > MAX_LOST_SHOWN:
        print(f"  … and {len(lost) - MAX_LOST_SHOWN} more, all in the CSV file")


def write_csv(path: Path, outcomes: list[StarOutcome], results: dict[str, StarResult]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "star",
                "kind",
                "status",
                "n_planets",
                "credit",
                "n_false",
                "wall_s",
                "period_days",
                "t0_days",
                "score",
            ]
        )
        for o in outcomes:
            result = results[o.star]
            facts = [o.star, o.kind, result.status, o.n_planets, o.credit, o.n_false, result.wall_s]
            for row in result.rows or [["", "", ""]]:
                writer.writerow([*facts, *row])


def main() -> int:
    arguments = parse_arguments()
    limits, shell_limit_s = box_limits()
    time_limit_s = shell_limit_s if arguments.time_limit is None else arguments.time_limit
    truth = {
        star: entry
        for star, entry in read_truth(arguments.stars / "truth.json").items()
        if arguments.kind in (None, entry.kind)
    }
    stars = sorted(truth)[: arguments.limit]
    if not stars:
        print("no labelled star to run on", file=sys.stderr)
        return 2
    started_s = time.monotonic()
    stop_at_s = started_s + time_limit_s - limits.wall_s - MARGIN_S
    results: dict[str, StarResult] = {}

    def on_result(result: StarResult) -> None:
        results[result.star] = result
        show_progress(len(results), len(stars), started_s)

    with tempfile.TemporaryDirectory() as scratch:
        run_stars(
            arguments.solution,
            {star: arguments.stars / "stars" / f"{star}.npz" for star in stars},
            Path(scratch) / "grade.jsonl",
            limits=limits,
            cores=usable_cores()[: arguments.jobs],
            on_result=on_result,
            should_stop=lambda: time_limit_s > 0 and time.monotonic() > stop_at_s,
        )
    if not results:
        print("no star finished within the time limit", file=sys.stderr)
        return 2
    if len(results) < len(stars):
        print(
            f"\nstopped after {time.monotonic() - started_s:.0f} s with {len(results)} of {len(stars)} stars"
            " (use --limit, or --time-limit in a background job); what follows is of those"
        )
    done = {star: truth[star] for star in stars if star in results}
    score = score_rows(
        done,
        {
            s: LightCurve.from_npz(arguments.stars / "stars" / f"{s}.npz").finite_time_days
            for s in done
        },
        {s: np.array(results[s].rows, dtype=float).reshape(-1, 3) for s in done if results[s].rows},
        statuses={s: results[s].status for s in done},
    )
    outcomes = list(score.outcomes)
    print_report(score, outcomes, done)
    write_csv(arguments.out, outcomes, results)
    print(f"per star: {arguments.out}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TransitBenchError as error:
        print(f"{error}", file=sys.stderr)
        sys.exit(2)
