"""``bash`` as an agent has it: the real one, ended after a time limit, with a message.

Whatever the command started and left running in the foreground or background is ended too, as long as it
holds the command's output; a job that was sent to the background with its output in a file is not. The
limit is the first argument, the rest is bash's. It keeps a session going whose agent waits for something
that does not end; it is no wall against an agent that wants to get around it.

Standard library only; it travels into boxes that hold nothing else.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
CHUNK_BYTES = 2**16


def descendants(pid: int) -> list[int]:
    """Return every process below ``pid``."""
    found = [pid]
    for parent in found:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found[1:]


def main() -> int:
    """Run bash; its exit code, or 124 as from ``timeout``."""
    limit_s = float(sys.argv[1])
    # Orphans of the command become this process's children, where they are found.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    shell = subprocess.Popen(
        ["/bin/bash", *sys.argv[2:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert shell.stdout is not None
    assert shell.stderr is not None
    targets = {shell.stdout: 1, shell.stderr: 2}
    deadline_s = time.monotonic() + limit_s
    while targets and (left_s := deadline_s - time.monotonic()) > 0:
        for source in select.select(list(targets), [], [], left_s)[0]:
            chunk = os.read(source.fileno(), CHUNK_BYTES)
            try:
                view = memoryview(chunk)
                while view:
                    view = view[os.write(targets[source], view) :]
            except BrokenPipeError:
                chunk = b""
            if not chunk:
                del targets[source]
                # A command whose output nobody reads any more has to notice.
                source.close()
    if targets or not ended(shell, deadline_s):
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        message = f"\n[killed: a command may take {limit_s:g} s; run longer work in the background, output to a file]\n"
        os.write(2, message.encode())
        return 124
    code = shell.wait()
    return 128 - code if code < 0 else code


def ended(shell: "subprocess.Popen[bytes]", deadline_s: float) -> bool:
    """Wait for a shell that closed its output; False if it goes on past the limit."""
    try:
        shell.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


sys.exit(main())
