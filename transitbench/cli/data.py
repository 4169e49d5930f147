"""``data list | build | verify | export``."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from transitbench.catalogue import REAL_CHECK, SETS, set_path
from transitbench.cli.progress import progress_bar
from transitbench.errors import TransitBenchError
from transitbench.sets import Manifest, StarSet, verify_set
from transitbench.simset import SIM_SETS, build_sim_set

app = typer.Typer(
    help="List, build, verify and export sets of stars.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List the sets, which of them are here, and how the others come into being.

    Example: [bold]transitbench data list[/]
    """
    records = []
    for info in SETS.values():
        digest = Manifest.read(info.path / "manifest.json").digest if info.built else None
        records.append(
            {
                "set": info.name,
                "built": info.built,
                "digest": digest,
                "path": str(info.path),
                "summary": info.summary,
                "build": info.how_to_get,
            }
        )
    if as_json:
        print(json.dumps({"sets": records}))
        return
    table = Table("set", "what", "here", "digest / how to get it", show_edge=False, pad_edge=False)
    for record in records:
        here = "[green]yes[/]" if record["built"] else "no"
        source = str(record["digest"])[:12] if record["built"] else str(record["build"])
        table.add_row(str(record["set"]), str(record["summary"]), here, source)
    Console().print(table)


@app.command("build")
def build_command(
    name: Annotated[str, typer.Argument(help="sim-dev, sim-A, sim-B or real-check.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="Folder of real stars (for real-check).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory to make (default: in TRANSITBENCH_DATA/sets).")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes (default: every core).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a set's directory: manifest.json, stars/*.npz, truth.json.

    Example: [bold]transitbench data build sim-dev --out my-sim-dev[/]
    """
    if name not in SETS:
        raise TransitBenchError(
            "TB-E008", f"{name!r} is none of {', '.join(SETS)}", "see `transitbench data list`"
        )
    path = out or SETS[name].path
    if name in SIM_SETS:
        with progress_bar(f"making {name}", SIM_SETS[name].n_stars) as advance:
            star_set = build_sim_set(name, path, jobs, on_star=advance)
    elif name == REAL_CHECK:
        from transitbench.realcheck import build_real_check, real_check_names

        if source is None:
            raise TransitBenchError(
                "TB-E016", "real-check needs a folder of real stars", "add --from DIR"
            )
        with progress_bar(f"making {name}", len(real_check_names(source))) as advance:
            star_set = build_real_check(source, path, on_star=advance)
    else:
        raise TransitBenchError(
            "TB-E008",
            f"set {name} cannot be built by this version",
            "build one of " + ", ".join([*SIM_SETS, REAL_CHECK]),
        )
    record = {
        "set": name,
        "path": str(star_set.path),
        "n_stars": len(star_set.stars),
        "n_planets": sum(len(truth.planets) for truth in star_set.truth.values()),
        "digest": star_set.manifest.digest,
    }
    if as_json:
        print(json.dumps(record))
    else:
        Console(highlight=False).print(
            f"{record['n_stars']} stars, {record['n_planets']} planets in {record['path']}\n"
            f"digest {record['digest']}",
            soft_wrap=True,
        )


@app.command("verify")
def verify_command(
    set_name: Annotated[str, typer.Argument(metavar="SET", help="Name or directory of a set.")],
    as_json: JsonOption = False,
) -> None:
    """Recompute every digest of a set and say what does not agree (exit code 1).

    Example: [bold]transitbench data verify sim-dev[/]
    """
    path = set_path(set_name)
    star_set = StarSet(path)
    with progress_bar(f"verifying {star_set.name}", len(star_set.stars)) as advance:
        problems = verify_set(path, on_star=lambda star: advance())
    if as_json:
        document = {"set": star_set.name, "digest": star_set.manifest.digest, "problems": problems}
        print(json.dumps({**document, "ok": not problems}))
    else:
        console = Console(highlight=False)
        for problem in problems:
            console.print(f"[red]{problem}[/]", soft_wrap=True)
        if not problems:
            console.print(
                f"[green]whole:[/] {len(star_set.stars)} stars, digest {star_set.manifest.digest}",
                soft_wrap=True,
            )
    raise typer.Exit(1 if problems else 0)


class ExportFormat(StrEnum):
    """File formats that sets are exported to."""

    FITS = "fits"
    CSV = "csv"


@app.command("export")
def export_command(
    set_name: Annotated[str, typer.Argument(metavar="SET", help="Name or directory of a set.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    file_format: Annotated[
        ExportFormat, typer.Option("--format", help="Kepler-like FITS, one file a quarter; or CSV.")
    ] = ExportFormat.FITS,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N stars.")] = None,
) -> None:
    """Write a set's light curves for other programs (lightkurve.read opens the FITS files).

    Example: [bold]transitbench data export sim-dev --format fits --out fits --limit 3[/]
    """
    from transitbench.cli.grade import open_set_with_progress
    from transitbench.export import export_csv, export_fits

    star_set = open_set_with_progress(set_name, limit)
    write = export_fits if file_format is ExportFormat.FITS else export_csv
    with progress_bar(f"exporting {star_set.name}", len(star_set.stars)) as advance:
        for star in star_set.stars:
            write(star_set.light_curve(star), star, out)
            advance()
    Console(highlight=False).print(f"{len(star_set.stars)} stars written to {out}", soft_wrap=True)
