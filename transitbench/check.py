"""Does a directory meet the contract of a submission? One ``check_*`` function per rule.

Each takes what running the submission on the three demo stars gave and returns findings whose text
tells the author what to change.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from transitbench.cage import SURVEY_LIMITS
from transitbench.demo_stars import DemoStar, write_demo_stars
from transitbench.errors import TransitBenchError
from transitbench.findings import Finding
from transitbench.match import match_star
from transitbench.runner import StarResult, run_stars
from transitbench.submission import submission_digest

SLOW_SHARE = 0.5
"""A star that takes more than this share of the wall limit here is at risk on another machine."""

Results = Mapping[str, StarResult]

_STATUS_HINTS = {
    "timeout": f"it ran into the limit of {SURVEY_LIMITS.wall_s:g} s a star",
    "oom": f"it used more than {SURVEY_LIMITS.memory_bytes // 2**20} MiB",
    "output_limit": f"it printed more than {SURVEY_LIMITS.stdout_bytes // 2**10} KiB",
    "crash": "it ended with an error; exit with 0 and print nothing where there is no planet",
    "killed": "it was ended by a signal",
}


def check_status(stars: Sequence[DemoStar], results: Results) -> list[Finding]:
    """Each star's process must end by itself with exit code 0: otherwise its rows do not count."""
    findings: list[Finding] = []
    for star in stars:
        result = results[star.name]
        if result.status != "ok":
            tail = result.stderr_tail.strip()
            said = f"; its standard error ends:\n{tail}" if tail else ""
            text = f"on {star.what}: status {result.status}: {_STATUS_HINTS[result.status]}{said}"
            findings.append(Finding("fail", "runs", text))
    return findings or [Finding("pass", "runs", f"exit code 0 on all {len(stars)} stars")]


def check_rows(stars: Sequence[DemoStar], results: Results) -> list[Finding]:
    """Each line must be ``period_days,t0_days,score``; at most three count."""
    findings: list[Finding] = []
    for star in stars:
        result = results[star.name]
        if result.n_bad_rows:
            text = (
                f"on {star.what}: {result.n_bad_rows} lines are not three finite numbers "
                "period_days,t0_days,score with period > 0, and were dropped; print logs to standard error"
            )
            findings.append(Finding("fail", "output", text))
        if result.n_rows > len(result.rows) and result.status == "ok":
            text = f"on {star.what}: {result.n_rows} rows printed, the 3 of highest score count"
            findings.append(Finding("note", "output", text))
    n_rows = sum(len(results[star.name].rows) for star in stars)
    return findings or [Finding("pass", "output", f"{n_rows} rows, all well-formed")]


def check_time(stars: Sequence[DemoStar], results: Results) -> list[Finding]:
    """Stay well below the wall limit: grading machines differ."""
    slowest = max(results[star.name].wall_s for star in stars)
    text = f"slowest star {slowest:.1f} s of {SURVEY_LIMITS.wall_s:g} s"
    if slowest > SLOW_SHARE * SURVEY_LIMITS.wall_s:
        return [Finding("note", "time", f"{text}: too near the limit for a slower machine")]
    return [Finding("pass", "time", text)]


def check_answers(stars: Sequence[DemoStar], results: Results) -> list[Finding]:
    """Not part of the contract, but what a search should do: planet found, noise left alone."""
    findings: list[Finding] = []
    for star in stars:
        rows = np.array(results[star.name].rows, dtype=float).reshape(-1, 3)
        match = match_star(star.light_curve.finite_time_days, star.planets, rows)
        if match.credit == len(star.planets) and match.n_false == 0:
            text = f"{star.what}: as it should be ({len(rows)} rows)"
            findings.append(Finding("pass", "answers", text))
        else:
            text = (
                f"{star.what}: credit {match.credit:g} of {len(star.planets)}, "
                f"{match.n_false} false candidates"
            )
            findings.append(Finding("note", "answers", text))
    return findings


def check_repeatable(stars: Sequence[DemoStar], first: Results, second: Results) -> list[Finding]:
    """The same star must give the same rows: seed every random number."""
    changed = [s.what for s in stars if first[s.name].rows != second[s.name].rows]
    if changed:
        text = f"a second run printed other rows on {', '.join(changed)}: seed every random number"
        return [Finding("fail", "repeatable", text)]
    return [Finding("pass", "repeatable", "a second run printed the same rows")]


_RULES: tuple[Callable[[Sequence[DemoStar], Results], list[Finding]], ...] = (
    check_status,
    check_rows,
    check_time,
    check_answers,
)


def check_submission(
    submission: Path, *, cores: Sequence[int], sandbox: bool = True
) -> list[Finding]:
    """Run a submission twice on the demo stars and check every rule.

    Raises
    ------
    TransitBenchError
        TB-E004 without a sandbox. A directory that cannot be a submission is a finding, no error.
    """
    try:
        digest = submission_digest(submission)
    except TransitBenchError as error:
        return [Finding("fail", "directory", f"{error.code} {error.what} → {error.hint}")]
    findings = [Finding("pass", "directory", f"digest {digest[:12]}")]
    with tempfile.TemporaryDirectory(prefix="transitbench-check-") as scratch:
        stars = write_demo_stars(Path(scratch))

        def run(label: str) -> Results:
            results = run_stars(
                submission,
                {star.name: star.path for star in stars},
                Path(scratch) / f"{label}.jsonl",
                limits=SURVEY_LIMITS,
                cores=cores,
                sandbox=sandbox,
            )
            return {result.star: result for result in results}

        first, second = run("first"), run("second")
    for rule in _RULES:
        findings += rule(stars, first)
    return findings + check_repeatable(stars, first, second)
