"""Requests made from the OpenAPI document, right and wrong ones, by schemathesis."""

import subprocess
import sys
from pathlib import Path

CHECKS = (
    *("not_a_server_error", "status_code_conformance"),
    *("content_type_conformance", "response_schema_conformance"),
)
_RUN = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"


def attack(url: str, examples: int, seed: int, folder: Path, *, brief: bool = False) -> str:
    """Its report. Fails on a 5xx, or an answer that the document does not know.

    examples: requests of each route, beside one for every single constraint. brief: only those for
    constraints of the speech route, and wrong ones alone, which cost no speech. folder: for what
    schemathesis leaves behind.
    """
    run = subprocess.run(
        [
            *(sys.executable, "-c", _RUN, "run", f"{url}/openapi.json"),
            *("--checks", ",".join(CHECKS), "--max-examples", str(examples)),
            *("--phases", "coverage" if brief else "examples,coverage,fuzzing"),
            *("--mode", "negative" if brief else "all", "--seed", str(seed)),
            *("--include-path-regex", "^/v1/audio/speech" if brief else "."),
            *("--no-color", "--continue-on-failure", "--request-timeout", "60"),
        ],
        cwd=folder,
        env={"NO_PROXY": "*", "HOME": str(folder), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
    )
    report = run.stdout + run.stderr
    assert run.returncode == 0, report
    return report
