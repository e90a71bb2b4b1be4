# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled modules come without stubs)
"""`ForceBatch`: MuJoCo's batch, and after each step the external forces on every body (`cfrc_ext`).

`mj_step` leaves `cfrc_ext` alone unless a sensor asks for it; `mj_rnePostConstraint` computes it.
`mujoco.batch.Batch` offers no way to run that function on the worlds it holds, but the C interface below it
does (`mjb_apply` in mujoco/mjbatch.h), on its own threads. Copying each world's `MjData` out instead costs
16 us a world in one Python thread, half as much as stepping a humanoid on 12.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import SimulationError
from numpy.typing import NDArray

_STAGE_NONE = int(mujoco.mjtStage.mjSTAGE_NONE)
_STATE_COMPONENTS = {
    "time": mujoco.mjtState.mjSTATE_TIME,
    "qpos": mujoco.mjtState.mjSTATE_QPOS,
    "qvel": mujoco.mjtState.mjSTATE_QVEL,
    "act": mujoco.mjtState.mjSTATE_ACT,
    "qacc_warmstart": mujoco.mjtState.mjSTATE_WARMSTART,
    "ctrl": mujoco.mjtState.mjSTATE_CTRL,
}


class _Config(ctypes.Structure):
    """`mjBatchConfig`."""

    _fields_ = (("nthread", ctypes.c_int), ("persistent", ctypes.c_bool))


def _load_library() -> ctypes.CDLL:
    # The library that the bindings have loaded already; a second load returns the same one.
    (path,) = Path(mujoco.__file__).parent.glob("libmujoco.so.*")
    library = ctypes.CDLL(str(path))
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    sizes = (ctypes.POINTER(integer), ctypes.POINTER(integer))
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "mjb_makeBatch": (pointer, (pointer, integer, ctypes.POINTER(_Config), ctypes.c_char_p, integer)),
        "mjb_deleteBatch": (None, (pointer,)),
        "mjb_nstate": (integer, (pointer,)),
        "mjb_state": (pointer, (pointer,)),
        "mjb_stateComponent": (pointer, (pointer, integer, sizes[0])),
        "mjb_warning": (pointer, (pointer,)),
        "mjb_status": (pointer, (pointer,)),
        "mjb_error": (ctypes.c_char_p, (pointer, integer)),
        "mjb_output": (pointer, (pointer, ctypes.c_char_p, *sizes)),
        "mjb_step": (integer, (pointer, pointer, integer, integer, integer)),
        "mjb_forward": (integer, (pointer, pointer, integer, integer)),
        "mjb_reset": (integer, (pointer, pointer, integer, pointer, integer)),
        "mjb_apply": (integer, (pointer, pointer, integer, pointer, pointer, integer)),
        "mjb_getData": (None, (pointer, integer, pointer)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_mj = _load_library()
# Called as func(model, data, sim, arg); it takes the first two. Under the C calling conventions of x86-64
# and aarch64 Linux the caller owns the rest, so that they are ignored.
_post_constraint = ctypes.cast(_mj.mj_rnePostConstraint, ctypes.c_void_p)


class _Handle:
    """Owns an `mjBatch`; lives as long as the batch or any array over its memory."""

    def __init__(self, model: mujoco.MjModel, nsim: int, nthread: int) -> None:
        config = _Config(nthread, True)
        message = ctypes.create_string_buffer(1024)
        self.pointer = _mj.mjb_makeBatch(model._address, nsim, ctypes.byref(config), message, 1024)
        if not self.pointer:
            raise MemoryError(f"MuJoCo cannot make a batch: {message.value.decode()}")
        self._delete = _mj.mjb_deleteBatch

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._delete(self.pointer)
            self.pointer = None


class ForceBatch:
    """The part of `mujoco.batch.Batch` that environments use, one `MjData` a world, with current `cfrc_ext`.

    Attributes:
        state: [nsim, nstate] float64, live rows of every world's integration state.
        warning: [nsim, number of warnings, 2] int32, live (last info, count).
    """

    def __init__(self, model: mujoco.MjModel, nsim: int, nthread: int) -> None:
        self.model = model
        self.nsim = nsim
        self.nthread = nthread
        self._handle = _Handle(model, nsim, nthread)
        self._template = mujoco.MjData(model)
        self._bound: dict[str, NDArray[Any]] = {}
        self.nstate: int = _mj.mjb_nstate(self._handle.pointer)
        self.state = self._array(_mj.mjb_state(self._handle.pointer), np.float64, (nsim, self.nstate))
        warnings = int(mujoco.mjtWarning.mjNWARNING)
        self.warning = self._array(_mj.mjb_warning(self._handle.pointer), np.int32, (nsim, warnings, 2))
        self._status = self._array(_mj.mjb_status(self._handle.pointer), np.int32, (nsim,))

    def _array(self, address: int, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory: Any = (ctypes.c_char * size).from_address(address)
        memory.owner = self._handle
        return np.frombuffer(memory, dtype).reshape(shape)

    def bind(self, name: str) -> NDArray[Any]:
        """Returns a live [nsim, ...] array over an MjData field: a view of the state, or an output.

        Raises:
            ValueError: it is neither.
        """
        if name in self._bound:
            return self._bound[name]
        if name in _STATE_COMPONENTS:
            size = ctypes.c_int()
            component = int(_STATE_COMPONENTS[name])
            address = _mj.mjb_stateComponent(self._handle.pointer, component, ctypes.byref(size))
            start = (address - self.state.ctypes.data) // self.state.itemsize
            array = self.state[:, start : start + size.value]
            return array[:, 0] if name == "time" else array
        template = getattr(self._template, name, None)
        address = _mj.mjb_output(self._handle.pointer, name.encode(), None, None)
        if not address or not isinstance(template, np.ndarray):
            raise ValueError(f"{name} is not an MjData field that a batch can give")
        array = self._array(address, template.dtype, (self.nsim, *template.shape))
        array.flags.writeable = False
        self._bound[name] = array
        return array

    def step(self, ids: NDArray[np.int32] | None = None, nstep: int = 1, stage: int = 0) -> None:
        """Advances worlds by `nstep` calls of `mj_step`, then computes `cfrc_ext`."""
        args = _ids(ids)
        self._check(ids, _mj.mjb_step(self._handle.pointer, *args, nstep, stage))
        self._check(ids, _mj.mjb_apply(self._handle.pointer, *args, _post_constraint, None, 0))
        # mjb_apply changes the worlds' MjData and copies nothing out; a call that computes no stage does.
        self._check(ids, _mj.mjb_forward(self._handle.pointer, *args, _STAGE_NONE))

    def forward(self, ids: NDArray[np.int32] | None = None, stage: int = 3) -> None:
        """Computes the forward stages at the present state; as `mj_forward`, it leaves `cfrc_ext` alone."""
        self._check(ids, _mj.mjb_forward(self._handle.pointer, *_ids(ids), stage))

    def reset(self, ids: NDArray[np.int32] | None = None, stage: int = 3) -> None:
        """Puts worlds back to the model's defaults, then computes stages."""
        self._check(ids, _mj.mjb_reset(self._handle.pointer, *_ids(ids), None, stage))

    def error(self, sim: int) -> str:
        """Returns the message of the error that world `sim` raised in its last call, or ''."""
        return _mj.mjb_error(self._handle.pointer, sim).decode()

    def get_data(self, sim: int, data: mujoco.MjData | None = None) -> mujoco.MjData:
        """Returns world `sim` as an `MjData`, derived fields included."""
        target = mujoco.MjData(self.model) if data is None else data
        _mj.mjb_getData(self._handle.pointer, sim, target._address)
        return target

    def _check(self, ids: NDArray[np.int32] | None, failures: int) -> None:
        if failures:
            asked = np.arange(self.nsim) if ids is None else ids
            failed = asked[self._status[asked] != 0]
            raise SimulationError(failed, self.error(int(failed[0])), len(asked))


def _ids(ids: NDArray[np.int32] | None) -> tuple[int | None, int]:
    """Returns address and length; the caller keeps the array alive over the call."""
    if ids is None:
        return None, 0
    assert ids.dtype == np.int32, ids.dtype
    assert ids.flags.c_contiguous, "ids are read through their address"
    return ids.ctypes.data, len(ids)
