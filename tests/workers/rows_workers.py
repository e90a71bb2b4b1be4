"""Steps of a shard with all sorts of ends, and collectors that write them when a script says so."""

from __future__ import annotations

import numpy as np

from motrix_rl.envs.spec import EnvSpec
from transport import Ring, RingProducer, SlotView, WeightMailbox
from workers.bench.synthetic import SyntheticShard, random_shard

SPEC = EnvSpec(obs_dim=3, action_dim=2, action_low=(-1.0, -2.0), action_high=(1.0, 2.0))
FIELDS = ("obs", "action", "reward", "terminated", "truncated", "cut", "final_index", "final_obs")


def random_row(rng: np.random.Generator, envs: int, ends: float = 0.15) -> SyntheticShard:
    """A step with all sorts of ends, final observations of every row that ended, and now and then a cut row."""
    return random_shard(rng, SPEC, envs, terminated=ends, truncated=ends, cut=0.03)


def write(slot: SlotView, row: SyntheticShard) -> None:
    """Fills a slot."""
    for name in FIELDS:
        getattr(slot, name)[:] = getattr(row, name)
    slot.num_final = row.num_final


class ScriptedCollector:
    """The writing end of one ring, and everything it has ever committed."""

    def __init__(
        self, index: int, ring: Ring, envs: int, rng: np.random.Generator, mailbox: WeightMailbox
    ) -> None:
        self.index, self.ring, self.envs, self.rng = index, ring, envs, rng
        self.rows: list[SyntheticShard] = []
        self.incarnation = 0
        self.alive = True
        self._mailbox = mailbox
        self._begin()

    def _begin(self) -> None:
        self.producer: RingProducer = self.ring.producer(self.incarnation)
        self.weights = self._mailbox.reader()
        self._held: SlotView | None = None

    def step(self, poll: bool = True) -> bool:
        """Commits one slot as a collector does, holding the next; False when the ring has no room for that."""
        if self._held is None:
            self._held = self.producer.reserve(timeout_s=0)
            if self._held is None:
                return False
        following = self.producer.reserve(timeout_s=0)
        if following is None:
            return False
        if poll:
            self.weights.poll()
        row = random_row(self.rng, self.envs)
        write(self._held, row)
        self._held.policy_version = self.weights.version
        self.producer.commit()
        self._held = following
        self.rows.append(row)
        return True

    def die(self, torn: bool) -> None:
        """As SIGKILL leaves it: with a slot half written, if ``torn``."""
        if torn and self._held is not None:
            self._held.obs.fill(7e7)
            self._held.reward.fill(np.nan)
        self.alive = False

    def start_again(self) -> None:
        """The next incarnation, once the learner has put the ring in order."""
        self.incarnation += 1
        self.alive = True
        self._begin()

    def expected_cut(self) -> None:
        """Cuts the newest row, in the record of what replay should hold: a row that ended stays as it is."""
        if self.rows:
            row = self.rows[-1]
            row.cut[(row.terminated == 0) & (row.truncated == 0)] = 1
