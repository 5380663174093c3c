from voxserve.api import outcomes
from voxserve.api.outcomes import Outcomes


def test_only_the_newest_are_kept() -> None:
    kept = Outcomes()
    for number in range(outcomes.KEPT + 10):
        kept.open(f"id-{number}").outcome = "completed"
    assert kept.get("id-9") is None
    found = kept.get("id-10")
    assert found is not None and found.outcome == "completed"


def test_same_id_again_replaces_the_older() -> None:
    kept = Outcomes()
    kept.open("twice").outcome = "failed"
    newer = kept.open("twice")
    assert kept.get("twice") is newer
    assert newer.outcome == "running"


def test_usage_adds_up() -> None:
    outcome = Outcomes().open("id")
    outcome.input_tokens, outcome.output_tokens = 5, 7
    assert outcome.usage()["total_tokens"] == 12
    assert outcome.public()["usage"] == outcome.usage()
