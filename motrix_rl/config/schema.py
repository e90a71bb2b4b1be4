"""The schema of a run: the one source of every option's name, default, bounds, unit and description.

    RootConfig
    |- env: the task's own options (`motrix_rl.tasks.registry.task_options_model`)
    |- algo.agent: FastSACConfig (`motrix_rl.algorithms.fastsac.config`)
    |- algo.trainer.async_options: AsyncOptions
    |- logging, checkpoint, eval

The models are frozen, and refuse names they do not know. What depends on the machine (does `num_envs` divide
by the collectors? is there such a device?) is decided by the topology resolver, not here.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from motrix_rl.algorithms.fastsac.config import FastSACConfig

DEFAULT_TASK = "cartpole-swingup/mujoco.fastsac"


class ConfigModel(BaseModel):
    """Base of the groups: unknown names are refused, and a validated configuration does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AsyncOptions(ConfigModel):
    """Processes, placement, transport and pace of the asynchronous trainer."""

    num_collectors: int | None = Field(
        default=None, ge=1, description="Collector processes on this machine; null = one per learner."
    )
    num_learners: int | None = Field(
        default=None, ge=1, description="Learner processes (ranks) on this machine; null = 1."
    )
    learner_devices: str | list[str] | None = Field(
        default=None,
        description="Devices of the learners, in rank order: 'cpu', 'cuda:0', 'cuda:0,cuda:1' or a list;"
        " null = GPUs where there are any, otherwise the CPU.",
    )
    cpus_per_collector: int | None = Field(
        default=None,
        ge=1,
        description="CPUs for each collector; null = decided from the CPUs that are there.",
    )
    collector_cpu_cores: str | None = Field(
        default=None,
        description="CPUs that collectors may use, such as '0:5,7' (both ends included);"
        " null = decided from the CPUs that are there.",
    )
    learner_cpu_cores: str | None = Field(
        default=None,
        description="CPUs that learners may use, such as '0:5,7' (both ends included);"
        " null = decided from the CPUs that are there.",
    )
    collector_inference_device: str | None = Field(
        default=None,
        description="Device on which collectors run the actor: 'cpu' or 'cuda:0'; null = decided.",
    )
    collector_compile: bool = Field(
        default=False, description="Compile the collectors' actor with torch.compile."
    )
    collector_amp: bool = Field(default=False, description="Run the collectors' actor under mixed precision.")
    collector_amp_dtype: Literal["bf16", "fp16"] = Field(
        default="bf16", description="Number format of collector_amp."
    )
    ring_capacity: int = Field(
        default=4,
        ge=3,
        description="Slots in a collector's ring (one slot = one vector step of its environments):"
        " how far a collector may run ahead of its learner.",
    )
    transition_ipc: Literal["auto", "on", "off"] = Field(
        default="auto", description="Rings in GPU memory, shared over CUDA IPC; auto = where it is possible."
    )
    weight_ipc: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Policy weights in GPU memory, shared over CUDA IPC; auto = where it is possible and"
        " the policy is larger than weight_ipc_min_bytes.",
    )
    weight_ipc_min_bytes: int = Field(
        default=1 << 20,
        ge=0,
        description="Size of the policy, in bytes, above which weight_ipc=auto uses CUDA IPC.",
    )
    utd_mode: Literal["strict", "learner_bound"] = Field(
        default="strict",
        description="strict = exactly num_updates updates for each generation after the warm-up;"
        " learner_bound = num_updates whenever there is new data, however much.",
    )
    weight_publish_interval: int = Field(
        default=4, ge=1, description="Gradient steps between two publications of the policy."
    )
    weight_poll_interval: int = Field(
        default=1, ge=1, description="Environment steps between a collector's looks for a newer policy."
    )
    max_ingest_per_iter: int = Field(
        default=8, ge=1, description="Generations admitted to the replay in one decision, at most."
    )
    boot_timeout_s: float = Field(
        default=120.0, gt=0, description="Seconds that all workers together have from start to ready."
    )
    shutdown_timeout_s: float = Field(
        default=10.0,
        gt=0,
        description="Seconds in which an ending run is gone; a save that gets on is waited for.",
    )
    heartbeat_timeout_s: float = Field(
        default=60.0, gt=0, description="Seconds without progress after which a worker counts as hung."
    )
    max_collector_restarts: int = Field(
        default=3,
        ge=0,
        description="How often a dead collector is started again in any 10 minutes before the run ends.",
    )
    max_learner_restarts: int = Field(
        default=0,
        ge=0,
        description="How often the run boots again from its last checkpoint after a learner has died.",
    )

    @model_validator(mode="after")
    def _nothing_is_accepted_and_ignored(self) -> AsyncOptions:
        """Refuses options that have their place and name, and no effect yet.

        Raises:
            ValueError: one of them is set.
        """
        for name in ("collector_compile", "collector_amp"):
            if getattr(self, name):
                path = f"algo.trainer.async_options.{name}"
                raise ValueError(f"{path}={getattr(self, name)} is not available yet; leave it out")
        return self


class TrainerConfig(ConfigModel):
    """How long to train, and with which processes."""

    num_learning_iterations: int = Field(
        default=4000,
        ge=1,
        description="Generations to train for (one generation = one step of every environment).",
    )
    max_nan_steps: int = Field(
        default=100,
        ge=0,
        description="Gradient steps in a row that are skipped because they are not finite before the run ends;"
        " its state is then in async_errors/. 0 = never.",
    )
    max_nonfinite_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the transitions between two metrics records that may be cut because an"
        " environment gave NaN or Inf; above it the run ends. 1 = never.",
    )
    async_options: AsyncOptions = Field(
        default_factory=AsyncOptions, description="Processes, placement, transport and pace."
    )


class AlgoConfig(ConfigModel):
    """The algorithm and its trainer."""

    agent: FastSACConfig = Field(
        default_factory=lambda: FastSACConfig.model_validate({}),
        description="FastSAC: networks, losses, updates, replay.",
    )
    trainer: TrainerConfig = Field(
        default_factory=TrainerConfig, description="How long, with which processes."
    )


class LoggingConfig(ConfigModel):
    """What is reported, and how often."""

    interval: int = Field(
        default=100,
        ge=1,
        description="Generations between two records in metrics.jsonl (and lines without a terminal).",
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity that is written to the workers' logs."
    )
    console: Literal["auto", "panel", "plain"] = Field(
        default="auto",
        description="panel = live panel; plain = one line an interval; auto = panel on a terminal.",
    )
    tensorboard: bool = Field(
        default=True, description="Also write TensorBoard events into the run directory."
    )
    wandb: Literal["off", "online", "offline"] = Field(
        default="off",
        description="Also send the records to Weights & Biases; offline = keep them in the run directory for"
        " `wandb sync`. The project is WANDB_PROJECT, or motrix_rl.",
    )


class CheckpointConfig(ConfigModel):
    """When to save, and what to keep."""

    interval: int = Field(
        default=1000, ge=0, description="Generations between two checkpoints; 0 = only one, at the end."
    )
    keep_last: int = Field(
        default=3, ge=1, description="Newest checkpoints kept; the best policy is kept besides."
    )
    save_replay: bool = Field(
        default=False, description="Save the replay buffer too: large files, and a resume needs no refill."
    )


class EvalConfig(ConfigModel):
    """Evaluation beside training, in a process of its own; keeps the best policy."""

    interval: int = Field(
        default=500, ge=0, description="Generations between two evaluations; 0 = no evaluation."
    )
    episodes: int = Field(default=10, ge=1, description="Episodes in one evaluation.")
    num_threads: int | None = Field(
        default=None, ge=1, description="Threads that step the evaluator's environments; null = decided."
    )


class RootConfig(ConfigModel):
    """One training run."""

    task: str = Field(
        default=DEFAULT_TASK,
        description="What to train, as <task>/<backend>.<algorithm>;"
        " <task> is gymnasium:<EnvId> for any Gymnasium environment.",
    )
    seed: int = Field(
        default=0, ge=0, lt=2**32, description="Seed of networks, environments, actions and batches."
    )
    num_envs: int = Field(default=32, ge=1, description="Environments in all, over all collectors.")
    deterministic: bool = Field(
        default=False,
        description="Act by a fixed schedule instead of a race: the same seed gives the same run to the bit on"
        " the same machine, and a resume from a scheduled checkpoint (with checkpoint.save_replay) goes on to"
        " the bit.",
    )
    lag: int = Field(
        default=1,
        ge=0,
        le=2,
        description="Of deterministic runs: generations between the newest data that a policy has learnt from"
        " and the generation that it acts in, less one; 0 = collecting and learning take turns.",
    )
    run_dir: str | None = Field(
        default=None,
        description="Directory of the run; null = runs_root/<task>/<backend>.<algorithm>/<time>-<id>.",
    )
    runs_root: str = Field(default="runs", description="Directory under which runs are named and found.")
    resume: str | None = Field(
        default=None,
        description="Go on from a run directory or a checkpoint, or 'auto' = newest run of the task;"
        " its configuration is taken over, and options given here are laid over it.",
    )
    env: dict[str, Any] = Field(default_factory=dict, description="Options of the task itself.")
    algo: AlgoConfig = Field(default_factory=AlgoConfig, description="The algorithm and its trainer.")
    logging: LoggingConfig = Field(default_factory=LoggingConfig, description="Reports.")
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig, description="Saved states.")
    eval: EvalConfig = Field(default_factory=EvalConfig, description="Evaluation beside training.")

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> RootConfig:
        """Relations between groups; those inside a group are its own.

        Raises:
            ValueError: naming both options and a value that works.
        """
        agent = self.algo.agent
        if agent.learning_starts > agent.buffer_size:
            raise ValueError(
                f"algo.agent.learning_starts={agent.learning_starts} is more than the replay holds"
                f" (algo.agent.buffer_size={agent.buffer_size}); at most {agent.buffer_size} works"
            )
        # Sampling needs the n-step window's rows plus the newest row, whose successor is not there yet.
        rows = agent.n_step + 2
        if agent.buffer_size < rows * self.num_envs:
            most = agent.buffer_size // rows
            raise ValueError(
                f"num_envs={self.num_envs} and algo.agent.buffer_size={agent.buffer_size} do not fit together: the"
                f" buffer holds {rows} steps of every environment at least; {f'num_envs={most} or ' if most else ''}"
                f"algo.agent.buffer_size={rows * self.num_envs} would do"
            )
        return self
