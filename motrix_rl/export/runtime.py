# pyright: reportMissingImports=false
# (onnxruntime is an extra)
"""Acting with an exported policy, in onnxruntime alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from motrix_rl.export.errors import ExportError

Float32 = NDArray[np.float32]


class OnnxPolicy:
    """An exported policy; loads no torch.

    Args:
        path: the file.
        num_threads: threads of onnxruntime.

    Attributes:
        metadata: the strings stored in the file.
        obs_dim: size O of an observation.
        action_dim: size A of an action.

    Raises:
        ExportError: the file is none of ours, or damaged.
    """

    def __init__(self, path: Path, num_threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads
        options.inter_op_num_threads = 1
        # Severity 4 is fatal: what it can tell us is in the exception already.
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                path.read_bytes(), options, providers=["CPUExecutionProvider"]
            )
        except OSError as error:
            raise ExportError(f"cannot read {path}: {error.strerror}") from error
        except Exception as error:
            raise ExportError(f"{path} is not an ONNX model that onnxruntime can run: {error}") from error
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1 or len(inputs[0].shape) != 2 or len(outputs[0].shape) != 2:
            raise ExportError(f"{path} is not a policy: it needs one input [batch, obs] and one output")
        self._input, self._output = inputs[0].name, outputs[0].name
        self.obs_dim, self.action_dim = int(inputs[0].shape[1]), int(outputs[0].shape[1])
        self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)

    def act(self, obs: Float32, out: Float32) -> None:
        """Actions for `obs` [N, O] float32, written to `out` [N, A] float32."""
        np.copyto(out, np.asarray(self._session.run([self._output], {self._input: obs})[0]))
