"""``grade``, ``check``, ``score`` and ``compare``."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from transitbench.catalogue import SETS, open_set
from transitbench.cli.progress import progress_bar
from transitbench.cli.tables import score_summary, score_table
from transitbench.errors import TransitBenchError
from transitbench.sets import StarSet

SetOption = Annotated[str, typer.Option("--set", help="Name of a set, or a set directory.")]
LimitOption = Annotated[
    int | None, typer.Option(min=1, help="Only the first N stars (star ids are in random order).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

_UNSAFE_WARNING = (
    "[bold yellow]warning:[/] --unsafe-no-sandbox runs the submission with your own rights: it can read "
    "your files, the network and the answers. Use it for your own code only; the result is marked."
)


def open_set_with_progress(name_or_path: str, limit: int | None = None) -> StarSet:
    """Open a set, with a bar if a simulated one has to be made first."""
    info = SETS.get(name_or_path)
    if info is None or info.n_stars is None or info.built or not info.made_on_first_use:
        return open_set(name_or_path, limit)
    with progress_bar(f"making {info.name}", info.n_stars) as advance:
        return open_set(name_or_path, limit, on_star=advance)


def grade_command(
    submission: Annotated[
        str,
        typer.Argument(
            help="Directory with solution.py, or empty, starter, naive_v0, reference_detector."
        ),
    ],
    set_name: SetOption = "sim-dev",
    limit: LimitOption = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Stars at once, one core each (default: every core).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory of the run (default: a new one in TRANSITBENCH_DATA/runs)."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Finish the run in --out.")] = False,
    mini: Annotated[
        bool, typer.Option("--mini", help="Limits of mini tasks: 20 s a star.")
    ] = False,
    unsafe_no_sandbox: Annotated[
        bool, typer.Option("--unsafe-no-sandbox", help="Your own code only: no isolation.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a submission on every star of a set, each in a fresh cage, and score it.

    Example: [bold]transitbench grade workspace/solution --set sim-dev --limit 24[/]
    """
    from transitbench.cage import MINI_LIMITS, SURVEY_LIMITS
    from transitbench.grading import grade
    from transitbench.home import runs_dir
    from transitbench.pipelines import open_submission
    from transitbench.runner import leave_on_sigterm

    leave_on_sigterm()
    console = Console(stderr=True)
    if resume and out is None:
        raise TransitBenchError(
            "TB-E016", "--resume needs the run's directory", "add --out DIR of the run to finish"
        )
    if unsafe_no_sandbox:
        console.print(_UNSAFE_WARNING)
    cores = grading_cores(jobs)
    star_set = open_set_with_progress(set_name, limit)
    started = time.monotonic()
    with open_submission(submission, star_set) as (name, directory):
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        run_directory = out or runs_dir() / f"{star_set.name}-{name}-{stamp}"
        with progress_bar(f"grading {name} on {star_set.name}", len(star_set.stars)) as advance:
            run = grade(
                name,
                directory,
                star_set,
                run_directory,
                limits=MINI_LIMITS if mini else SURVEY_LIMITS,
                cores=cores,
                sandbox=not unsafe_no_sandbox,
                resume=resume,
                on_result=lambda result: advance("" if result.status == "ok" else result.status),
            )
    document = json.loads((run.directory / "score.json").read_text(encoding="utf-8"))
    if as_json:
        print(json.dumps({**document, "run": str(run.directory)}))
        return
    title = f"{name} on {star_set.name}" + (" (no sandbox)" if unsafe_no_sandbox else "")
    print_score(document, title)
    walls = [result.wall_s for result in run.results]
    Console().print(
        f"{np.median(walls):.2f} s a star (median), slowest {max(walls):.2f} s; "
        f"{time.monotonic() - started:.0f} s in all on {len(cores)} cores; "
        f"kept in {run.directory}",
        soft_wrap=True,
        highlight=False,
    )


def grading_cores(jobs: int | None) -> list[int]:
    """Return the cores to pin stars to. Raises TB-E016 if more are asked for than there are."""
    from transitbench.runner import usable_cores

    cores = usable_cores()
    if jobs is not None and jobs > len(cores):
        raise TransitBenchError(
            "TB-E016",
            f"--jobs {jobs} asked for, {len(cores)} cores usable",
            f"use --jobs {len(cores)} or less: every star gets a core of its own",
        )
    return cores[:jobs]


def print_score(document: dict[str, Any], title: str) -> None:
    """Print a score as a table with its counts."""
    console = Console()
    console.print(score_table(document, title))
    console.print(score_summary(document), highlight=False)


def check_command(
    submission: Annotated[Path, typer.Argument(help="Directory with solution.py.")],
    unsafe_no_sandbox: Annotated[
        bool, typer.Option("--unsafe-no-sandbox", help="Your own code only: no isolation.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell in seconds whether a directory meets the contract of a submission.

    Runs it on three built-in stars: a clear planet, a deep eclipse, pure noise.

    Example: [bold]transitbench check workspace/solution[/]
    """
    from transitbench.check import check_submission

    if unsafe_no_sandbox:
        Console(stderr=True).print(_UNSAFE_WARNING)
    findings = check_submission(
        submission, cores=grading_cores(None), sandbox=not unsafe_no_sandbox
    )
    failed = any(finding.level == "fail" for finding in findings)
    if as_json:
        records = [{"level": f.level, "rule": f.rule, "text": f.text} for f in findings]
        print(json.dumps({"ok": not failed, "findings": records}))
    else:
        console = Console()
        style = {"pass": "green", "note": "yellow", "fail": "bold red"}
        for finding in findings:
            mark = f"[{style[finding.level]}]{finding.level}[/]"
            console.print(f"{mark}  {finding.rule}: ", end="", highlight=False)
            console.print(finding.text, markup=False, highlight=False, soft_wrap=True)
        console.print(
            "[bold red]does not meet the contract[/]" if failed else "[green]meets the contract[/]"
        )
    raise typer.Exit(1 if failed else 0)


def score_command(
    rows: Annotated[Path, typer.Argument(help="CSV: star,period_days,t0_days,score.")],
    set_name: SetOption = "sim-dev",
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score candidate rows from a CSV file against a set's truth.

    Example: [bold]transitbench score rows.csv --set sim-dev --json[/]
    """
    from transitbench.rows import read_rows_csv
    from transitbench.score import score_rows

    candidates = read_rows_csv(rows)
    star_set = open_set_with_progress(set_name, limit)
    score = score_rows(star_set.truth, star_set.finite_times(), candidates, set_name=star_set.name)
    document = score.to_json()
    if as_json:
        print(json.dumps({**document, "set_digest": star_set.manifest.digest}))
    else:
        print_score(document, f"{rows.name} on {star_set.name}")


def compare_command(
    first: Annotated[Path, typer.Argument(help="Run directory (--out of grade).")],
    second: Annotated[Path, typer.Argument(help="Another run on the same stars.")],
    as_json: JsonOption = False,
) -> None:
    """Compare two runs on the same stars: ΔS = S(first) − S(second), by the paired bootstrap.

    Example: [bold]transitbench compare runs/mine runs/starter[/]
    """
    from transitbench.comparing import compare_runs

    comparison = compare_runs(first, second)
    if as_json:
        print(json.dumps(comparison))
        return
    low, high = comparison["delta_S_ci95"]
    console = Console(highlight=False)
    console.print(f"S  {comparison['first']}: {comparison['S_first']:.3f}")
    console.print(f"S  {comparison['second']}: {comparison['S_second']:.3f}")
    console.print(
        f"[bold]ΔS = {comparison['delta_S']:+.3f}[/]  95 % interval {low:+.3f} … {high:+.3f} "
        f"(paired bootstrap over {comparison['n_stars']} stars of {comparison['set']})"
    )
    console.print(f"share of resamples with ΔS ≤ 0: {comparison['share_not_above_0']:.4f}")
