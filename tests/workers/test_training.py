"""What a run leaves behind that ends before anybody was started."""

from __future__ import annotations

from pathlib import Path

import pytest

import workers.training as training
from motrix_rl.config import load_config
from motrix_rl.runs import RunDirectory
from tests.e2e.running import options, word


@pytest.mark.covers("S5")
def test_ctrl_c_while_a_run_is_set_up_is_in_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "Supervisor", interrupted)
    words = [word(key, value) for key, value in options(run_dir=str(tmp_path / "run")).items()]
    with pytest.raises(KeyboardInterrupt):
        training.run_training(load_config(words))
    record = RunDirectory(tmp_path / "run").record
    assert (record.read()["outcome"], record.read()["reason"]) == ("interrupted", "interrupted by SIGINT")
    assert not record.is_running()
