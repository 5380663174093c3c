from voxserve.api import outcomes
from voxserve.api.auth import NO_KEY
from voxserve.api.outcomes import Outcomes


def test_only_the_newest_are_kept() -> None:
    kept = Outcomes()
    for number in range(outcomes.KEPT + 10):
        kept.open(f"id-{number}", NO_KEY).outcome = "completed"
    assert kept.get("id-9", NO_KEY) is None
    found = kept.get("id-10", NO_KEY)
    assert found is not None and found.outcome == "completed"


def test_same_id_again_replaces_the_older() -> None:
    kept = Outcomes()
    kept.open("twice", NO_KEY).outcome = "failed"
    newer = kept.open("twice", NO_KEY)
    assert kept.get("twice", NO_KEY) is newer
    assert newer.outcome == "running"


def test_every_key_has_its_own() -> None:
    kept = Outcomes()
    first, second = kept.open("same", "first"), kept.open("same", "second")
    assert kept.get("same", "first") is first
    assert kept.get("same", "second") is second
    assert kept.get("same", "third") is None and kept.get("same", NO_KEY) is None


def test_usage_adds_up() -> None:
    outcome = Outcomes().open("id", NO_KEY)
    outcome.input_tokens, outcome.output_tokens = 5, 7
    assert outcome.usage()["total_tokens"] == 12
    assert outcome.public()["usage"] == outcome.usage()
