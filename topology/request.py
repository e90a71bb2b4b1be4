"""What a user asks of the resolver: numbers and wishes. Each is checked here, together they are resolved."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Transport = Literal["auto", "on", "off"]

#: More help no learner on CPUs, whatever the size of its networks.
MAX_CPU_LEARNER_CORES = 16

PositiveInt = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=0)]


class World(BaseModel):
    """Where this machine stands among those that train together (torchrun's nnodes and node_rank)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nnodes: PositiveInt = Field(1, description="machines that train together")
    node_rank: int = Field(0, ge=0, description="this machine's number among them")

    @model_validator(mode="after")
    def _rank_within(self) -> World:
        if self.node_rank >= self.nnodes:
            raise ValueError(f"node_rank={self.node_rank} must be below nnodes={self.nnodes}")
        return self


class TrainerRequest(BaseModel):
    """A request for a layout; `num_envs` and `batch_size` are over all machines, other counts per machine.

    Sizes in bytes are the caller's figures: this floor knows no networks and no observations.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_envs: PositiveInt = Field(description="environments over all machines")
    batch_size: PositiveInt = Field(description="samples of one gradient update over all ranks")
    num_learners: PositiveInt | None = Field(None, description="learners per machine; null = 1")
    num_collectors: PositiveInt | None = Field(
        None, description="collectors per machine; null = one per learner"
    )
    learner_devices: str | tuple[str, ...] | None = Field(
        None, description='null | "auto" | "cpu" | "cuda:0,cuda:1" | a list, one device a rank'
    )
    max_cpu_learner_cores: PositiveInt = Field(
        MAX_CPU_LEARNER_CORES,
        description="cores of which one learner on CPUs makes use; small networks are slower on several",
    )
    cpus_per_collector: PositiveInt | None = Field(
        None, description="CPUs of a collector; null = a fair share"
    )
    collector_cpu_cores: str | None = Field(None, description='CPUs for collectors, "0:5,7" (inclusive)')
    learner_cpu_cores: str | None = Field(None, description='CPUs for learners, "0:5,7" (inclusive)')
    collector_inference_device: str | None = Field(
        None, description='null | "auto" | "cpu" | "cuda" (the owner\'s GPU) | "cuda:N"'
    )
    transition_ipc: Transport = Field("auto", description="rings in device memory, shared over CUDA IPC")
    weight_ipc: Transport = Field("auto", description="weight mailbox in device memory, shared over CUDA IPC")
    weight_ipc_min_bytes: Bytes = Field(1 << 20, description="auto: smaller policies go through the host")
    ring_capacity: int = Field(4, ge=3, description="slots of a ring")
    slot_bytes_per_env: Bytes = Field(
        0, description="bytes of one slot per environment, final observations included"
    )
    slot_header_bytes: Bytes = Field(
        4096, description="bytes of one slot whatever the number of environments"
    )
    replay_bytes: Bytes = Field(0, description="bytes of the whole replay, over all ranks of all machines")
    policy_bytes: Bytes = Field(0, description="bytes of one version of the policy in the mailbox")
    learner_bytes: Bytes = Field(0, description="bytes of networks, optimisers and activations of one rank")
    worker_host_bytes: Bytes = Field(
        300 << 20, description="host bytes of a worker process before it holds any of the above"
    )
    cuda_available: bool = Field(True, description="whether the installed torch can use a GPU at all")
    evaluator: bool = Field(True, description="whether an evaluator process runs beside the collectors")
    world: World = Field(
        default_factory=lambda: World.model_validate({}), description="the machines of this run"
    )

    @field_validator("learner_devices", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return tuple(str(item) for item in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return value
