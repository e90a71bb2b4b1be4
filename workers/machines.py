"""Several machines: what a launcher says about them, and how their supervisors agree before anything starts.

``torchrun --nnodes=N --nproc-per-node=1 train.py ...`` starts one supervisor a machine; so does anything else
that sets the same variables (``MASTER_ADDR``, ``MASTER_PORT``, ``RANK``, ``WORLD_SIZE``). The supervisor of
machine 0 makes the run directory and the ranks' meeting point, and tells the others where they are.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psutil

from motrix_rl.errors import MotrixError, UsageError
from workers.agreement import differences

log = logging.getLogger(__name__)

#: Seconds between two looks at what other machines have said.
LOOK_S = 0.1

#: Seconds that machine 0, on which the store lives or dies, stays for others to hear that the start has failed.
STAY_S = 5.0

LAST_PORT = 65535

#: Variables that describe this process to torch.distributed; workers get their ranks explicitly instead.
LAUNCHER_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMP_NUM_THREADS",
)


@dataclass(frozen=True)
class Machines:
    """The machines of a run, as seen from one of them.

    Attributes:
        nnodes: how many.
        node_rank: which one this is; machine 0 leads.
        master_addr: address of machine 0.
        master_port: port of the launcher's store, or for ours where the launcher has none.
        agent_store: the launcher serves the store itself.
        restarts: how often the launcher has started this run again.
    """

    nnodes: int
    node_rank: int
    master_addr: str
    master_port: int
    agent_store: bool
    restarts: int

    @classmethod
    def take_from(cls, environment: MutableMapping[str, str]) -> Machines | None:
        """Reads a launcher's variables and removes them, so that no worker takes them for its own.

        Returns:
            None where there is a single machine.

        Raises:
            UsageError: the launcher was told to start several processes a machine, or a variable is missing or is
                no such number.
        """
        found = {name: environment.pop(name) for name in LAUNCHER_VARIABLES if name in environment}
        if "WORLD_SIZE" not in found:
            return None
        nnodes = _number(found, "WORLD_SIZE", 1)
        _refuse_several_a_machine(nnodes, _number(found, "LOCAL_WORLD_SIZE", 1))
        if nnodes == 1:
            return None
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in found]
        if missing:
            raise UsageError(
                f"WORLD_SIZE={nnodes} is set, but {', '.join(missing)} is not; start it by torchrun"
            )
        return cls(
            nnodes=nnodes,
            node_rank=_number(found, "RANK", 0, nnodes - 1),
            master_addr=found["MASTER_ADDR"],
            master_port=_number(found, "MASTER_PORT", 1, LAST_PORT),
            agent_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            restarts=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0, unset="0"),
        )


def _number(
    variables: Mapping[str, str], name: str, least: int, most: int | None = None, *, unset: str = "1"
) -> int:
    """A whole number that a launcher has set.

    Raises:
        UsageError: it is none, or out of bounds.
    """
    text = variables.get(name, unset)
    value = int(text) if text.strip().isdecimal() else -1
    if value < least or (most is not None and value > most):
        bounds = f"from {least}" + (f" to {most}" if most is not None else " up")
        beside = f", with WORLD_SIZE={variables['WORLD_SIZE']}" if name == "RANK" else ""
        raise UsageError(f"{name}={text} must be a whole number {bounds}{beside}; torchrun sets it right")
    return value


def _refuse_several_a_machine(world: int, local: int) -> None:
    if local > 1:
        nodes = max(1, world // local)
        raise UsageError(
            f"--nproc-per-node={local} starts {local} supervisors a machine; one is right, and it starts the learners: "
            f"torchrun --nnodes={nodes} --nproc-per-node=1 train.py ... algo.trainer.async_options.num_learners={local}"
        )


class NoMeetingError(MotrixError):
    """The other machines cannot be reached."""


class SettingsDifferError(UsageError):
    """The machines were started with different settings; raised on all of them."""


class Meeting:
    """Where the supervisors of several machines agree, up to the moment when all are ready.

    One writer a key, no lock; of several that fail the first is heard.

    Args:
        machines: who takes part.
        timeout_s: how long to wait for the others.
    """

    def __init__(self, machines: Machines, timeout_s: float) -> None:
        self.machines = machines
        self._prefix = f"motrix_rl/{machines.restarts}/"
        self._timeout_s = timeout_s
        self._told_ready = self._knows_failure = False
        leads = machines.node_rank == 0 and not machines.agent_store
        try:
            self._store = _quiet_store()(
                machines.master_addr,
                machines.master_port,
                machines.nnodes,
                is_master=leads,
                timeout=timedelta(seconds=timeout_s),
                wait_for_workers=False,
            )
        except RuntimeError as fault:
            address = f"{machines.master_addr}:{machines.master_port}"
            raise NoMeetingError(
                f"the machines' meeting point {address} cannot be reached: {_first_line(fault)}"
            ) from fault

    def agree(self, settings: dict[str, Any]) -> None:
        """Every machine passes its settings; machine 0 waits for all, and starts nothing where they differ.

        The others hear of it in `tell`, from the failure that machine 0 then tells.

        Raises:
            SettingsDifferError: on machine 0: they differ.
            MotrixError: on machine 0: another has not come within the limit, or has failed.
        """
        if self.machines.node_rank > 0:
            self._store.set(self._settings_key(self.machines.node_rank), json.dumps(settings))
            return
        deadline = time.monotonic() + self._timeout_s
        theirs = {
            node: self._wait_for(self._settings_key(node), deadline, f"machine {node} has not come")
            for node in range(1, self.machines.nnodes)
        }
        if found := differences(settings, theirs):
            raise SettingsDifferError(f"the machines' settings differ: {'; '.join(found)}")

    def _settings_key(self, node: int) -> str:
        return f"{self._prefix}settings/{node}"

    def tell(self, value: dict[str, Any] | None) -> dict[str, Any]:
        """Machine 0 passes plain data, the others None; all return machine 0's.

        Raises:
            SettingsDifferError: the machines' settings differ.
            MotrixError: machine 0 said nothing within the limit, or some machine has failed.
        """
        key = self._prefix + "start"
        if value is not None:
            self._store.set(key, json.dumps(value))
        return self._wait_for(key, time.monotonic() + self._timeout_s, "machine 0 has not started the run")

    def _wait_for(self, key: str, deadline: float, otherwise: str) -> dict[str, Any]:
        """Waits until a machine has said something.

        Raises:
            MotrixError: the deadline (monotonic seconds) has passed, or some machine has failed.
        """
        while (fault := self._heard()) is None:
            if self._store.check([key]):
                return json.loads(self._store.get(key))
            if time.monotonic() > deadline:
                raise MotrixError(f"{otherwise} within {self._timeout_s:g} s")
            time.sleep(LOOK_S)
        raise fault

    def all_ready(self) -> bool:
        """Says once that all workers of this machine are ready, and whether every machine has; does not wait."""
        mine, self._told_ready = 0 if self._told_ready else 1, True
        try:
            return int(self._store.add(self._prefix + "ready", mine)) >= self.machines.nnodes
        except RuntimeError:  # `failure` says why
            return False

    def tell_failed(self, reason: str) -> None:
        """This machine takes no part; the others need not wait for it. What another has said before stays."""
        who = f"machine {self.machines.node_rank} ({socket.gethostname()})"
        self._tell_end({"why": f"{who} did not start: {reason}", "differ": False})

    def tell_differ(self, reason: str) -> None:
        """The settings differ: that is no machine's fault alone, and all end with the same line."""
        self._tell_end({"why": reason, "differ": True})

    def _tell_end(self, end: dict[str, Any]) -> None:
        try:
            self._store.compare_set(self._prefix + "failed", "", json.dumps(end))
            self._know_failure()
        except RuntimeError as fault:  # the store is gone, and with it those who would listen
            log.warning("the other machines could not be told: %s", _first_line(fault))

    def failure(self) -> str | None:
        """Which machine has failed to start, and why; None while none has. Does not wait."""
        fault = self._heard()
        return None if fault is None else str(fault)

    def _heard(self) -> MotrixError | None:
        key = self._prefix + "failed"
        try:
            if not self._store.check([key]):
                return None
            self._know_failure()
            end = json.loads(self._store.get(key))
        except RuntimeError as fault:  # torch's DistNetworkError
            return MotrixError(f"machine 0 ({self.machines.master_addr}) is gone: {_first_line(fault)}")
        return SettingsDifferError(end["why"]) if end["differ"] else MotrixError(end["why"])

    def leave(self) -> None:
        """After a start that failed: machine 0 stays until all others know, or a moment."""
        deadline = time.monotonic() + STAY_S
        while self.machines.node_rank == 0 and self._knows_failure and time.monotonic() < deadline:
            if int(self._store.add(self._prefix + "know", 0)) >= self.machines.nnodes:
                return
            time.sleep(LOOK_S)

    def _know_failure(self) -> None:
        if not self._knows_failure:
            self._knows_failure = True
            self._store.add(self._prefix + "know", 1)


def _quiet_store() -> Any:
    """torch's store. Only a run over several machines pays for torch in the supervisor.

    Its warnings would tear the panel (a machine without a reverse name is worth one); faults are exceptions.
    Workers, whose warnings go to their logs, do not inherit the level.
    """
    chosen = os.environ.get("TORCH_CPP_LOG_LEVEL")
    os.environ["TORCH_CPP_LOG_LEVEL"] = chosen or "ERROR"
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage] - documented

    if chosen is None:
        del os.environ["TORCH_CPP_LOG_LEVEL"]
    return TCPStore


def _first_line(fault: RuntimeError) -> str:
    """What torch says, without the C++ stack that it appends."""
    return str(fault).partition("\n")[0]


def listen(machines: Machines | None) -> socket.socket:
    """The ranks' meeting point, made before any rank starts, so that no other program can take its port."""
    host = "127.0.0.1" if machines is None else socket.gethostbyname(machines.master_addr)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((host, 0))
    listener.listen(1024)
    return listener


def interface_towards(host: str) -> str | None:
    """Name of the network interface through which a host is reached, for Gloo and NCCL to use."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # a datagram socket: nothing is sent
        address = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(item.address == address for item in addresses):
            return name
    return None


def machines_of_this_run() -> Machines | None:
    """The launcher's description, taken out of the environment."""
    return Machines.take_from(os.environ)
