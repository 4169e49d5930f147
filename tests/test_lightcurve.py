"""Star files: reproducible bytes, bad files, Kepler's own files, lightkurve."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import REAL

from transitbench.errors import TransitBenchError
from transitbench.lightcurve import LightCurve, same_light_curve

STAMPS = {10: "2011271113734", 11: "2012004120508", 12: "2012088054726", 13: "2012179063303"}

needs_real = pytest.mark.skipif(
    not (REAL / "fits").is_dir(), reason=f"no Kepler files at {REAL} (set TRANSITBENCH_REAL)"
)


def light_curve(n: int = 200) -> LightCurve:
    rng = np.random.default_rng(1)
    time = 906.85 + 0.0204 * np.arange(n)
    flux = rng.normal(1e4, 10, n)
    time[7], flux[20:25] = np.nan, np.nan
    return LightCurve(
        time=time,
        flux=flux,
        flux_err=np.full(n, 9.5),
        quality=np.where(np.arange(n) == 7, 65536, 0),
        cadenceno=39049 + np.arange(n),
        quarter=np.full(n, 10),
        kepmag=14.2,
        teff=5777.0,
        logg=4.4,
    )


def test_the_file_gives_back_every_field(tmp_path: Path):
    light_curve().to_npz(tmp_path / "s.npz")
    back = LightCurve.from_npz(tmp_path / "s.npz")
    assert same_light_curve(back, light_curve())
    assert np.isnan(back.mass)


def test_numpy_reads_the_types_of_the_specification(tmp_path: Path):
    light_curve().to_npz(tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz", allow_pickle=False) as archive:
        types = {name: (archive[name].dtype.str, archive[name].ndim) for name in archive.files}
    assert types == {
        "time": ("<f8", 1),
        "flux": ("<f4", 1),
        "flux_err": ("<f4", 1),
        "quality": ("<i4", 1),
        "cadenceno": ("<i4", 1),
        "quarter": ("|i1", 1),
        "kepmag": ("<f4", 0),
        "teff": ("<f4", 0),
        "logg": ("<f4", 0),
        "radius": ("<f4", 0),
        "mass": ("<f4", 0),
    }


def test_the_same_light_curve_gives_the_same_bytes_and_nothing_of_the_moment(tmp_path: Path):
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    light_curve().to_npz(one)
    LightCurve.from_npz(one).to_npz(two)
    assert one.read_bytes() == two.read_bytes() == light_curve().npz_bytes()
    assert one.stat().st_mtime == two.stat().st_mtime == 0
    with zipfile.ZipFile(one) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_finite_times_leave_out_cadences_without_time_or_flux():
    curve = light_curve()
    assert curve.finite_time_days.size == 200 - 6
    assert len(curve) == 200


def arrays() -> dict[str, np.ndarray]:
    curve = light_curve()
    names = ("time", "flux", "flux_err", "quality", "cadenceno", "quarter")
    scalars = ("kepmag", "teff", "logg", "radius", "mass")
    return {n: np.array(getattr(curve, n)) for n in names} | {
        n: np.float32(getattr(curve, n)) for n in scalars
    }


def changed(**values: np.ndarray) -> Callable[[Path], object]:
    return lambda path: np.savez(path, **(arrays() | values))


def without(name: str) -> Callable[[Path], object]:
    return lambda path: np.savez(path, **{k: v for k, v in arrays().items() if k != name})


def truncated(path: Path) -> None:
    path.write_bytes(light_curve().npz_bytes()[:3000])


def corrupted(path: Path) -> None:
    data = bytearray(light_curve().npz_bytes())
    data[400] ^= 0xFF
    path.write_bytes(bytes(data))


def corrupted_and_compressed(path: Path) -> None:
    np.savez_compressed(path, **arrays())
    data = bytearray(path.read_bytes())
    data[100:400] = bytes(300)
    path.write_bytes(bytes(data))


def swapped_times() -> np.ndarray:
    time = arrays()["time"]
    time[[30, 31]] = time[[31, 30]]
    return time


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "no zip": lambda path: path.write_bytes(b"not a zip file"),
    "a directory": lambda path: path.mkdir(),
    "truncated": truncated,
    "corrupted": corrupted,
    "corrupted and compressed": corrupted_and_compressed,
    "no flux": without("flux"),
    "no mass": without("mass"),
    "pickled": changed(flux=np.array([{"a": 1}], dtype=object)),
    "short array": changed(flux=np.zeros(7)),
    "column of times": changed(time=np.zeros((200, 1))),
    "text as flux": changed(flux=np.array(["bright"] * 200)),
    "three magnitudes": changed(kepmag=np.zeros(3)),
    "text as magnitude": changed(kepmag=np.array("bright")),
    "times out of order": changed(time=swapped_times()),
    "one time": changed(time=np.full(200, 907.0)),
    "one cadence number": changed(cadenceno=np.zeros(200)),
    "all flux NaN": changed(flux=np.full(200, np.nan)),
    "all times NaN": changed(time=np.full(200, np.nan)),
    "complex flux": changed(flux=np.full(200, 1 + 2j)),
    "quality beyond int32": changed(quality=np.full(200, 2**40)),
    "quarter beyond int8": changed(quarter=np.full(200, 1000)),
    "fractional quarter": changed(quarter=np.full(200, 10.5)),
    "cadence numbers NaN": changed(cadenceno=np.full(200, np.nan)),
}


@pytest.mark.parametrize("write", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused(tmp_path: Path, write: Callable[[Path], object]):
    path = tmp_path / "s.npz"
    write(path)
    with pytest.raises(TransitBenchError, match="TB-E010"):
        LightCurve.from_npz(path)


def test_lightkurve_gets_the_same_arrays_and_gives_them_back():
    curve = light_curve()
    theirs = curve.to_lightkurve("some star")
    timed = np.isfinite(curve.time)
    assert type(theirs).__name__ == "KeplerLightCurve"
    np.testing.assert_array_equal(theirs.time.value, curve.time[timed])
    np.testing.assert_array_equal(np.asarray(theirs.flux.value), curve.flux[timed])
    np.testing.assert_array_equal(np.asarray(theirs["quality"]), curve.quality[timed])
    assert str(theirs.flux.unit) == "electron / s"
    back = LightCurve.from_lightkurve(theirs)
    for name in ("time", "flux", "flux_err", "quality", "cadenceno", "quarter"):
        np.testing.assert_array_equal(getattr(back, name), getattr(curve, name)[timed])
    assert back.kepmag == curve.kepmag


def kepler_files(kic: int) -> list[Path]:
    folder = REAL / "fits" / f"{kic:09d}"
    return [next(folder.glob(f"kplr{kic:09d}-{stamp}_llc.fits*")) for stamp in STAMPS.values()]


@needs_real
@pytest.mark.parametrize("kic", [757076, 1996679, 6541920, 11138155])
def test_keplers_quarters_stitch_to_the_year_file(kic: int):
    curve = LightCurve.from_kepler_fits(reversed(kepler_files(kic)))
    with np.load(REAL / "years" / f"kic{kic:09d}.npz") as year:
        for name in ("time", "flux", "flux_err", "quality", "cadenceno", "quarter"):
            np.testing.assert_array_equal(getattr(curve, name), year[name], err_msg=name)
        for name in ("kepmag", "teff", "logg", "radius"):
            assert getattr(curve, name) == pytest.approx(float(year[name]), nan_ok=True)
    assert set(curve.quarter.tolist()) == set(STAMPS)


@needs_real
def test_star_parameters_are_those_of_the_latest_quarter_in_any_order_of_files():
    """The header of KIC 1996679 has another temperature in Q10 than from Q11 on."""
    files = kepler_files(1996679)
    one, other = LightCurve.from_kepler_fits(files), LightCurve.from_kepler_fits(files[::-1])
    assert one.teff == 6148.0
    assert same_light_curve(one, other)


@needs_real
def test_a_quarter_twice_and_two_stars_mixed_are_refused():
    files = kepler_files(757076)
    with pytest.raises(TransitBenchError, match=r"TB-E010.*repeats quarter 10"):
        LightCurve.from_kepler_fits([files[0], files[0]])
    with pytest.raises(TransitBenchError, match=r"TB-E010.*KIC 1996679"):
        LightCurve.from_kepler_fits([files[0], kepler_files(1996679)[1]])


@needs_real
def test_a_damaged_kepler_file_is_refused(tmp_path: Path):
    whole = kepler_files(757076)[0].read_bytes()
    for name, data in (("short", whole[: len(whole) // 2]), ("head", whole[:2880]), ("none", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TransitBenchError, match="TB-E010"):
            LightCurve.from_kepler_fits([tmp_path / name])


def test_no_kepler_files_are_refused(tmp_path: Path):
    with pytest.raises(TransitBenchError, match="TB-E010"):
        LightCurve.from_kepler_fits([])
    with pytest.raises(TransitBenchError, match="TB-E010"):
        LightCurve.from_kepler_fits([tmp_path / "missing.fits"])
