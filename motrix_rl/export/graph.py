# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# (onnx is an extra)
"""A policy's layers as an ONNX graph.

The graph is written node by node from the standard layers that `DeterministicPolicy` is made of. torch's own
exporter traces anything, for which it needs a package more and some seconds; a policy is a short list of
layers, and this way the file does not depend on the version of torch that happened to write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from motrix_rl.export.errors import ExportError

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.networks import DeterministicPolicy

INPUT, OUTPUT = "obs", "action"
#: The oldest operators that have LayerNormalization, and their file format: old runtimes read it.
OPSET, IR_VERSION = 17, 8


class GraphWriter:
    """Nodes and weights, one after another; each method appends a step and moves `at` to its output."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.at = INPUT

    def constant(self, name: str, value: Tensor) -> str:
        """Adds a weight."""
        self.weights.append(numpy_helper.from_array(value.detach().cpu().numpy().astype(np.float32), name))
        return name

    def apply(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Adds a node whose first input is where the writer is, and goes on from its output."""
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.at, *inputs], [output], **attributes))
        self.at = output
        return output

    def layer(self, name: str, layer: nn.Module) -> None:
        """Adds one standard layer.

        Raises:
            ExportError: it is of a kind that is not known here.
        """
        if isinstance(layer, nn.Linear):
            weight, bias = (
                self.constant(f"{name}.weight", layer.weight),
                self.constant(f"{name}.bias", layer.bias),
            )
            self.apply("Gemm", weight, bias, transB=1)
        elif isinstance(layer, nn.LayerNorm):
            gain, offset = (
                self.constant(f"{name}.weight", layer.weight),
                self.constant(f"{name}.bias", layer.bias),
            )
            self.apply("LayerNormalization", gain, offset, axis=-1, epsilon=layer.eps)
        elif isinstance(layer, nn.SiLU):
            before = self.at
            self.apply("Sigmoid")
            self.apply("Mul", before)
        else:
            raise ExportError(f"cannot write the layer {type(layer).__name__} as ONNX")


def policy_graph(
    policy: DeterministicPolicy, low: Tensor, high: Tensor, metadata: Mapping[str, str]
) -> onnx.ModelProto:
    """The whole policy: normaliser, network, squashing, action scaling and bounds.

    Args:
        policy: its layers.
        low: [A] lowest actions.
        high: [A] highest actions; scaling may round past either by one bit.
        metadata: strings that are stored in the file.

    Returns:
        A checked model with one input `obs` [batch, O] and one output `action` [batch, A], float32.

    Raises:
        ExportError: a layer has no place in the graph.
    """
    graph = GraphWriter()
    graph.apply("Sub", graph.constant("normalizer.mean", policy.shift))
    graph.apply("Mul", graph.constant("normalizer.scale", policy.scale))
    for name, layer in policy.body.named_children():
        graph.layer(f"body.{name}", layer)
    graph.apply("Tanh")
    graph.apply("Mul", graph.constant("action.scale", policy.scaling.scale))
    graph.apply("Add", graph.constant("action.bias", policy.scaling.bias))
    graph.apply("Max", graph.constant("action.low", low))
    graph.apply("Min", graph.constant("action.high", high), output=OUTPUT)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "policy",
            [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", policy.shift.numel()])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", low.numel()])],
            graph.weights,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="motrix_rl",
    )
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    return model
