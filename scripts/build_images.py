"""Build the image in which a task's packages are installed already, and name it for the tasksets.

    python scripts/build_images.py --write-images my_images.json
    python scripts/build_images.py --push registry.example/me/transitbench-box --write-images my_images.json

One image serves every task family. Give the written file to a taskset with ``--taskset.images`` or
``--env.taskset.images``. Without ``--push`` the image is known to this machine's engine only.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from transitbench.errors import TransitBenchError
from transitbench_env.images import FAMILIES, requirements_digest

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = Path("images/box.Dockerfile")
# The only one that all pinned packages are published for.
PLATFORM = "linux/amd64"
LOCAL_NAME = "transitbench-box"


def build(repository: str | None, tag: str) -> str:
    """Build the image, push it if ``repository`` is given, and return the reference to use.

    A pushed image is named by its digest, which nobody can move to another content.

    Raises
    ------
    TransitBenchError
        TB-E016 if no Docker engine answers, or a step fails.
    """
    _require_engine()
    image = f"{repository or LOCAL_NAME}:{tag}"
    _docker("build", "--platform", PLATFORM, "--file", str(DOCKERFILE), "--tag", image, ".")
    if repository is None:
        return image
    _docker("push", image)
    found = _docker("image", "inspect", "--format", "{{json .RepoDigests}}", image, capture=True)
    for reference in json.loads(found):
        if reference.startswith(f"{repository}@sha256:"):
            return str(reference)
    raise TransitBenchError(
        "TB-E016",
        f"{image} has no digest of {repository} after the push, but {found.strip()}",
        "give --push the repository's full name, with its registry",
    )


def _require_engine() -> None:
    problem = "there is no `docker` on PATH"
    if shutil.which("docker"):
        command = ["docker", "version", "--format", "{{.Server.Version}}"]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode == 0:
            return
        problem = answer.stderr.strip() or f"`docker version` exited {answer.returncode}"
    raise TransitBenchError(
        "TB-E016",
        f"no Docker engine answers: {problem}",
        "start one (`sudo systemctl start docker`), or set DOCKER_HOST; without any, the default images "
        "install the same packages in a task's setup",
    )


def _docker(*arguments: str, capture: bool = False) -> str:
    command = ["docker", *arguments]
    print(f"$ {shlex.join(command)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE if capture else None)
    if done.returncode:
        raise TransitBenchError(
            "TB-E016",
            f"`{shlex.join(command)}` exited {done.returncode}",
            "docker's own message is above",
        )
    return done.stdout if capture else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the image of the boxes; the command line of this script."""
    parser = argparse.ArgumentParser(
        description=main.__doc__, epilog=f"example: python {Path(__file__).name} --tag mine"
    )
    parser.add_argument("--push", metavar="REPOSITORY", help="push it there, and use its digest")
    parser.add_argument(
        "--tag", default=requirements_digest()[:12], help="default: from the requirements' digest"
    )
    parser.add_argument("--write-images", type=Path, metavar="FILE", help="an images.json of it")
    options = parser.parse_args(arguments)
    try:
        reference = build(options.push, options.tag)
    except TransitBenchError as error:
        print(error, file=sys.stderr)
        return 2
    if options.write_images is not None:
        document = dict.fromkeys(FAMILIES, reference)
        options.write_images.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        print(f"wrote {options.write_images}: --taskset.images {options.write_images}")
    print(reference)
    return 0


if __name__ == "__main__":
    sys.exit(main())
