"""What must hold after any attack."""

from tests.api.server_process import ServerProcess


def check_unharmed(server: ServerProcess) -> None:
    """Nothing is held, nothing crashed, nothing was answered by a 500, and it speaks as before."""
    server.wait_idle(30)
    server.check_lines()
    assert server.metric("voxserve_engine_restarts_total") == 0
    assert server.speech(input="Still here.").status_code == 200
