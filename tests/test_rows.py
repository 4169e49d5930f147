"""Candidate rows as CSV: exact round trips, the best three, and a line number for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transitbench.errors import TransitBenchError
from transitbench.rows import HEADER, keep_best, read_rows_csv, write_rows_csv

finite = st.floats(allow_nan=False, allow_infinity=False)
row = st.tuples(st.floats(min_value=5e-324, allow_infinity=False), finite, finite)
rows_by_star = st.dictionaries(
    st.text("abcdefgh234567", min_size=1, max_size=11),
    st.lists(row, min_size=1, max_size=3).map(lambda r: keep_best(np.array(r))),
    max_size=5,
)


@given(rows_by_star)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_rows_survive_the_file_bit_by_bit(tmp_path_factory: pytest.TempPathFactory, rows):
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    write_rows_csv(path, rows)
    back = read_rows_csv(path)
    assert list(back) == sorted(rows)
    assert all(back[star].tobytes() == rows[star].tobytes() for star in rows)
    first = path.read_bytes()
    write_rows_csv(path, dict(reversed(back.items())))
    assert path.read_bytes() == first


def test_the_file_is_sorted_by_star_and_rank(tmp_path: Path):
    rows = {
        "sb": np.array([[1.5, 2.0, 0.1], [2.5, 3.0, 0.9]]),
        "sa": np.array([[0.1, 1e300, -1.0]]),
    }
    write_rows_csv(tmp_path / "rows.csv", rows)
    text = "sa,0.1,1e+300,-1.0\nsb,2.5,3.0,0.9\nsb,1.5,2.0,0.1\n"
    assert (tmp_path / "rows.csv").read_bytes() == f"{HEADER}\n{text}".encode()


def test_no_rows_are_a_file_with_a_header(tmp_path: Path):
    write_rows_csv(tmp_path / "rows.csv", {"s": np.empty((0, 3))})
    assert (tmp_path / "rows.csv").read_text() == HEADER + "\n"
    assert read_rows_csv(tmp_path / "rows.csv") == {}


def test_the_best_three_are_kept_and_of_equal_scores_the_first():
    rows = np.array([[1, 0, 5], [2, 0, 7], [3, 0, 5], [4, 0, 5], [5, 0, 7]], dtype=float)
    assert keep_best(rows)[:, 0].tolist() == [2, 5, 1]


@pytest.mark.parametrize("bad", [np.ones((6, 2)), np.ones(3), np.full((4, 3), np.nan)])
def test_the_best_of_malformed_rows_is_an_error(bad: np.ndarray):
    with pytest.raises(TransitBenchError, match="TB-E014"):
        keep_best(bad)


def test_reading_keeps_the_best_three(tmp_path: Path):
    lines = [f"s,{p},0,{score}" for p, score in ((1, 5), (2, 7), (3, 5), (4, 5))]
    (tmp_path / "rows.csv").write_text("\n".join([HEADER, *lines]))
    assert read_rows_csv(tmp_path / "rows.csv")["s"][:, 0].tolist() == [2, 1, 3]


def test_blank_lines_blanks_and_windows_line_ends_are_read(tmp_path: Path):
    (tmp_path / "rows.csv").write_bytes(f"{HEADER}\r\n\r\n s1 , 3.5 ,-1e2, .5\r\n".encode())
    assert read_rows_csv(tmp_path / "rows.csv")["s1"].tolist() == [[3.5, -100.0, 0.5]]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("s,1,2", "3 fields"),
        ("s,1,2,3,4", "5 fields"),
        ("s,one,2,3", "could not convert"),
        ("s,1,,3", "could not convert"),
        (",1,2,3", "no star"),
        ("s,nan,2,3", "not finite"),
        ("s,1,inf,3", "not finite"),
        ("s,1,2,-inf", "not finite"),
        ("s,1e999,2,3", "not finite"),
        ("s,0,2,3", "not positive"),
        ("s,-1,2,3", "not positive"),
        ("s,1_0,2,3", "'_'"),
    ],
)
def test_a_malformed_line_is_named_with_its_number_and_text(
    tmp_path: Path, line: str, problem: str
):
    path = tmp_path / "rows.csv"
    path.write_text(f"{HEADER}\ns,1,2,3\n{line}\n")
    with pytest.raises(TransitBenchError) as caught:
        read_rows_csv(path)
    assert caught.value.code == "TB-E014"
    assert "line 3" in caught.value.what
    assert repr(line) in caught.value.what
    assert problem in caught.value.what


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"s,1,2,3\n", b"\xff\xfe\x00"])
def test_a_file_without_the_header_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(TransitBenchError, match="TB-E014"):
        read_rows_csv(tmp_path / "rows.csv")


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(TransitBenchError, match=r"TB-E014.*nothing\.csv"):
        read_rows_csv(tmp_path / "nothing.csv")


@pytest.mark.parametrize("star", ["", " s", "a,b", "a\nb", "a\x0bb"])
def test_a_star_name_that_would_not_survive_is_not_written(tmp_path: Path, star: str):
    with pytest.raises(TransitBenchError, match="TB-E014"):
        write_rows_csv(tmp_path / "rows.csv", {star: np.array([[1.0, 2.0, 3.0]])})
    assert not (tmp_path / "rows.csv").exists()


@pytest.mark.parametrize("bad", [[np.nan, 1, 1], [1, np.inf, 1], [0, 1, 1], [-1, 1, 1]])
def test_a_row_that_would_not_be_read_is_not_written(tmp_path: Path, bad: list[float]):
    with pytest.raises(TransitBenchError, match="TB-E014"):
        write_rows_csv(tmp_path / "rows.csv", {"s": np.array([bad], dtype=float)})
