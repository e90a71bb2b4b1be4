"""Worker side: what Python says goes to the worker's log file; native code speaks through fd 1 and 2."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import types

from motrix_rl.logs.file import LogFile
from motrix_rl.logs.lines import format_lines

# Makes a worker write the stacks of all its threads to its log (through fd 2) and go on.
STACK_SIGNAL = signal.SIGUSR1


class AppendHandler(logging.Handler):
    """Writes each record by one `write` to a log file.

    The supervisor appends to the same file what the worker's pipes carry. Appends of whole lines by one
    system call do not mix, and nothing is buffered that a kill could lose.
    """

    def __init__(self, worker: str, file: LogFile) -> None:
        super().__init__()
        self._worker = worker
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record; a full disk loses it and disturbs nobody."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError) as error:
            text = f"{record.msg!r} {record.args!r} (cannot be formatted: {error})"
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + logging.Formatter().formatException(record.exc_info).rstrip()
        if record.stack_info:
            text += "\n" + record.stack_info
        self._file.write(format_lines(self._worker, record.levelno, text, record.created))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()


def setup_worker_logging(
    name: str, path: str | os.PathLike[str], level: int | str = logging.INFO
) -> AppendHandler:
    """Makes the log file of a worker the place for all it says. Called first thing in the worker.

    Python logging goes to the file; `warnings` are logged; uncaught exceptions of any thread are logged with
    their traceback; fatal signals (segmentation fault, abort) write all stacks to fd 2, which the supervisor
    reads into the same file; `STACK_SIGNAL` writes them on demand.

    A log that cannot be opened is none of the worker's business: the supervisor opened it before, and a worker
    that is started again on a disk that is read-only by now has its work to do.

    Args:
        name: The worker, as in the log file's name.
        path: Its log file; the folder is made if missing.
        level: Level of the root logger.
    """
    handler = AppendHandler(name, LogFile(path, required=False))
    _take_root(handler, level)
    faulthandler.enable(file=2, all_threads=True)
    if threading.current_thread() is threading.main_thread():
        faulthandler.register(STACK_SIGNAL, file=2, all_threads=True, chain=False)
    _catch_exceptions(logging.getLogger(name))
    return handler


def setup_parent_logging(
    path: str | os.PathLike[str], level: int | str = logging.INFO, name: str = "supervisor"
) -> AppendHandler:
    """Sends the parent's own logging and warnings to a log file, as they would tear the panel.

    Exceptions and signals stay as they are: the parent's belong on the terminal.

    Raises:
        OSError: The file cannot be opened.
    """
    handler = AppendHandler(name, LogFile(path))
    _take_root(handler, level)
    return handler


def _take_root(handler: logging.Handler, level: int | str) -> None:
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)
    logging.getLogger("numba").setLevel(logging.WARNING)  # at DEBUG it tells every step of its compiler
    logging.captureWarnings(True)


def _catch_exceptions(logger: logging.Logger) -> None:
    def of_main(kind: type[BaseException], value: BaseException, trace: types.TracebackType | None) -> None:
        logger.critical("uncaught exception", exc_info=(kind, value, trace))

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            thread = args.thread.name if args.thread else "?"
            logger.critical(
                "uncaught exception in thread %s",
                thread,
                exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
            )

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        if args.exc_value is not None:
            info = (args.exc_type, args.exc_value, args.exc_traceback)
            logger.error("%s: %r", args.err_msg or "exception ignored in", args.object, exc_info=info)

    sys.excepthook = of_main
    threading.excepthook = of_thread
    sys.unraisablehook = unraisable
