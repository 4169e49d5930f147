"""Shared fixtures: a private TRANSITBENCH_DATA for every test, small sets, the real-data folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from transitbench.lightcurve import LightCurve

REPOSITORY = Path(__file__).resolve().parent.parent
REAL = Path(os.environ.get("TRANSITBENCH_REAL", REPOSITORY.parent / "shared" / "kepler")).resolve()
KEPLER_FIRST_CADENCE = 39049


@pytest.fixture(autouse=True)
def private_data_dir(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    path = tmp_path_factory.mktemp("transitbench-data")
    monkeypatch.setenv("TRANSITBENCH_DATA", str(path))
    return path


@pytest.fixture(scope="session")
def harness_cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TRANSITBENCH_CACHE for the whole run, all its processes: making a harness' environment takes a while."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "transitbench-cache"
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture(scope="module")
def host_port() -> Iterator[int]:
    """A port of this machine on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(scope="session")
def real_kepler() -> Path:
    if not (REAL / "years" / "index.json").is_file():
        pytest.skip(f"no real Kepler data at {REAL} (set TRANSITBENCH_REAL)")
    return REAL


def white_noise_star(seed: int, n: int = 4000, noise_ppm: float = 100.0) -> LightCurve:
    """A small star of white noise around 10,000 e⁻/s, of quarter 10 only."""
    rng = np.random.default_rng(seed)
    flux = 1e4 * (1 + noise_ppm * 1e-6 * rng.standard_normal(n))
    flux[rng.integers(n, size=n // 100)] = np.nan
    return LightCurve(
        time=906.846 + 0.0204336 * np.arange(n),
        flux=flux.astype(np.float32),
        flux_err=np.full(n, 1e4 * noise_ppm * 1e-6, dtype=np.float32),
        quality=np.zeros(n, dtype=np.int32),
        cadenceno=np.arange(KEPLER_FIRST_CADENCE, KEPLER_FIRST_CADENCE + n, dtype=np.int32),
        quarter=np.full(n, 10, dtype=np.int8),
        kepmag=13.0,
    )
