"""Workers for the tests of the logs."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings

from motrix_rl.logs import OutputPump, setup_worker_logging


def talk(name: str, path: str) -> None:
    """Says something in every way there is."""
    setup_worker_logging(name, path, logging.INFO)
    logging.getLogger("worker").info("from logging\nin two lines")
    logging.getLogger("worker").debug("not shown")
    warnings.warn("from warnings", stacklevel=1)
    print("from print", flush=True)
    print("from stderr", file=sys.stderr, flush=True)
    os.write(1, b"bad \xff\xfe bytes\n")
    os.write(2, b"\x1b[31mred\x1b[0m\n")
    os.write(1, b"  1%\r 50%\r100%\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"from native code")
    libc.fflush(None)
    subprocess.run(["sh", "-c", "echo from a child; echo its error >&2"], check=True)

    def fail() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=fail, name="helper")
    thread.start()
    thread.join()
    assert sys.stdin.read() == ""
    os.write(1, b"no end of line")


def crash(name: str, path: str) -> None:
    """Dies of a segmentation fault."""
    setup_worker_logging(name, path)
    print("before the crash", flush=True)
    ctypes.string_at(0)


def flood(name: str, path: str) -> None:
    """Prints without end."""
    while True:
        os.write(1, b"x" * 100 + b"\n")


def sleep_with_child(name: str, path: str) -> None:
    """Leaves the write ends of its pipes to a grandchild that outlives it."""
    child = subprocess.Popen(["sleep", "60"])
    os.write(1, b"child %d\n" % child.pid)
    time.sleep(60)


def write_after_the_reader(name: str, path: str) -> None:
    """Goes on writing when nobody reads, and ends by itself."""
    os.write(1, b"ready\n")
    failed = False
    for _ in range(100):
        try:
            os.write(1, b"y" * 10_000)
        except BrokenPipeError:
            failed = True
        time.sleep(0.01)
    sys.exit(7 if failed else 0)


def count_lines(name: str, path: str, lines: int) -> None:
    """Writes to its log by itself and through its pipe at the same time."""
    setup_worker_logging(name, path)
    for i in range(lines):
        logging.getLogger("worker").info("own %d", i)
        os.write(1, f"piped {i}\n".encode())


def one_line(name: str, path: str) -> None:
    """Says one thing and ends."""
    print("hello", flush=True)


def main(path: str) -> None:
    """A parent whose first child is a worker; ends when the worker's pipes do."""
    pump = OutputPump()
    worker = multiprocessing.get_context("spawn").Process(target=one_line, args=("w", path))
    with pump.add("w", path).redirected():
        worker.start()
    worker.join()
    deadline = time.monotonic() + 5.0
    while pump.filenos() and time.monotonic() < deadline:
        pump.drain()
    sys.exit(len(pump.filenos()))


if __name__ == "__main__":
    main(sys.argv[1])
