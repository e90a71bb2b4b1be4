"""U1: a mistake gets one line that says what is wrong and names the nearest thing that is right."""

from __future__ import annotations

import pytest

from motrix_rl.config import load_config
from motrix_rl.errors import UsageError

MISTAKES: list[tuple[str, str]] = [
    # keys and groups
    ("num_env=3", "num_env is not an option; did you mean 'num_envs'?"),
    ("NUM_ENVS=3", "'num_envs'"),
    ("num-envs=3", "'num_envs'"),
    ("algo.agnet.gamma=0.9", "'algo.agent.gamma'"),
    ("algo.agent.gama=0.9", "'algo.agent.gamma'"),
    ("alg.agnet.gama=0.9", "'algo.agent.gamma'"),
    ("gamma=0.9", "'algo.agent.gamma'"),
    ("num_collectors=4", "'algo.trainer.async_options.num_collectors'"),
    ("algo.trainer.num_collectors=4", "'algo.trainer.async_options.num_collectors'"),
    ("async_options.num_colectors=4", "'algo.trainer.async_options.num_collectors'"),
    ("chekpoint.interval=3", "'checkpoint.interval'"),
    ("logging.intervall=3", "'logging.interval'"),
    ("env.max_episode_step=3", "'env.max_episode_steps'"),
    ("env.foo=3", "env has: max_episode_steps"),
    ("tsk=hopper/mujoco.fastsac", "'task'"),
    ("zzzzzzzz=1", "zzzzzzzz is not an option; --help lists all options"),
    # groups and leaves
    ("algo.agent=3", "is a group of options"),
    ("algo.agent={gamma: 0.9}", "is a group of options"),
    ("env=3", "is a group of options"),
    ("num_envs.foo=1", "num_envs is a single option"),
    # tasks, backends, algorithms
    ("task=cartpol/mujoco.fastsac", "'cartpole-swingup'"),
    ("task=HalfCheetah/mujoco.fastsac", "'halfcheetah'"),
    ("task=hopper/mujco.fastsac", "'mujoco'"),
    ("task=hopper/mujoco.fastsca", "'fastsac'"),
    ("task=hopper", "hopper/mujoco.fastsac"),
    ("task=gymnasium:Pendulum-v1/gymnasum.fastsac", "'gymnasium'"),
    # values
    ("num_envs=abc", "num_envs=abc is not valid; expected int, >= 1"),
    ("num_envs=2.5", "expected int"),
    ("num_envs=true", "expected int"),
    ("num_envs=[1]", "expected int"),
    ("num_envs=0", "must be >= 1"),
    ("num_envs=", "has no value"),
    ("num_envs=[1", "not a valid value"),
    ("seed=null", "expected int"),
    ("seed=-1", "must be >= 0"),
    ("algo.agent.gamma=1.5", "<= 1.0"),
    ("algo.agent.gamma=.inf", "expected float"),
    ("algo.agent.gamma=.nan", "expected float"),
    ("algo.agent.gamma=high", "expected float"),
    ("logging.level=warn", "'warning'"),
    ("logging.tensorboard=ture", "'true'"),
    ("algo.trainer.async_options.utd_mode=strct", "'strict'"),
    ("algo.trainer.async_options.transition_ipc=ON", "'on'"),
    ("algo.trainer.async_options.ring_capacity=2", "must be >= 3"),
    ("algo.trainer.async_options.num_collectors=nul", "'null'"),
    ("env.max_episode_steps=0", "must be >= 1"),
    ("env.max_episode_steps=abc", "expected int | null"),
    # relations
    ("algo.agent.v_min=6", "must be below v_max"),
    ("algo.agent.learning_starts=2000000", "at most 1000000"),
    (
        "algo.agent.n_step=1 algo.agent.learning_starts=0 algo.agent.buffer_size=50",
        "num_envs=16 or algo.agent.buffer_size=96",
    ),
    ("num_envs=1e9", "num_envs=200000 or algo.agent.buffer_size=5000000000"),
    # words
    ("num_envs", "did you mean 'num_envs=...'"),
    ("num_envs=3 num_envs=4", "given twice"),
    ("num_envs=3 seed=1 num_envs=3", "given twice"),
    ("=3", "no option before the '='"),
    ("hopper/mujoco.fastsac", "'task=hopper/mujoco.fastsac'"),
    ("--num_envs=3", "'num_envs=3'"),
    ("--num-envs 3", "'num_envs=...'"),
    ("--hlp", "'--help'"),
    ("--print_config", "'--print-config'"),
    # runs
    ("resume=/nowhere/at/all", "no run or checkpoint"),
    ("resume=nonsense", "valid: latest, best, auto, or the directory of a run or checkpoint"),
    ("resume=atuo", "did you mean 'auto'"),
    ("run_dir=${oops", "cannot be merged"),
]


@pytest.mark.covers("U1")
@pytest.mark.parametrize(("words", "expected"), MISTAKES)
def test_each_mistake_gets_its_line(words: str, expected: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        load_config(words.split(" ") if "{" not in words else [words], ("--help", "--print-config"))
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message
    assert "pydantic" not in message
