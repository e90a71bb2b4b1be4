"""Flat groups: views, AdamW, clipping after the reduction, and steps that are skipped."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from motrix_rl.algorithms.fastsac.flat import FlatGroup, LossScale


class FakeReducer:
    """One rank of two; what the other contributes is made from this rank's gradient."""

    world_size = 2
    rank = 0

    def __init__(self, other: Any) -> None:
        self.other = other

    def all_reduce_mean_(self, flat: torch.Tensor) -> None:
        flat.copy_((flat + self.other(flat)) / 2)

    def all_gather_f64(self, values: torch.Tensor) -> torch.Tensor:
        return torch.stack([values, values])


def step(group: FlatGroup, reducer: FakeReducer) -> tuple[torch.Tensor, torch.Tensor]:
    group.reduce(reducer)
    return group.step()


def make_group(module: nn.Module, **changes: Any) -> FlatGroup:
    settings: dict[str, Any] = {
        "learning_rate": 1e-2,
        "weight_decay": 1e-1,
        "betas": (0.9, 0.95),
        "max_grad_norm": 0.0,
        "device": torch.device("cpu"),
        "dtype": torch.float32,
    }
    return FlatGroup(module, **(settings | changes))


def test_parameters_and_gradients_are_views_of_the_flat_buffers() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    before = [p.detach().clone() for p in module.parameters()]
    group = make_group(module)
    for parameter, value in zip(module.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
        assert parameter.grad is not None
        assert parameter.untyped_storage().data_ptr() == group.param.untyped_storage().data_ptr()
        assert parameter.grad.untyped_storage().data_ptr() == group.grad.untyped_storage().data_ptr()
    group.backward(module(torch.ones(1, 3)).sum())
    assert torch.equal(group.grad, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))  # type: ignore[union-attr]
    group.backward(module(torch.ones(1, 3)).sum())  # zeroed, not accumulated
    assert float(group.grad[-1]) == 1.0


def test_equals_torch_adamw_over_many_steps() -> None:
    torch.manual_seed(0)
    mine, reference = nn.Linear(6, 5), nn.Linear(6, 5)
    reference.load_state_dict(mine.state_dict())
    group = make_group(mine)
    optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=1e-1)
    for _ in range(20):
        x = torch.randn(8, 6)
        group.backward(mine(x).square().sum())
        group.step()
        optimizer.zero_grad()
        reference(x).square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(mine.weight, reference.weight, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mine.bias, reference.bias, rtol=1e-5, atol=1e-6)


def test_extra_elements_have_their_own_rate_and_no_decay() -> None:
    module = nn.Linear(2, 1)
    group = make_group(module, extra=1, extra_learning_rate=0.5)
    group.param[-1] = 3.0
    group.grad.zero_()
    group.step()
    assert float(group.param[-1]) == 3.0  # no gradient, and no decay
    group.grad[-1] = 1.0
    group.step()
    assert float(group.param[-1]) < 3.0
    frozen = make_group(nn.Linear(2, 1), extra=1, extra_learning_rate=0.0)
    frozen.grad.fill_(1.0)
    frozen.step()
    assert float(frozen.param[-1]) == 0.0


@pytest.mark.covers("D9")
def test_opposite_gradients_cancel_before_clipping() -> None:
    group = make_group(nn.Linear(3, 3), max_grad_norm=1.0, weight_decay=0.0)
    before = group.param.clone()
    group.grad.copy_(torch.linspace(-40.0, 30.0, group.grad.numel()))
    norm, found_inf = step(group, FakeReducer(lambda g: -g))
    assert float(norm) == 0.0 and float(found_inf) == 0.0
    assert torch.equal(group.param, before)


@pytest.mark.covers("D9")
def test_clipped_after_the_reduction() -> None:
    # (6, 8) here and (0, 0) there: the mean (3, 4) has norm 5, and is cut to 2.5: (1.5, 2).
    group = make_group(nn.Linear(1, 1), max_grad_norm=2.5)
    group.grad.copy_(torch.tensor([6.0, 8.0]))
    norm, _ = step(group, FakeReducer(torch.zeros_like))
    assert float(norm) == pytest.approx(5.0)
    torch.testing.assert_close(group.grad, torch.tensor([1.5, 2.0]))


@pytest.mark.covers("D9")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("element", [0, -1], ids=["parameter", "extra"])
@pytest.mark.parametrize("here", [True, False], ids=["this rank", "other rank"])
def test_non_finite_gradient_on_any_rank_skips_the_step(value: float, element: int, here: bool) -> None:
    group = make_group(nn.Linear(3, 2), extra=1, extra_learning_rate=0.1, max_grad_norm=1.0)
    group.grad.fill_(0.5)
    group.step()  # so that there are moments to keep
    before = {name: tensor.clone() for name, tensor in group.tensors().items()}

    def spoilt(flat: torch.Tensor) -> torch.Tensor:
        flat = flat.clone()
        flat[element] = value
        return flat

    group.grad.fill_(0.5)
    if here:
        group.grad[element] = value
    _, found_inf = step(group, FakeReducer(torch.clone if here else spoilt))
    assert float(found_inf) == 1.0
    for name, tensor in group.tensors().items():
        expected = before[name] + 1 if name == "optimizer.skipped" else before[name]
        assert torch.equal(tensor, expected), name

    group.grad.fill_(0.5)  # and the next step is taken as if nothing had been
    group.step()
    assert float(group.optimizer.steps) == 2.0
    assert torch.isfinite(group.param).all()


def test_loss_scale_halves_on_a_skip_and_doubles_after_good_steps() -> None:
    scale = LossScale(torch.device("cpu"), initial=8.0, interval=3)
    good, bad = torch.tensor(0.0), torch.tensor(1.0)
    values = []
    for outcome in (bad, good, good, good, good, bad):
        scale.update(outcome)
        values.append(float(scale.value))
    assert values == [4.0, 4.0, 4.0, 8.0, 8.0, 4.0]


def test_scaled_loss_gives_the_same_step() -> None:
    torch.manual_seed(0)
    plain, scaled = nn.Linear(3, 2), nn.Linear(3, 2)
    scaled.load_state_dict(plain.state_dict())
    groups = make_group(plain), make_group(scaled, fp16=True)
    x = torch.randn(4, 3)
    for module, group in zip((plain, scaled), groups, strict=True):
        group.backward(module(x).square().sum())
    torch.testing.assert_close(groups[1].grad, groups[0].grad * 2.0**14)
    norms = [group.step()[0] for group in groups]
    torch.testing.assert_close(norms[1], norms[0])
    torch.testing.assert_close(groups[1].param, groups[0].param)
