"""The task of our own: its dynamics, start and reward."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from motrix_rl.envs.base import StepBuffers
from motrix_rl.envs.mujoco.cartpole_swingup import CartpoleSwingup
from tests.envs._reference import make_ours


def start(num_envs: int, **options: object) -> tuple[CartpoleSwingup, StepBuffers]:
    env = make_ours("cartpole-swingup", num_envs, options)
    assert isinstance(env, CartpoleSwingup)
    out = StepBuffers.allocate(env.env_spec, num_envs)
    env.reset_into(0, out.obs)
    return env, out


def reward_at(x: float, angle: float, spin: float, control: float) -> float:
    """Returns the reward at a state, which must not move during the step: time stands still."""
    env, out = start(1)
    env.model.opt.timestep = 1e-12
    env.batch = env._make_batch(1, 1)
    env.qpos, env.qvel, env.ctrl = (env.batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
    env.set_state(np.zeros(1, np.int32), np.array([[x, angle]]), np.array([[0.0, spin]]))
    env.step_into(np.array([[control]], np.float32), out)
    return float(out.reward[0])


def test_size_and_time() -> None:
    env, _ = start(1)
    spec = env.env_spec
    assert (spec.obs_dim, spec.action_low, spec.action_high) == (5, (-1.0,), (1.0,))
    assert (spec.max_episode_steps, spec.control_dt) == (1000, 0.01)


def test_masses_gear_range_damping_and_integrator() -> None:
    model = start(1)[0].model
    assert model.body_mass[1:].tolist() == [1.0, 0.1]
    assert model.actuator_gear[0, 0] == 10
    assert model.jnt_range[0].tolist() == [-1.8, 1.8]
    np.testing.assert_allclose(model.dof_damping, [5e-4, 2e-6])
    np.testing.assert_allclose(model.jnt_solref[0], [0.08, 1])
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
    assert model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT
    assert model.geom("pole").size[0] == pytest.approx(0.045)
    assert model.body("pole").ipos[2] == pytest.approx(0.5)


def test_episodes_start_with_the_pole_hanging() -> None:
    env, out = start(4000)
    state = np.concatenate((env.qpos, env.qvel), axis=1)
    np.testing.assert_allclose(state.mean(axis=0), [0, np.pi, 0, 0], atol=1e-3)
    np.testing.assert_allclose(state.std(axis=0), 0.01, rtol=0.05)
    assert (out.obs[:, 1] < -0.998).all()


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ((0.0, 0.0, 0.0, 0.0), 1.0),
        ((0.0, np.pi, 0.0, 0.0), 0.0),
        ((0.0, np.pi / 2, 0.0, 0.0), 0.5),
        ((1.0, 0.0, 0.0, 0.0), (1 + 0.1**0.25) / 2),  # half the margin of 2 m
        ((0.0, 0.0, 5.0, 0.0), (1 + 0.1) / 2),  # the margin of 5 rad/s
        ((0.0, 0.0, 0.0, 1.0), 4 / 5),
        ((0.0, 0.0, 0.0, 0.5), (4 + 0.75) / 5),
        (
            (0.5, 0.3, -2.0, 0.5),
            (1 + np.cos(0.3)) / 2 * (1 + 0.1 ** (1 / 16)) / 2 * (1 + 0.1 ** (4 / 25)) / 2 * 4.75 / 5,
        ),
    ],
)
def test_reward(state: tuple[float, float, float, float], expected: float) -> None:
    assert reward_at(*state) == pytest.approx(expected, abs=1e-6)


def test_observation_is_of_the_present_state_and_the_reward_stays_in_its_range() -> None:
    env, out = start(8, max_episode_steps=150)
    rng = np.random.default_rng(0)
    for step in range(1, 301):
        count = env.step_into(rng.uniform(-1, 1, (8, 1)).astype(np.float32), out)
        assert count == (8 if step % 150 == 0 else 0)
        x, angle = env.qpos.T
        expected = np.stack((x, np.cos(angle), np.sin(angle), *env.qvel.T), axis=1).astype(np.float32)
        np.testing.assert_array_equal(out.obs, expected)
        assert ((out.reward >= 0) & (out.reward <= 1)).all()
        assert not out.terminated.any()


def test_a_push_moves_the_cart_as_newton_says() -> None:
    env, out = start(1)
    env.set_state(np.zeros(1, np.int32), np.array([[0.0, np.pi]]), np.zeros((1, 2)))
    env.step_into(np.ones((1, 1), np.float32), out)
    # Cart 1 kg, uniform pole 0.1 kg hanging: the pole's inertia about the hinge leaves m/4 of it on the cart,
    # so that 10 N give 10 / 1.025 m/s2 (a capsule is nearly a uniform rod, hence 1 %).
    assert env.qvel[0, 0] == pytest.approx(0.01 * 10 / 1.025, rel=0.01)
