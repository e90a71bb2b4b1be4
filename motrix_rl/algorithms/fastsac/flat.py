"""One flat buffer per optimiser group, and AdamW on it.

A reduction, a norm, a finite check, an optimiser step and a Polyak average are then one operation each
instead of one a parameter, and a collective copies nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn


class Reducer(Protocol):
    """What ranks in lockstep share. Calls are collective: every rank makes the same ones in order."""

    world_size: int
    rank: int

    def all_reduce_mean_(self, flat: Tensor) -> None:
        """Replaces `flat` by its mean over ranks."""

    def all_gather_f64(self, values: Tensor) -> Tensor:
        """`[W, k]`: every rank's `values` `[k]` float64, in rank order."""
        ...


def count_parameters(parameters: Iterable[nn.Parameter]) -> int:
    """Total number of elements."""
    return sum(p.numel() for p in parameters)


def bind_parameters(parameters: Iterable[nn.Parameter], flat: Tensor, grad: Tensor | None = None) -> None:
    """Moves parameters into `flat`: each becomes a view of it and keeps its values (cast).

    Args:
        parameters: In the order they take in `flat`.
        flat: `[P]` storage, P the total number of elements.
        grad: `[P]` storage that the parameters' `.grad` become views of, if given.
    """
    offset = 0
    for parameter in parameters:
        size = parameter.numel()
        view = flat[offset : offset + size].view(parameter.shape)
        view.copy_(parameter.detach())
        parameter.data = view
        if grad is not None:
            parameter.grad = grad[offset : offset + size].view(parameter.shape)
        offset += size
    assert offset == flat.numel(), "flat buffer and parameters differ in size"


@dataclass(frozen=True)
class ParamGroup:
    """A stretch of a flat buffer with its own settings.

    Attributes:
        start: First element.
        stop: One past the last element.
        learning_rate: Step size.
        weight_decay: Decoupled decay, times the learning rate.
    """

    start: int
    stop: int
    learning_rate: float
    weight_decay: float


class FlatAdamW:
    """AdamW (Loshchilov and Hutter 2019) on one flat tensor, that skips a non-finite step on the device.

    Args:
        param: `[P]` parameters.
        grad: `[P]` gradients.
        groups: Stretches to step; elements outside of them stay as they are.
        betas: Decay of the moments.
        eps: Added to the denominator.

    Attributes:
        skipped: `[]` float64, number of steps skipped. Never read in the update loop.
    """

    def __init__(
        self,
        param: Tensor,
        grad: Tensor,
        groups: list[ParamGroup],
        *,
        betas: tuple[float, float],
        eps: float = 1e-8,
    ) -> None:
        self.betas, self.eps = betas, eps
        self.exp_avg = torch.zeros_like(param)
        self.exp_avg_sq = torch.zeros_like(param)
        self.steps = torch.zeros((), dtype=torch.float32, device=param.device)
        self.skipped = torch.zeros((), dtype=torch.float64, device=param.device)
        self._groups = [
            (group, [[x[group.start : group.stop]] for x in (param, grad, self.exp_avg, self.exp_avg_sq)])
            for group in groups
        ]

    @torch.no_grad()
    def step(self, found_inf: Tensor) -> None:
        """One step; where `found_inf` (`[]` float32) is 1, everything but `skipped` stays untouched."""
        self.steps.add_(1.0).sub_(found_inf)
        for group, (param, grad, exp_avg, exp_avg_sq) in self._groups:
            torch._fused_adamw_(  # pyright: ignore[reportPrivateImportUsage]
                param,
                grad,
                exp_avg,
                exp_avg_sq,
                [],
                [self.steps],
                lr=group.learning_rate,
                beta1=self.betas[0],
                beta2=self.betas[1],
                weight_decay=group.weight_decay,
                eps=self.eps,
                amsgrad=False,
                maximize=False,
                grad_scale=None,
                found_inf=found_inf,
            )
        self.skipped.add_(found_inf)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that must be the same on every rank, parameters aside."""
        return {
            "exp_avg": self.exp_avg,
            "exp_avg_sq": self.exp_avg_sq,
            "steps": self.steps,
            "skipped": self.skipped,
        }


class LossScale:
    """Dynamic loss scale for fp16, on the device: halved at a skip, doubled after `interval` steps."""

    def __init__(self, device: torch.device, *, initial: float = 2.0**14, interval: int = 2000) -> None:
        self.interval = interval
        self.value = torch.full((), initial, dtype=torch.float32, device=device)
        self.good = torch.zeros((), dtype=torch.float32, device=device)

    def update(self, found_inf: Tensor) -> None:
        """Follows the outcome of one step (`[]` float32, 1 = skipped)."""
        self.good.add_(1.0).mul_(1.0 - found_inf)
        grow = self.good >= self.interval
        self.value.mul_(torch.where(grow, 2.0, 1.0)).mul_(1.0 - 0.5 * found_inf)
        self.good.mul_(~grow)

    def tensors(self) -> dict[str, Tensor]:
        """State that must be the same on every rank."""
        return {"value": self.value, "good": self.good}


class FlatGroup:
    """Parameters, gradients and optimiser of one reduction: what is averaged over ranks in one collective.

    Args:
        module: Its parameters come first, in order; they become views of `param`.
        extra: Further elements behind them (the temperature), outside of clipping and weight decay.
        learning_rate: Of the parameters.
        extra_learning_rate: Of the extra elements; 0 leaves them as they are.
        weight_decay: Of the parameters.
        betas: Adam's.
        max_grad_norm: 0 = off.
        device: Where all of it lies.
        dtype: Type of all of it.
        fp16: Whether gradients carry a loss scale.

    Attributes:
        param: `[P + extra]`.
        grad: `[P + extra]`; the parameters' `.grad` are views of it.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        extra: int = 0,
        learning_rate: float,
        extra_learning_rate: float = 0.0,
        weight_decay: float,
        betas: tuple[float, float],
        max_grad_norm: float,
        device: torch.device,
        dtype: torch.dtype,
        fp16: bool = False,
    ) -> None:
        self.parameters = list(module.parameters())
        self.size = count_parameters(self.parameters)
        self.param = torch.zeros(self.size + extra, dtype=dtype, device=device)
        self.grad = torch.zeros_like(self.param)
        bind_parameters(self.parameters, self.param[: self.size], self.grad[: self.size])
        groups = [ParamGroup(0, self.size, learning_rate, weight_decay)]
        if extra and extra_learning_rate > 0:
            groups.append(ParamGroup(self.size, self.size + extra, extra_learning_rate, 0.0))
        self.optimizer = FlatAdamW(self.param, self.grad, groups, betas=betas)
        self.max_grad_norm = max_grad_norm
        self.loss_scale = LossScale(device) if fp16 else None

    def backward(self, loss: Tensor) -> None:
        """Writes the loss's gradient by this group's parameters, and by nothing else, into `grad`."""
        self.grad.zero_()
        if self.loss_scale is not None:
            loss = loss * self.loss_scale.value
        torch.autograd.backward(loss, inputs=self.parameters)

    def reduce(self, reducer: Reducer | None) -> None:
        """Averages the gradients over the ranks, in one collective; alone there is nothing to do."""
        if reducer is not None:
            reducer.all_reduce_mean_(self.grad)

    @torch.no_grad()
    def step(self) -> tuple[Tensor, Tensor]:
        """Unscale, check, clip, step; on the device throughout.

        The check is on reduced gradients, so that all ranks skip, or none, without asking each other: one
        rank's NaN makes the mean NaN everywhere.

        Returns:
            `(norm, found_inf)`, both `[]`: gradient norm before clipping, and 1.0 if the step was skipped.
        """
        if self.loss_scale is not None:
            self.grad[: self.size].div_(self.loss_scale.value)
        body = self.grad[: self.size]
        norm = torch.dot(body, body).sqrt_()
        total = norm if self.size == self.grad.numel() else norm + self.grad[self.size :].sum()
        found_inf = torch.sub(total, total).ne(0.0).to(torch.float32)  # 0 of what is finite, NaN of the rest
        if self.max_grad_norm > 0:
            body.mul_((self.max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))
        self.optimizer.step(found_inf)
        if self.loss_scale is not None:
            self.loss_scale.update(found_inf)
        return norm, found_inf

    def tensors(self) -> dict[str, Tensor]:
        """Everything that must be the same on every rank."""
        named = {"param": self.param}
        named |= {f"optimizer.{name}": tensor for name, tensor in self.optimizer.tensors().items()}
        if self.loss_scale is not None:
            named |= {f"loss_scale.{name}": tensor for name, tensor in self.loss_scale.tensors().items()}
        return named
