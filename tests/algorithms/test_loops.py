"""The compiled loops of a host update: precision, numbers that are none, and what is kept of them on disk."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba.core.caching
import numpy as np
import pytest
import torch
from torch.nn.functional import layer_norm, silu

from motrix_rl.algorithms.fastsac import loops, losses
from motrix_rl.algorithms.fastsac.loops.compiling import loop
from tests.algorithms.helpers_algorithms import make_agent, random_batch, small_config

NAN = float("nan")


def norm_silu(x: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
    """`silu(gain * layer_norm(x))` by the loop."""
    x, like = x.clone(), x[:, :1]
    out, slope = torch.empty_like(x), torch.empty_like(x)
    given = (
        x,
        torch.full_like(like, gain),
        torch.zeros_like(like),
        slope,
        out,
        torch.empty(x.shape[:2]).to(x),
    )
    loops.norm_silu(*(tensor.numpy() for tensor in given), 1e-5)
    return out


def norm_silu_only(x: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
    """`silu(gain * layer_norm(x))` by the loop that keeps nothing for a gradient."""
    x, width = x.clone(), x.shape[2]
    filled = (np.full((len(x), 1, width), value, np.float32) for value in (gain, 0.0))
    loops.norm_silu_only(x.numpy(), *filled, 1e-5)
    return x


@pytest.mark.parametrize("gain", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("width", [1, 7, 8, 32, 51, 128])
def test_single_precision_is_that_of_tensors(width: int, gain: float) -> None:
    x = 5.0 * torch.randn(2, 64, width, generator=torch.Generator().manual_seed(width))
    expected = silu(gain * layer_norm(x.double(), (width,), eps=1e-5))
    # Two roundings of the normalised value are amplified by the gain.
    for loop_of in (norm_silu, norm_silu_only):
        torch.testing.assert_close(loop_of(x, gain).double(), expected, rtol=4e-6, atol=2e-6 * gain)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_softmax_holds_for_logits_of_any_size(scale: float) -> None:
    logits = scale * torch.randn(2, 64, 51, generator=torch.Generator().manual_seed(0))
    expected = torch.softmax(logits.double(), -1)
    loops.softmax(logits.numpy())
    torch.testing.assert_close(logits.double(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.covers("A2")
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("dims", [1, 6, 29, 300])
def test_sampled_actions_are_those_of_squash_where_tanh_saturates_too(dims: int, spread: float) -> None:
    g = torch.Generator().manual_seed(dims)
    head, noise = spread * torch.randn(64, 2 * dims, generator=g), torch.randn(64, dims, generator=g)
    scale, bias = 0.1 + torch.rand(dims, generator=g), torch.randn(dims, generator=g)
    action, squashed, std, d_std = torch.empty(4, 64, dims).unbind(0)
    log_prob = torch.empty(64)
    given = (head, noise, scale, bias)
    written = (action, log_prob, squashed, std, d_std)
    loops.sample_action(*(x.numpy() for x in given), -5.0, 2.0, *(x.numpy() for x in written))

    mean, raw = head.double().chunk(2, -1)
    log_std = 3.5 * (torch.tanh(raw) + 1.0) - 5.0
    expected, log_prob_unit = losses.squash(mean, log_std, noise.double())
    rounding = 1e-6 + 3e-7 * spread  # of a mean of that size, before tanh
    torch.testing.assert_close(squashed.double(), expected, rtol=0, atol=rounding)
    torch.testing.assert_close(action.double(), expected * scale + bias, rtol=0, atol=2.0 * rounding)
    torch.testing.assert_close(
        log_prob.double(), log_prob_unit - scale.double().log().sum(), rtol=1e-5, atol=2e-5 * dims
    )


def probs(logits: torch.Tensor) -> torch.Tensor:
    loops.softmax(logits.numpy())
    return logits


def target(logits: torch.Tensor, mode: str = "own") -> torch.Tensor:
    out = torch.empty(2 if mode == "own" else 1, *logits.shape[1:])
    one = torch.ones(logits.shape[1])
    given = (logits, torch.linspace(-3, 3, logits.shape[2]), one, 0.5 * one, one, torch.zeros(1))
    loops.soft_target(*(tensor.numpy() for tensor in given), loops.MODES[mode], out.numpy())
    return out


def critic(logits: torch.Tensor) -> torch.Tensor:
    goal = torch.full_like(logits, 1.0 / logits.shape[2])
    loops.critic_gradient(logits.numpy(), goal.numpy(), np.ones(logits.shape[1], np.float32))
    return logits


def value(logits: torch.Tensor) -> torch.Tensor:
    support, values = (
        np.linspace(-3, 3, logits.shape[2], dtype=np.float32),
        np.empty(logits.shape[:2], np.float32),
    )
    loops.value_gradient(logits.numpy(), support, loops.MODES["mean"], values)
    return logits


@pytest.mark.covers("D9")
@pytest.mark.parametrize("found", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("by", [norm_silu, norm_silu_only, probs, target, critic, value])
def test_a_number_that_is_none_stays_one_in_its_row_and_nowhere_else(
    by: Callable[[torch.Tensor], torch.Tensor], found: float
) -> None:
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    clean = by(x.clone())
    spoilt = x.clone()
    spoilt[1, 3, 6] = found
    out = by(spoilt)
    # A softmax gives an atom of -inf no mass, which is right.
    if not (found == -float("inf") and by not in (norm_silu, norm_silu_only)):
        assert out[1, 3].isnan().any()
    others = torch.ones(2, 5, dtype=torch.bool)
    others[1, 3] = False
    assert torch.equal(out[others], clean[others])


@pytest.mark.covers("D9")
@pytest.mark.parametrize("mode", ["own", "min", "mean"])
def test_a_target_of_nan_is_nan_in_every_mode(mode: str) -> None:
    logits = torch.zeros(2, 5, 16)
    logits[:, 3] = NAN
    out = target(logits, mode)
    assert out[:, 3].isnan().any(-1).all()
    assert not out[:, [0, 1, 2, 4]].isnan().any()


@pytest.mark.covers("D9")
@pytest.mark.parametrize(
    ("where", "found"),  # an infinite reward is clipped onto the last atom
    [
        ("observations", NAN),
        ("observations", float("inf")),
        ("action", NAN),
        ("action", float("inf")),
        ("reward", NAN),
    ],
)
def test_an_update_on_what_is_no_number_is_skipped_whole(where: str, found: float) -> None:
    agent = make_agent(small_config(reward_scaling=False))
    noise = torch.randn(2, 16, 3, generator=torch.Generator().manual_seed(0))
    agent.update_on(random_batch(16), noise[0], noise[1])
    before = agent.critic_group.param.clone()
    batch = random_batch(16, seed=1)
    getattr(batch, where).view(-1)[4] = found
    agent.update_on(batch, noise[0], noise[1])
    assert torch.equal(agent.critic_group.param, before)
    assert agent.metrics()["nonfinite_skips"] >= 1


CHILD = """
import numpy as np
from motrix_rl.algorithms.fastsac import loops, losses
loops.softmax(np.zeros((1, 2, 3), np.float32))
print(sum(loops.softmax.stats.cache_hits.values()), sum(loops.softmax.stats.cache_misses.values()))
"""


def compile_in_a_child(program: str = CHILD, **environment: str) -> str:
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.strip()


def test_what_is_compiled_is_kept_for_the_next_process(tmp_path: Path) -> None:
    assert compile_in_a_child(XDG_CACHE_HOME=str(tmp_path)) == "0 1"
    (directory,) = (tmp_path / "motrix-rl").iterdir()
    assert directory.name.startswith("loops-")
    assert compile_in_a_child(XDG_CACHE_HOME=str(tmp_path)) == "1 0"


def test_what_is_not_kept_is_compiled_beside_what_is(tmp_path: Path) -> None:
    """What is kept is loaded without the rest of Numba, which a compilation then needs."""
    compile_in_a_child(XDG_CACHE_HOME=str(tmp_path))
    mixed = """
import numpy as np
from motrix_rl.algorithms.fastsac import loops
for kind in (np.float32, np.float64):
    x = np.arange(6, dtype=kind).reshape(1, 2, 3)
    e = np.exp(x - x.max(2, keepdims=True))
    loops.softmax(x)
    np.testing.assert_allclose(x, e / e.sum(2, keepdims=True), rtol=1e-6)
print(sum(loops.softmax.stats.cache_hits.values()), sum(loops.softmax.stats.cache_misses.values()))
"""
    assert compile_in_a_child(mixed, XDG_CACHE_HOME=str(tmp_path)) == "1 1"
    assert compile_in_a_child(mixed, XDG_CACHE_HOME=str(tmp_path)) == "2 0"


def test_a_numba_that_cannot_load_it_alone_loads_it_by_its_own_way(tmp_path: Path) -> None:
    without = f"from motrix_rl.algorithms.fastsac.loops import compiling\ncompiling.rtsys = None\n{CHILD}"
    assert compile_in_a_child(XDG_CACHE_HOME=str(tmp_path)) == "0 1"
    assert compile_in_a_child(without, XDG_CACHE_HOME=str(tmp_path)) == "1 0"


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("left", [0, 100])
def test_what_a_crash_has_cut_off_is_compiled_anew_and_kept(ending: str, left: int, tmp_path: Path) -> None:
    compile_in_a_child(XDG_CACHE_HOME=str(tmp_path))
    (path,) = tmp_path.rglob(f"objectives.softmax*.{ending}")
    path.write_bytes(path.read_bytes()[:left])
    assert compile_in_a_child(XDG_CACHE_HOME=str(tmp_path)) == "0 1"
    assert compile_in_a_child(XDG_CACHE_HOME=str(tmp_path)) == "1 0"


def test_who_names_numbas_directory_gets_it_there(tmp_path: Path) -> None:
    assert (
        compile_in_a_child(NUMBA_CACHE_DIR=str(tmp_path / "own"), XDG_CACHE_HOME=str(tmp_path / "xdg"))
        == "0 1"
    )
    assert list((tmp_path / "own").iterdir())
    assert not (tmp_path / "xdg").exists()


def test_numbas_debugging_switch_is_not_for_these(tmp_path: Path) -> None:
    assert compile_in_a_child(NUMBA_DISABLE_JIT="1", XDG_CACHE_HOME=str(tmp_path)) == "0 1"


PREPARE = """
import sys, torch
from tests.algorithms.helpers_algorithms import make_agent, random_batch, small_config
agent = make_agent(small_config())
before, loaded = agent.parameter_hash(), "numba" in sys.modules
told = agent.preparation
agent.prepare(random_batch(16), torch.zeros(16, 3))
assert agent.parameter_hash() == before and agent.updates_done == 0
print(told, "numba" in sys.modules and not loaded)
"""


def test_an_agent_says_whether_its_first_update_compiles_and_loads_nothing_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"XDG_CACHE_HOME": str(tmp_path)}
    assert compile_in_a_child(PREPARE, **place) == "compiles True"
    assert compile_in_a_child(PREPARE, **place) == "loads True"
    (directory,) = (tmp_path / "motrix-rl").iterdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    agent = make_agent(small_config())
    assert agent.preparation == "loads"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert agent.preparation == "compiles"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    (directory / "all-kept").unlink()
    assert agent.preparation == "compiles"


def double(x: Any) -> Any:
    return x + x


def test_a_full_disk_costs_only_the_next_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(numba.core.caching.FunctionCache, "save_overload", full)
    assert loop(double)(2.0) == 4.0
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "double is compiled again at the next start: [Errno 28] No space left on device" in record.message


def test_without_a_directory_it_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: Any) -> None:
        raise RuntimeError("cannot cache function 'double': no locator available")

    monkeypatch.setattr(numba.core.caching.FunctionCache, "__init__", nowhere)
    assert loop(double)(2.0) == 4.0
