"""A terminal of a few lines of code: enough to see what a panel leaves on the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios

from rich.cells import cell_len

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(\r|\n|\x08)|([^\x1b\r\n\x08]+)", re.DOTALL)


class Screen:
    """What is on the screen and where the cursor is; fails on any sequence it does not know."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [[" "] * width for _ in range(height)]
        self.scrolled: list[str] = []
        self.x = self.y = 0
        self.cursor_visible = True
        self.wrapped = 0

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.rows]

    @property
    def text(self) -> str:
        return "\n".join(self.scrolled + self.lines)

    def feed(self, data: str) -> None:
        at = 0
        while at < len(data):
            match = _TOKEN.match(data, at)
            assert match, f"unknown sequence {data[at : at + 20]!r}"
            at = match.end()
            parameters, command, control, text = match.groups()
            if command:
                self._command(parameters, command)
            elif control == "\r":
                self.x = 0
            elif control == "\n":
                self._newline()
            elif control == "\x08":
                self.x = max(self.x - 1, 0)
            else:
                self._put(text)

    def _command(self, parameters: str, command: str) -> None:
        count = int(parameters) if parameters.isdigit() else 1
        if command == "m":
            return
        if command in "hl" and parameters == "?25":
            self.cursor_visible = command == "h"
        elif command == "A":
            self.y = max(self.y - count, 0)
        elif command == "B":
            self.y = min(self.y + count, self.height - 1)
        elif command == "H":
            self.x = self.y = 0
        elif command == "G":
            self.x = count - 1
        elif command == "K" and parameters == "2":
            self.rows[self.y] = [" "] * self.width
        elif command == "J" and parameters == "2":
            self.rows = [[" "] * self.width for _ in range(self.height)]
        else:
            raise AssertionError(f"unknown command {parameters}{command}")

    def _newline(self) -> None:
        if self.y < self.height - 1:
            self.y += 1
        else:
            self.scrolled.append("".join(self.rows.pop(0)).rstrip())
            self.rows.append([" "] * self.width)

    def _put(self, text: str) -> None:
        for character in text:
            cells = cell_len(character)
            if self.x + cells > self.width:
                self.wrapped += 1
                self.x = 0
                self._newline()
            if cells:
                self.rows[self.y][self.x] = character
                if cells == 2:
                    self.rows[self.y][self.x + 1] = ""
            self.x += cells


class Terminal:
    """A pseudo terminal with a screen at its other end."""

    def __init__(self, width: int, height: int) -> None:
        self.master, self.slave = pty.openpty()
        self.screen = Screen(width, height)
        self.resize(width, height)
        self.raw = b""

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if (width, height) != (self.screen.width, self.screen.height):
            old = self.screen
            self.screen = Screen(width, height)
            # As terminals do: what was there flows into the new width.
            self.screen.feed("\r\n".join(line for line in old.lines if line))

    def read(self, timeout_s: float = 0.1) -> Screen:
        data = b""
        while select.select([self.master], [], [], timeout_s)[0]:
            try:
                piece = os.read(self.master, 1 << 16)
            except OSError:  # the last slave was closed
                break
            if not piece:
                break
            data += piece
        self.raw += data
        self.screen.feed(data.decode())
        return self.screen

    def close(self) -> None:
        for fd in (self.master, self.slave):
            try:
                os.close(fd)
            except OSError:
                continue
