"""What the boxes are made of: one image per family, one requirements file, one Dockerfile that agree."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import REPOSITORY

from transitbench.errors import TransitBenchError
from transitbench_env.images import (
    BOX_PACKAGES,
    BOX_REQUIREMENTS,
    FAMILIES,
    MARKER,
    load_images,
    requirements_digest,
)

REQUIREMENTS = BOX_REQUIREMENTS.read_text()
CONSTRAINTS = (REPOSITORY / "constraints.txt").read_text()
DIGEST = "sha256:" + "ab" * 32


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pin = load_script("pin_box_requirements")
build_images = load_script("build_images")


def test_default_images_are_exact_full_python_images() -> None:
    images = load_images()
    assert tuple(images) == FAMILIES
    for image in images.values():
        assert re.fullmatch(r"python:3\.11\.\d+-bookworm", image)


def test_own_images_file_replaces_the_default(tmp_path: Path) -> None:
    own = {family: f"registry.example/{family}@{DIGEST}" for family in FAMILIES}
    (tmp_path / "own.json").write_text(json.dumps(own))
    assert load_images(tmp_path / "own.json") == own


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "no images file"),
        ("[]", "list"),
        ('{"survey": "a", "mini": "b", "maxi": "c"}', "'maxi'"),
        ('{"survey": "a"}', "'mini'"),
        ('{"survey": "a", "mini": 3}', "'mini'"),
        ('{"survey": "a", "mini": ""}', "'mini'"),
        ('{"survey": "a", "mini": "b c"}', "'mini'"),
    ],
)
def test_malformed_images_file_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(TransitBenchError, match=complaint) as caught:
        load_images(tmp_path / "own.json")
    assert caught.value.code == "TB-E016"


def test_missing_images_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TransitBenchError) as caught:
        load_images(tmp_path / "none.json")
    assert caught.value.code == "TB-E016"


def test_requirements_agree_with_the_constraints() -> None:
    assert pin.main(["--check"]) == 0
    assert pin.read_pins(REQUIREMENTS).keys() >= set(BOX_PACKAGES)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("numpy==", "numpy==9"), "numpy is 9"),
        ((r"lightkurve==[^\n]*\n[^\n]*\n", ""), "lightkurve is missing"),
        ((r"six==[^\n]*\n[^\n]*\n", ""), "six is missing"),
        ((r"(scipy==\S+) \\\n[^\n]*\n", r"\1\n"), "has no hash"),
    ],
)
def test_check_finds_what_disagrees(change: tuple[str, str], complaint: str) -> None:
    changed, n_changes = re.subn(*change, REQUIREMENTS)
    assert n_changes == 1
    assert any(complaint in problem for problem in pin.find_disagreements(changed, CONSTRAINTS))


def dockerfile_instructions() -> list[tuple[str, list[str]]]:
    text = (REPOSITORY / build_images.DOCKERFILE).read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (words[0], words[1:]) for words in (line.split() for line in text.splitlines()) if words
    ]


def test_dockerfile_builds_on_the_default_images_and_their_requirements() -> None:
    instructions = dockerfile_instructions()
    (base,) = [words for name, words in instructions if name == "FROM"]
    assert {base[-1]} == set(load_images().values())
    (copy,) = [words for name, words in instructions if name == "COPY"]
    assert (REPOSITORY / copy[0]).samefile(BOX_REQUIREMENTS)
    (run,) = [words for name, words in instructions if name == "RUN"]
    assert "--require-hashes" in run
    assert run[run.index("--requirement") + 1] == copy[1]
    assert run[run.index("sha256sum") + 1] == copy[1]
    assert run[-1] == MARKER


def test_marker_is_the_digest_of_the_requirements_file() -> None:
    assert requirements_digest() == hashlib.sha256(BOX_REQUIREMENTS.read_bytes()).hexdigest()


FAKE_DOCKER = """\
#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    log.write(json.dumps({{"argv": sys.argv[1:], "cwd": os.getcwd()}}) + "\\n")
if sys.argv[1] == {fails!r}:
    sys.exit("Cannot connect to the Docker daemon")
if sys.argv[1:3] == ["image", "inspect"]:
    print(json.dumps(["elsewhere.example/x@{digest}", "registry.example/box@{digest}"]))
"""


@pytest.fixture
def docker_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install_fake_docker(tmp_path, monkeypatch, fails="")


def install_fake_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> Path:
    log = tmp_path / "docker.log"
    log.touch()
    script = tmp_path / "docker"
    script.write_text(
        FAKE_DOCKER.format(python=sys.executable, log=str(log), fails=fails, digest=DIGEST)
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return log


def calls(log: Path) -> list[list[str]]:
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(record["cwd"] == str(REPOSITORY) for record in records[1:])
    return [record["argv"] for record in records]


def test_build_names_a_local_image_by_its_requirements(
    docker_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.json"
    assert build_images.main(["--write-images", str(own)]) == 0
    image = f"transitbench-box:{requirements_digest()[:12]}"
    build = ["build", "--platform", "linux/amd64", "--file", "images/box.Dockerfile"]
    build += ["--tag", image, "."]
    assert calls(docker_log)[1:] == [build]
    assert load_images(own) == dict.fromkeys(FAMILIES, image)
    assert f"$ docker {' '.join(build)}" in capsys.readouterr().out


def test_pushed_image_is_named_by_its_digest(docker_log: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    options = ["--push", "registry.example/box", "--tag", "v1", "--write-images", str(own)]
    assert build_images.main(options) == 0
    assert [argv[:2] for argv in calls(docker_log)[1:]] == [
        ["build", "--platform"],
        ["push", "registry.example/box:v1"],
        ["image", "inspect"],
    ]
    assert load_images(own) == dict.fromkeys(FAMILIES, f"registry.example/box@{DIGEST}")


@pytest.mark.parametrize(("fails", "n_calls"), [("version", 1), ("build", 2), ("push", 3)])
def test_failure_of_docker_is_reported_and_nothing_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fails: str,
    n_calls: int,
) -> None:
    log = install_fake_docker(tmp_path, monkeypatch, fails)
    own = tmp_path / "own.json"
    options = ["--push", "registry.example/box", "--write-images", str(own)]
    assert build_images.main(options) == 2
    assert len(calls(log)) == n_calls
    assert not own.exists()
    message = capsys.readouterr().err
    assert message.startswith("TB-E016")
    assert ("no Docker engine answers: Cannot connect" in message) == (fails == "version")


def test_machine_without_docker_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_images.main([]) == 2
    assert "no `docker` on PATH" in capsys.readouterr().err
