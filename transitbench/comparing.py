"""Two runs on the same stars, compared by the paired bootstrap of ΔS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transitbench.errors import TransitBenchError
from transitbench.fingerprint import sha256_hex
from transitbench.grading import read_run_facts
from transitbench.rows import read_rows_csv
from transitbench.score import compare_scores, score_rows
from transitbench.sets import StarSet


def compare_runs(first: Path, second: Path) -> dict[str, Any]:
    """Return ΔS = S(first) − S(second) of two run directories, with its 95 % interval.

    Raises
    ------
    TransitBenchError
        TB-E012 if a directory holds no finished run, TB-E016 if the runs are not on the same stars,
        TB-E005 if the set that they ran on has changed since.
    """
    facts = [read_run_facts(run) for run in (first, second)]
    for key in ("set_digest", "n_stars"):
        if facts[0][key] != facts[1][key]:
            raise TransitBenchError(
                "TB-E016",
                f"runs differ in {key}: {facts[0][key]} and {facts[1][key]}",
                "compare runs of one set with the same --limit",
            )
    for run in (first, second):
        if not (run / "rows.csv").is_file():
            raise TransitBenchError(
                "TB-E012", f"{run} is not finished", "finish it with `transitbench grade --resume`"
            )
    if facts[0]["set_path"] is None:
        raise TransitBenchError(
            "TB-E016",
            f"the stars of {facts[0]['set']} lie in no set directory",
            "compare runs on sets; the score.json of a mini task has its numbers",
        )
    star_set = StarSet(Path(facts[0]["set_path"]), facts[0]["n_stars"])
    if star_set.manifest.digest != facts[0]["set_digest"]:
        raise TransitBenchError(
            "TB-E005",
            f"{star_set.path} has digest {star_set.manifest.digest}, the runs used {facts[0]['set_digest']}",
            "build the set again with the version that made the runs, or grade both again",
        )
    times = star_set.finite_times()
    scores = [
        score_rows(star_set.truth, times, read_rows_csv(run / "rows.csv"), set_name=star_set.name)
        for run in (first, second)
    ]
    return {
        "set": star_set.name,
        "n_stars": len(star_set.stars),
        "first": facts[0]["submission"],
        "second": facts[1]["submission"],
        "S_first": scores[0].to_json()["S"],
        "S_second": scores[1].to_json()["S"],
        **compare_scores(*scores).to_json(),
        "rows_sha256": [sha256_hex((run / "rows.csv").read_bytes()) for run in (first, second)],
    }
