"""The tutorial on a facility: a central catalog, a queue server, and a user, on one computer."""

import shutil

import httpx
import pytest

pytest.importorskip("bluesky_queueserver", reason="needs the extra qserver")

from .conftest import Service, wait_for


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def queue_shows(service: Service, *texts: str) -> bool:
    status = service.run("qserver status || true")
    return all(text in status for text in texts)


def test_a_plan_is_submitted_and_its_run_found_as_the_tutorial_says(serve, free_port):
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server")
    catalog, redis, control, info = (str(free_port()) for _ in range(4))
    service = serve("", {"8000": catalog, "6379": redis}, guide="tutorials/facility.md")
    service.environment |= {
        "QSERVER_ZMQ_CONTROL_ADDRESS": f"tcp://127.0.0.1:{control}",
        "QSERVER_ZMQ_CONTROL_ADDRESS_FOR_SERVER": f"tcp://127.0.0.1:{control}",
        "QSERVER_ZMQ_INFO_ADDRESS_FOR_SERVER": f"tcp://127.0.0.1:{info}",
    }
    commands, (config,) = service.commands, service.blocks("yaml")

    service.run("\n".join(commands("mkdir", "(umask")))
    (service.home / "facility" / "tiled.yml").write_text(config)
    service.start("\n".join(commands("export TILED_SINGLE_USER_API_KEY", "tiled serve")))
    (command,) = commands("redis-server")
    service.start(command.removesuffix(" --daemonize yes"))
    wait_for(lambda: answers(f"http://localhost:{catalog}"), service.logs())

    keys = commands("export TILED_API_KEY")
    assert len(set(keys)) == 1
    server = commands("export DAQIRI_CATALOG", "profiles=", "collection=", "start-re-manager")
    service.start("\n".join([keys[0], *server]))
    wait_for(lambda: queue_shows(service, "'manager_state': 'idle'"), service.logs())
    service.run(*commands("qserver environment open"))
    wait_for(lambda: queue_shows(service, "'worker_environment_exists': True"), "no environment")
    service.run("\n".join(commands("qserver queue")))
    wait_for(
        lambda: queue_shows(service, "'items_in_history': 3", "'manager_state': 'idle'"),
        service.logs(),
    )

    (service.home / "program.py").write_text("".join(service.blocks("python")))
    program = f"{keys[0]}\npython program.py"
    # To another process, a run is complete a moment after its plan is done.
    wait_for(lambda: "3 replay" in service.run(f"{program} || true"), service.logs())
    printed = service.run(program)
    begin = 0
    for shown in service.blocks("text"):
        found = printed.find(shown, begin)
        assert found >= 0, f"not printed, or not in this order:\n{shown}\n{printed}"
        begin = found + len(shown)
    service.run(*commands("qserver environment close"))
    wait_for(lambda: queue_shows(service, "'worker_environment_exists': False"), "still open")
    service.run(*commands("redis-cli"))
