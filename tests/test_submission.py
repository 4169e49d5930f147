from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transitbench import submission
from transitbench.errors import TransitBenchError
from transitbench.submission import FIXED_MTIME_S, stage_submission, submission_digest


@pytest.fixture
def solution(tmp_path: Path) -> Path:
    folder = tmp_path / "solution"
    (folder / "models" / "deep").mkdir(parents=True)
    (folder / "solution.py").write_text("print(1)\n")
    (folder / "models" / "deep" / "weights.bin").write_bytes(bytes(range(256)))
    (folder / "models-2").write_text("sorts between models and what is in it")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"")
    return folder


def digest_of(files: dict[bytes, bytes]) -> str:
    """The digest, written out from its description."""
    text = b""
    for path in sorted(files):
        text += len(path).to_bytes(8, "big") + path
        text += len(files[path]).to_bytes(8, "big") + files[path]
    return hashlib.sha256(text).hexdigest()


def test_digest_is_the_described_one(solution: Path) -> None:
    files = {
        os.fsencode(path.relative_to(solution)): path.read_bytes()
        for path in solution.rglob("*")
        if path.is_file()
    }
    assert len(files) == 4
    assert submission_digest(solution) == digest_of(files)


def test_a_staged_copy_has_the_same_digest_and_plain_modes(solution: Path, tmp_path: Path) -> None:
    (solution / "solution.py").chmod(0o700)
    (solution / "models").chmod(0o700)
    os.utime(solution / "solution.py", (1, 1))
    copy = tmp_path / "deep" / "copy"
    digest = stage_submission(solution, copy)
    assert digest == submission_digest(solution) == submission_digest(copy)
    for path in (copy, *copy.rglob("*")):
        facts = path.stat()
        assert facts.st_mode & 0o7777 == (0o755 if path.is_dir() else 0o644)
        assert facts.st_mtime == FIXED_MTIME_S
    assert (copy / "models" / "deep" / "weights.bin").read_bytes() == bytes(range(256))


@given(
    st.dictionaries(
        st.binary(min_size=1, max_size=6).filter(lambda n: b"/" not in n and n not in (b".", b"..") and b"\0" not in n),
        st.binary(max_size=20),
        max_size=4,
    )
)  # fmt: skip
def test_digest_tells_trees_apart(
    tmp_path_factory: pytest.TempPathFactory, files: dict[bytes, bytes]
) -> None:
    files = {b"solution.py": b"", **files}
    folder = tmp_path_factory.mktemp("tree")
    for name, content in files.items():
        (folder / os.fsdecode(name)).write_bytes(content)
    assert submission_digest(folder) == digest_of(files)


def expect(code: str, folder: Path, tmp_path: Path) -> str:
    with pytest.raises(TransitBenchError) as first:
        submission_digest(folder)
    with pytest.raises(TransitBenchError) as second:
        stage_submission(folder, tmp_path / "staged")
    assert (first.value.code, second.value.code) == (code, code)
    return first.value.what


def test_missing_submissions(solution: Path, tmp_path: Path) -> None:
    assert "absent" in expect("TB-E003", tmp_path / "absent", tmp_path)


def test_a_file_is_no_submission(solution: Path, tmp_path: Path) -> None:
    expect("TB-E003", solution / "solution.py", tmp_path)


def test_solution_py_has_to_be_there(solution: Path, tmp_path: Path) -> None:
    (solution / "solution.py").rename(solution / "models" / "solution.py")
    assert "solution.py" in expect("TB-E003", solution, tmp_path)


def test_solution_py_has_to_be_a_file(solution: Path, tmp_path: Path) -> None:
    (solution / "solution.py").unlink()
    (solution / "solution.py").mkdir()
    expect("TB-E003", solution, tmp_path)


@pytest.mark.parametrize("place", ["solution.py", "models/deep/x", "x"])
@pytest.mark.parametrize("kind", ["link", "dangling", "folder link", "pipe", "socket"])
def test_links_and_special_files_are_refused(
    solution: Path, tmp_path: Path, place: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = solution / place
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        # The path of a socket has room for about a hundred characters.
        monkeypatch.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
        monkeypatch.chdir(tmp_path)
    else:
        target = {"link": "/etc/passwd", "dangling": "nowhere", "folder link": "/etc"}[kind]
        path.symlink_to(target)
    assert str(path) in expect("TB-E013", solution, tmp_path)


def test_a_link_to_a_submission_is_refused(solution: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(solution)
    expect("TB-E013", link, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_devices_are_refused(solution: Path, tmp_path: Path) -> None:
    os.mknod(solution / "null", 0o20666, os.makedev(1, 3))
    assert "character device" in expect("TB-E013", solution, tmp_path)


def test_a_file_swapped_for_a_pipe_or_link_is_not_followed(
    solution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(submission, "_list_files", lambda directory: [b"../pipe"])
    expect("TB-E013", solution, tmp_path)
    (tmp_path / "link").symlink_to("/etc/passwd")
    monkeypatch.setattr(submission, "_list_files", lambda directory: [b"../link"])
    with pytest.raises(TransitBenchError, match="TB-E013"):
        submission_digest(solution)


def test_size_is_limited_in_all(
    solution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = sum(path.stat().st_size for path in solution.rglob("*") if path.is_file())
    monkeypatch.setattr(submission, "MAX_BYTES", total)
    submission_digest(solution)
    monkeypatch.setattr(submission, "MAX_BYTES", total - 1)
    expect("TB-E013", solution, tmp_path)
    assert submission.MAX_ENTRIES == 10_000


def test_a_sparse_giant_is_not_read(solution: Path, tmp_path: Path) -> None:
    with (solution / "giant").open("wb") as file:
        file.truncate(2**40)
    expect("TB-E013", solution, tmp_path)


def test_number_of_entries_is_limited(
    solution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_entries = len(list(solution.rglob("*")))
    monkeypatch.setattr(submission, "MAX_ENTRIES", n_entries)
    submission_digest(solution)
    monkeypatch.setattr(submission, "MAX_ENTRIES", n_entries - 1)
    expect("TB-E013", solution, tmp_path)
