"""DDP, FSDP2 and distributed checkpoints on gloo processes: many ranks train as one process does on the whole batch."""

from pathlib import Path

import pytest

import ranks
from forks import Fork

# torch's own, about loading without a process group.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::FutureWarning")


def launch(count: int, part: str, folder: Path) -> list[str]:
    """What `count` ranks have said."""
    forks = [Fork(ranks.work, rank, count, part, folder) for rank in range(count)]
    codes = [fork.wait(180) for fork in forks]
    assert codes == [0] * count, "\n".join(fork.err[-5000:] for fork in forks)
    return [line for fork in forks for line in fork.out.splitlines()]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """What two ranks have saved, and said."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return folder, launch(2, "train", folder)


def test_two_ranks_keep_every_law(checkpoints: tuple[Path, list[str]]) -> None:
    _, said = checkpoints
    for law in ranks.LAWS + ranks.LAWS_OF_FSDP2:
        if law in ranks.LAWS or ranks.fully_shard is not None:
            assert said.count(f"kept {law.__name__}") == 2


def test_checkpoint_of_two_ranks_is_continued_by_one(checkpoints: tuple[Path, list[str]]) -> None:
    folder, _ = checkpoints
    ranks.check_continues_as_uninterrupted(folder, shard=False)
    ranks.check_float32_state_of_bfloat16_parameters(folder, shard=False)


def test_checkpoint_of_two_ranks_is_continued_by_three(checkpoints: tuple[Path, list[str]]) -> None:
    folder, _ = checkpoints
    assert launch(3, "load", folder).count("continued") == 3
