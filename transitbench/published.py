"""Published results: ``baselines.json`` and the kept rows it was scored from, in ``results/``.

An entry names a pipeline (``row``) and a set, the digests of what was run on what, and the score. The
kept rows travel with it, so that anyone can score them again without running a search.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from transitbench.catalogue import open_set
from transitbench.fingerprint import sha256_hex
from transitbench.grading import read_run_facts
from transitbench.pipelines import open_submission
from transitbench.rows import read_rows_csv
from transitbench.score import score_rows
from transitbench.submission import submission_digest

RESULTS_SCHEMA = 1
SCORED_FIELDS = (
    "n_stars",
    "n_planets",
    "credit",
    "n_false",
    "S",
    "S_ci95",
    "C",
    "C_ci95",
    "F_per_100",
    "F_per_100_ci95",
    "eb_as_planet",
    "false_alarm_as_planet",
    "quiet_as_planet",
)


def rows_path(results: Path, row: str, set_name: str) -> Path:
    """Return where the kept rows of a pipeline on a set are published."""
    return results / "rows" / f"{row}-{set_name}.csv"


def read_published(results: Path) -> list[dict[str, Any]]:
    """Return the entries of ``baselines.json``; none if nothing is published yet."""
    path = results / "baselines.json"
    if not path.exists():
        return []
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["entries"]
    return entries


def record_run(results: Path, run_directory: Path) -> dict[str, Any]:
    """Publish a finished run: copy its rows, put its score into ``baselines.json``. Returns the entry."""
    facts = read_run_facts(run_directory)
    document = json.loads((run_directory / "score.json").read_text(encoding="utf-8"))
    row, set_name = str(facts["submission"]), str(facts["set"])
    target = rows_path(results, row, set_name)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run_directory / "rows.csv", target)
    entry = {
        "row": row,
        "set": set_name,
        "submission_digest": facts["submission_digest"],
        "set_digest": facts["set_digest"],
        "rows_sha256": sha256_hex(target.read_bytes()),
        **{field: document[field] for field in SCORED_FIELDS},
    }
    others = [e for e in read_published(results) if (e["row"], e["set"]) != (row, set_name)]
    entries = sorted([*others, entry], key=lambda e: (e["set"], e["row"]))
    lines = ",\n".join(json.dumps(e) for e in entries)
    text = f'{{"schema": {RESULTS_SCHEMA}, "entries": [\n{lines}\n]}}\n'
    (results / "baselines.json").write_text(text, encoding="utf-8")
    return entry


def check_published(results: Path, set_names: tuple[str, ...] | None = None) -> list[str]:
    """Score the published rows again and compare every digest.

    Returns
    -------
    list of str
        What does not agree, one sentence each; empty if all of it holds.
    """
    problems: list[str] = []
    entries = [e for e in read_published(results) if set_names is None or e["set"] in set_names]
    if not entries:
        return [f"nothing is published in {results / 'baselines.json'} for these sets"]
    for set_name in sorted({e["set"] for e in entries}):
        star_set = open_set(set_name)
        times = star_set.finite_times()
        for entry in (e for e in entries if e["set"] == set_name):
            label = f"{entry['row']} on {set_name}"
            path = rows_path(results, entry["row"], set_name)
            if sha256_hex(path.read_bytes()) != entry["rows_sha256"]:
                problems.append(f"{label}: sha256 of {path.name} differs")
            if star_set.manifest.digest != entry["set_digest"]:
                problems.append(f"{label}: the set's digest differs")
            with open_submission(entry["row"], star_set) as (_, directory):
                if submission_digest(directory) != entry["submission_digest"]:
                    problems.append(f"{label}: the pipeline's digest differs")
            rows = read_rows_csv(path)
            score = score_rows(star_set.truth, times, rows, set_name=set_name).to_json()
            differing = [field for field in SCORED_FIELDS if score[field] != entry[field]]
            if differing:
                problems.append(f"{label}: scoring the rows again changes {', '.join(differing)}")
    return problems
