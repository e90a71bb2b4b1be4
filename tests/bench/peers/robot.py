"""The robot of the rates: a made-up humanoid of 29 hinges, written as MJCF for both simulators.

One body a joint, as in the models of real robots: two legs of 6 joints, a waist of 3, two arms of 7. Every joint has a
position actuator. The robot's parts meet the floor and not one another, so that both simulators look for the same
contacts. The start pose is a stand on slightly bent knees.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BASE = "pelvis"
#: Seconds of a simulation step, iterations and tolerance of the contact solver, in both simulators.
PHYSICS_DT, ITERATIONS, TOLERANCE = 0.005, 3, 1e-4
#: Simulation steps in a control step.
SUBSTEPS = 4

_THIGH = _SHIN = 0.35
_HIP_BELOW_BASE = 0.05
_SOLE_BELOW_ANKLE = 0.055
_KNEE = 0.4
_AXES = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}
_NO_CONTACT = 'contype="0" conaffinity="0"'
_FLOOR_ONLY = 'contype="1" conaffinity="0"'


@dataclass(frozen=True)
class Joint:
    """A hinge, the body that it moves, and its actuator.

    Attributes:
        name: of the joint, its actuator and, with `_link`, its body.
        axis: `x` forward, `y` left or `z` up.
        offset: of the body in its parent (m).
        geoms: MJCF elements of the body.
        limits: of the angle (rad).
        home: angle in the start pose (rad).
        stiffness: of the position actuator (Nm/rad).
        torque: largest (Nm).
    """

    name: str
    axis: str
    offset: tuple[float, float, float]
    geoms: tuple[str, ...]
    limits: tuple[float, float]
    home: float
    stiffness: float
    torque: float


def joints() -> list[Joint]:
    """All 29, in the order of the model's positions and of its actuators."""
    return [joint for chain in _chains() for joint in chain]


def home_pose() -> list[float]:
    """Angles of the start pose (rad), in the order of `joints`."""
    return [joint.home for joint in joints()]


def home_height() -> float:
    """Height of the base in the start pose (m): the soles touch the floor."""
    return _HIP_BELOW_BASE + (_THIGH + _SHIN) * math.cos(_KNEE / 2) + _SOLE_BELOW_ANKLE


def robot_xml() -> str:
    """The robot alone, for a program that puts floor and options around it."""
    return _document(floor=False)


def scene_xml() -> str:
    """The robot on the floor, with the options of the simulation."""
    return _document(floor=True)


def write_robot(directory: Path) -> Path:
    """Writes `robot.xml`, `scene.xml` and `robot.json` (start pose and options of the simulation).

    Returns:
        The directory, which is made.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "robot.xml").write_text(robot_xml())
    (directory / "scene.xml").write_text(scene_xml())
    facts = {
        "base": BASE,
        "height": home_height(),
        "home": {joint.name: joint.home for joint in joints()},
        "physics_dt": PHYSICS_DT,
        "substeps": SUBSTEPS,
        "iterations": ITERATIONS,
        "tolerance": TOLERANCE,
    }
    (directory / "robot.json").write_text(json.dumps(facts, indent=1))
    return directory


# The parts --------------------------------------------------------------------------------------------------


def _chains() -> list[list[Joint]]:
    """Joints from the base outwards: left leg, right leg, waist, left arm, right arm."""
    return [_leg("left", 1), _leg("right", -1), _waist(), _arm("left", 1), _arm("right", -1)]


def _leg(side: str, sign: int) -> list[Joint]:
    hip = (0.0, 0.1 * sign, -_HIP_BELOW_BASE)
    turned = _knob(0.04, 1.0)
    foot = tuple(_rod((-0.07, y, -0.04), (0.13, y, -0.04), 0.015, 0.4) for y in (-0.035, 0.035))
    names = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
    pitch, roll, yaw, knee, ankle_pitch, ankle_roll = (f"{side}_{name}" for name in names)
    here = (0.0, 0.0, 0.0)
    return [
        Joint(pitch, "y", hip, (turned,), (-2.0, 1.5), -_KNEE / 2, 150.0, 100.0),
        Joint(roll, "x", here, (turned,), (-0.6, 0.6), 0.0, 150.0, 100.0),
        Joint(yaw, "z", here, (_limb(_THIGH, 0.05, 4.0),), (-1.0, 1.0), 0.0, 100.0, 80.0),
        Joint(knee, "y", (0.0, 0.0, -_THIGH), (_limb(_SHIN, 0.04, 3.0),), (-0.1, 2.5), _KNEE, 150.0, 120.0),
        Joint(
            ankle_pitch,
            "y",
            (0.0, 0.0, -_SHIN),
            (_knob(0.025, 0.3),),
            (-0.9, 0.6),
            -_KNEE / 2,
            80.0,
            60.0,
        ),
        Joint(ankle_roll, "x", here, foot, (-0.4, 0.4), 0.0, 80.0, 60.0),
    ]


def _waist() -> list[Joint]:
    torso = '<geom type="box" size="0.08 0.13 0.17" pos="0 0 0.2" mass="9" ' + _FLOOR_ONLY + "/>"
    head = '<geom type="sphere" size="0.08" pos="0 0 0.47" mass="2" ' + _FLOOR_ONLY + "/>"
    turned, here = _knob(0.04, 0.5), (0.0, 0.0, 0.0)
    return [
        Joint("waist_yaw", "z", (0.0, 0.0, 0.08), (turned,), (-1.5, 1.5), 0.0, 150.0, 80.0),
        Joint("waist_roll", "x", here, (turned,), (-0.5, 0.5), 0.0, 150.0, 80.0),
        Joint("waist_pitch", "y", here, (torso, head), (-0.5, 0.5), 0.0, 150.0, 80.0),
    ]


def _arm(side: str, sign: int) -> list[Joint]:
    shoulder = (0.0, 0.17 * sign, 0.3)
    turned, small, here = _knob(0.03, 0.4), _knob(0.02, 0.1), (0.0, 0.0, 0.0)
    hand = '<geom type="sphere" size="0.04" pos="0 0 -0.05" mass="0.3" ' + _FLOOR_ONLY + "/>"
    names = (
        "shoulder_pitch",
        "shoulder_roll",
        "shoulder_yaw",
        "elbow",
        "wrist_roll",
        "wrist_pitch",
        "wrist_yaw",
    )
    pitch, roll, yaw, elbow, wrist_roll, wrist_pitch, wrist_yaw = (f"{side}_{name}" for name in names)
    upper, lower = _limb(0.2, 0.03, 1.0), _limb(0.2, 0.025, 0.6)
    return [
        Joint(pitch, "y", shoulder, (turned,), (-2.5, 2.5), 0.0, 40.0, 25.0),
        Joint(roll, "x", here, (turned,), (-1.8, 1.8), 0.15 * sign, 40.0, 25.0),
        Joint(yaw, "z", here, (upper,), (-2.0, 2.0), 0.0, 40.0, 25.0),
        Joint(elbow, "y", (0.0, 0.0, -0.22), (lower,), (-2.2, 0.3), -0.5, 40.0, 25.0),
        Joint(wrist_roll, "z", (0.0, 0.0, -0.22), (small,), (-1.8, 1.8), 0.0, 15.0, 8.0),
        Joint(wrist_pitch, "y", here, (small,), (-1.4, 1.4), 0.0, 15.0, 8.0),
        Joint(wrist_yaw, "x", here, (hand,), (-1.4, 1.4), 0.0, 15.0, 8.0),
    ]


def _knob(radius: float, mass: float) -> str:
    """The body between two joints at one place: mass, and no contact."""
    return f'<geom type="sphere" size="{radius}" mass="{mass}" {_NO_CONTACT}/>'


def _limb(length: float, radius: float, mass: float) -> str:
    """A capsule from the joint downwards."""
    return _rod((0.0, 0.0, -radius), (0.0, 0.0, radius - length), radius, mass)


def _rod(
    start: tuple[float, float, float], end: tuple[float, float, float], radius: float, mass: float
) -> str:
    ends = " ".join(f"{value:g}" for value in (*start, *end))
    return f'<geom type="capsule" fromto="{ends}" size="{radius}" mass="{mass}" {_FLOOR_ONLY}/>'


# The document -----------------------------------------------------------------------------------------------


def _document(floor: bool) -> str:
    """All chains hang on the base but the arms, which hang on the last body of the waist."""
    left_leg, right_leg, waist, left_arm, right_arm = _chains()
    lines = ['<mujoco model="humanoid29">', '  <compiler angle="radian" autolimits="true"/>']
    if floor:
        lines.append(f'  <option timestep="{PHYSICS_DT}" iterations="{ITERATIONS}" tolerance="{TOLERANCE}"/>')
    lines.append("  <worldbody>")
    if floor:
        lines.append(
            '    <geom name="floor" type="plane" size="0 0 1" friction="1 0.005 0.0001" condim="3"/>'
        )
    arms = [*_nested(left_arm, 4), *_nested(right_arm, 4)]
    lines += [
        f'    <body name="{BASE}" pos="0 0 {home_height():.6f}">',
        '      <freejoint name="root"/>',
        f'      <geom type="box" size="0.07 0.1 0.05" mass="5" {_FLOOR_ONLY}/>',
        *_nested(left_leg, 3),
        *_nested(right_leg, 3),
        *_nested(waist, 3, arms),
        "    </body>",
        "  </worldbody>",
        "  <actuator>",
        *(_actuator(joint) for joint in joints()),
        "  </actuator>",
        "</mujoco>",
    ]
    return "\n".join(lines) + "\n"


def _nested(chain: list[Joint], depth: int, innermost: list[str] | None = None) -> Iterator[str]:
    """Lines of a chain's bodies, each within the one before; `innermost` stands within the last."""
    joint, *rest = chain
    space = "  " * depth
    place = " ".join(f"{value:g}" for value in joint.offset)
    low, high = joint.limits
    yield f'{space}<body name="{joint.name}_link" pos="{place}">'
    yield (
        f'{space}  <joint name="{joint.name}" type="hinge" axis="{_AXES[joint.axis]}" range="{low} {high}"'
        ' armature="0.02" damping="0.2"/>'
    )
    for geom in joint.geoms:
        yield f"{space}  {geom}"
    if rest:
        yield from _nested(rest, depth + 1, innermost)
    elif innermost is not None:
        yield from (f"{space}{line}" for line in innermost)
    yield f"{space}</body>"


def _actuator(joint: Joint) -> str:
    damping = 0.04 * joint.stiffness
    return (
        f'    <position name="{joint.name}" joint="{joint.name}" kp="{joint.stiffness:g}" kv="{damping:g}"'
        f' forcerange="{-joint.torque:g} {joint.torque:g}"/>'
    )
