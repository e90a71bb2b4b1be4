"""Statuses for the tests of the console."""

from __future__ import annotations

from motrix_rl.console import BootStatus, RunStatus, WorkerStatus

RUN_DIR = "runs/cartpole-swingup/mujoco.fastsac/20261129-190000-ab12"
WORKERS = (
    WorkerStatus("learner-0", "learner", "train", 12.0, 11, "published version 1200", True),
    WorkerStatus("collector-0", "collector", "collect", 33.0, 12, "warm-up finished at generation 128", True),
    WorkerStatus("evaluator", "evaluator", "evaluate", 3.0, 13, "best return 833.1", True),
)
BOOT = BootStatus("cartpole-swingup/mujoco.fastsac", RUN_DIR, 3.0, WORKERS, 120.0)
RUN = RunStatus(
    title="cartpole-swingup/mujoco.fastsac",
    run_dir=RUN_DIR,
    elapsed_s=83.2,
    generation=12_345,
    total_generations=50_000,
    env_steps=1_234_567,
    updates=45_678,
    updates_due=45_680,
    eta_s=192.0,
    return_mean=812.3,
    return_window=100,
    length_mean=1000.0,
    episodes=1234,
    best_eval=833.1,
    last_eval=820.0,
    env_steps_per_s=15_432.2,
    updates_per_s=1234.5,
    utd_asked=4.0,
    utd_kept=3.98,
    collector_budget={"act": 0.12, "step": 0.7, "wait": 0.18},
    learner_budget={"ingest": 0.05, "update": 0.8, "wait": 0.1, "other": 0.05},
    ring_fill=2.6,
    ring_capacity=8,
    policy_lag_mean=3.2,
    policy_lag_max=9.0,
    losses={"critic": 2.345, "actor": -12.3, "alpha": 0.0123},
    messages=(f"saved checkpoint {RUN_DIR}/checkpoints/step_000012000",),
    workers=WORKERS,
    phase="training",
)
