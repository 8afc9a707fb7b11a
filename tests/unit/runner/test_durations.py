"""Which families begin first when it is known what they took before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.unit.runner.fleet_stand_ins import StandInLane, job

from opsmith.core.run import Options
from opsmith.runner.fleet import durations as module
from opsmith.runner.fleet.durations import Durations
from opsmith.runner.fleet.fleet import Fleet
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import LaneLost

OPTIONS = Options(suite="opinfo", backend="test", device="cuda", dtypes=("f32",))


def ops(families: Sequence[Sequence[Job]]) -> list[str]:
    """The names of families, in their order."""
    return [" ".join(each.schema.name for each in family) for family in families]


def test_what_took_long_before_begins_first(tmp_path: Path) -> None:
    """What is new counts by its cases, as long as those of others took on average."""
    path = tmp_path / "folder" / "a GPU.json"
    noted = Durations(path)
    families = [[job("many", 9)], [job("compiled", 1)], [job("new", 4)], [job("short", 2), job("short_", 1)]]
    assert ["many", "new", "short short_", "compiled"] == ops(noted.longest_first(families))
    noted.note(families[0], 3.0)
    noted.note(families[1], 20.0)
    noted.note(families[3], 1.5)
    noted.save()
    again = Durations(path)
    # 24.5 s for 13 cases: four of them take 7.5 s.
    assert ["compiled", "new", "many", "short short_"] == ops(again.longest_first(families))


def test_of_what_nothing_is_known_what_has_most_code_begins_early(tmp_path: Path) -> None:
    """It compiles for longer than others are judged on some cases; a hundred cases take longer than that."""
    (tmp_path / "long.py").write_text("#" * 140_000)
    (tmp_path / "short.py").write_text("#")

    def of_file(name: str, cases: int, file: str) -> list[Job]:
        asked = job(name, cases)
        files = dict.fromkeys(["long.py", "short.py"], "")
        kernel = msgspec.structs.replace(asked.kernel, entry=f"{file}:{name}", files=files)
        return [msgspec.structs.replace(asked, kernel=kernel, root=tmp_path)]

    families = [of_file("few", 3, "short.py"), of_file("compiled", 1, "long.py"), of_file("many", 100, "short.py")]
    assert ["many", "compiled", "few"] == ops(Durations().longest_first(families))


def test_only_whole_families_are_noted(tmp_path: Path) -> None:
    """Of a run that is taken up again only the rest was judged."""
    noted = Durations(tmp_path / "file")
    rest = msgspec.structs.replace(job("op", 3), earlier=(object(),))
    noted.note([rest], 9.0)
    noted.note([job("none", 0)], 9.0)
    noted.save()
    assert {} == msgspec.json.decode((tmp_path / "file").read_bytes())


def test_a_file_that_cannot_be_read_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the oldest entries make room for new ones."""
    path = tmp_path / "file"
    path.write_text("[1, 2")
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    noted = Durations(path)
    for seconds, op in enumerate(("a", "b", "c", "b")):
        noted.note([job(op, 1)], float(seconds))
    noted.save()
    assert {"test c": 2.0, "test b": 3.0} == msgspec.json.decode(path.read_bytes())


def test_a_fleet_notes_what_its_families_take(tmp_path: Path) -> None:
    """Those of a run that ends early, too."""
    path = tmp_path / "file"
    lane = StandInLane(0, lives=4)
    verdicts = Fleet([lane], OPTIONS, durations=Durations(path)).judge([job("long", 3), job("lost", 2)])
    with pytest.raises(LaneLost):
        list(verdicts)
    assert ["test long"] == list(msgspec.json.decode(path.read_bytes()))
    lane = StandInLane(0)
    list(Fleet([lane], OPTIONS, durations=Durations(path)).judge([job("new", 1), job("long", 3)]))
    assert ["long", "new"] == [family[0].schema.name for family in lane.done]
    assert {"test long", "test new"} == msgspec.json.decode(path.read_bytes()).keys()
