"""What the walking robot sees, is paid for and falls by: the same functions in both programs. Imports numpy alone.

The base's orientation is a quaternion [k, 4] with the scalar first; velocities of the base are in its own frame;
joint angles are differences from the start pose.
"""

from __future__ import annotations

import numpy as np

JOINTS = 29
OBS_SIZE = 9 + 3 * JOINTS + 4
CRITIC_OBS_SIZE = OBS_SIZE + 3
EPISODE_S = 10.0
CONTROL_DT = 0.02
#: Actions lie in [-ACTION_LIMIT, ACTION_LIMIT]; times ACTION_SCALE they are added to the start pose (rad).
ACTION_LIMIT, ACTION_SCALE = 2.0, 0.25
#: Half widths of the uniform noise on joint angles (rad) and on scaled joint velocities that the actor sees.
ANGLE_NOISE, VELOCITY_NOISE = 0.01, 0.05
#: Half widths at the start of an episode: place (m), joint angles (rad), command (m/s, m/s, rad/s).
START_PLACE, START_ANGLES, COMMAND = 0.5, 0.05, 1.0
#: An episode ends where the base is lower (m), or tilted so far that gravity's part along its own z is greater.
LOWEST, MOST_TILTED = 0.45, -0.6
_STRIDE = 2.0 * np.pi * 1.25 * CONTROL_DT
_SPEED_SCALE, _TURN_SCALE, _JOINT_SPEED_SCALE = 2.0, 0.25, 0.05


def into_body(quaternion: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """World vectors [k, 3] in the frame of the base: q* v q, as two cross products."""
    w, axis = quaternion[:, :1], quaternion[:, 1:]
    inner = _cross(axis, vectors) - w * vectors
    return vectors + 2.0 * _cross(axis, inner)


def gravity_in_body(quaternion: np.ndarray) -> np.ndarray:
    """The direction of gravity [k, 3] in the frame of the base: minus the last row of its rotation."""
    w, x, y, z = quaternion.T
    return np.stack((2.0 * (w * y - x * z), -2.0 * (w * x + y * z), 2.0 * (x * x + y * y) - 1.0), axis=1)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    ax, ay, az = a.T
    bx, by, bz = b.T
    return np.stack((ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx), axis=1)


def legs_phase(steps: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Phases [k, 2] of the two legs (rad), half a stride apart.

    Args:
        steps: [k] control steps since the start of the episode.
        start: [k] phase at its start.
    """
    left = steps.astype(np.float32) * np.float32(_STRIDE) + start
    return np.stack((left, left + np.float32(np.pi)), axis=1)


def observations(
    turning: np.ndarray,
    velocity: np.ndarray,
    gravity: np.ndarray,
    command: np.ndarray,
    angles: np.ndarray,
    joint_velocity: np.ndarray,
    action: np.ndarray,
    phase: np.ndarray,
    noise: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What the actor sees [k, 100] (with noise, without the base's velocity) and the critic [k, 103], float32.

    Args:
        turning, velocity, gravity, command: [k, 3].
        angles, joint_velocity, action: [k, 29].
        phase: [k, 2].
        noise: [k, 58] uniform in [-1, 1): of the angles, then of the velocities.
    """
    turning, speeds = turning * _TURN_SCALE, joint_velocity * _JOINT_SPEED_SCALE
    known = (action, np.sin(phase), np.cos(phase))
    seen_angles = angles + ANGLE_NOISE * noise[:, :JOINTS]
    seen_speeds = speeds + VELOCITY_NOISE * noise[:, JOINTS:]
    actor = np.concatenate((turning, gravity, command, seen_angles, seen_speeds, *known), axis=1)
    critic = np.concatenate(
        (velocity * _SPEED_SCALE, turning, gravity, command, angles, speeds, *known), axis=1
    )
    return actor.astype(np.float32, copy=False), critic.astype(np.float32, copy=False)


def reward(
    turning: np.ndarray,
    velocity: np.ndarray,
    gravity: np.ndarray,
    command: np.ndarray,
    angles: np.ndarray,
    action: np.ndarray,
    action_before: np.ndarray,
) -> np.ndarray:
    """Reward [k] of a control step: following the command, upright, smoothly, near the start pose."""
    off_course = np.square(command[:, :2] - velocity[:, :2]).sum(axis=1)
    total = 2.0 * np.exp(-off_course / 0.25)
    total += 1.5 * np.exp(-np.square(command[:, 2] - turning[:, 2]) / 0.25)
    total -= 0.01 * np.square(action - action_before).sum(axis=1)
    total -= 0.1 * np.square(angles).sum(axis=1)
    total -= 5.0 * np.square(gravity[:, :2]).sum(axis=1)
    return (total + 1.0) * CONTROL_DT


def fallen(height: np.ndarray, gravity: np.ndarray) -> np.ndarray:
    """Which robots [k] lie or are about to."""
    return (height < LOWEST) | (gravity[:, 2] > MOST_TILTED)
