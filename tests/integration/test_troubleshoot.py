"""The messages quoted in the troubleshooting guide are those that are printed."""

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from bluesky import RunEngine
from bluesky.utils import FailedStatus
from documented_programs import commands_of, run_command

from daqiri_ophyd import devices, plans, profiles
from daqiri_ophyd.catalog import Catalog, UnreadableFileError, capture_files
from daqiri_ophyd.devices import CaptureError, Daq, make_daq
from daqiri_ophyd.engine import DaqiriError, Engine

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "troubleshoot.md"
PACKETS = {"count": 200, "size": 200, "udp_dst": 5000}


def shape(message: str) -> str:
    """Return a message without numbers, paths and interfaces, which differ between hosts."""
    message = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", message)
    message = re.sub(r"(?<![:/\w])/[^ :,;'`)\]]+", "PATH", message)
    message = re.sub(r"has the interfaces [^;]+", "has the interfaces", message)
    return re.sub(r"\d+", "0", message)


# A block is a message, on several lines where it is long.
QUOTED = {
    shape(" ".join(block.split()))
    for block in re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
}


def is_quoted(message: object) -> bool:
    """Whether the guide quotes a message, or the end of one."""
    lines = [shape(line.removeprefix("error: ")).rstrip(".") for line in str(message).splitlines()]
    quoted = {line.rstrip(".") for line in QUOTED}
    assert any(line in quoted for line in lines), "\n".join([*lines, "", "quoted:", *QUOTED])
    return True


def changed(profile: str, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    config = yaml.safe_load(profiles.path(profile).read_text())
    change(config["daqiri"]["cfg"])
    return config


def raw_on(address: str) -> dict[str, Any]:
    """A raw interface with buffers for ordinary frames."""
    queue = {"name": "q", "id": 0, "cpu_core": "any", "batch_size": 64, "memory_regions": ["a"]}
    return {
        "daqiri": {
            "cfg": {
                "version": 1,
                "stream_type": "raw",
                "master_core": 0,
                "memory_regions": [
                    {"name": "a", "kind": "host", "num_bufs": 4096, "buf_size": 1500}
                ],
                "interfaces": [{"name": "d", "address": address, "rx": {"queues": [queue]}}],
            }
        }
    }


def refusal(config: Any) -> DaqiriError:
    with pytest.raises(DaqiriError) as refused, Engine.open(config):
        pass
    return refused.value


@pytest.fixture
def loopback(tmp_path: Path):
    with make_daq(profiles.path("loopback"), "daq", directory=tmp_path / "captures") as daq:
        yield daq


def capture(daq: Daq, **settings: Any) -> Any:
    return plans.capture(daq.port0.capture, tx=daq.port0.tx.tx_q0, packets=PACKETS, **settings)


@pytest.mark.usefixtures("udp_profile_port")
def test_nothing_arrives_and_the_port_is_in_use(tmp_path: Path, run_engine: RunEngine) -> None:
    with make_daq(profiles.path("udp"), "daq", directory=tmp_path) as daq:
        with pytest.raises(FailedStatus) as failed:
            run_engine(plans.capture(daq.receiver.capture, num_packets=100, timeout=1.0))
        assert is_quoted(failed.value)
        assert is_quoted(refusal(profiles.path("udp")))


def test_packets_are_dropped(tmp_path: Path, run_engine: RunEngine) -> None:
    def lose(cfg: dict[str, Any]) -> None:
        cfg["loopback_drops"] = True
        cfg["memory_regions"][0]["num_bufs"] = 64

    many = {"count": 50_000, "size": 1000, "udp_dst": 5000}
    with make_daq(changed("loopback", lose), "daq", directory=tmp_path) as daq:
        port = daq.port0
        with pytest.raises(FailedStatus) as failed:
            run_engine(plans.capture(port.capture, 50_000, tx=port.tx.tx_q0, packets=many))
    lost = str(failed.value).partition("capturing failed: ")[2]
    assert is_quoted(re.sub(r"\(.*\)", "(0 no_packet_buffer)", lost))


def test_runs_are_refused(loopback: Daq, run_engine: RunEngine) -> None:
    detector = loopback.port0.capture
    detector.path.put("same")
    run_engine(capture(loopback))
    with pytest.raises(CaptureError) as occupied:
        run_engine(capture(loopback))
    assert is_quoted(occupied.value)
    detector.directory.put("/proc/nope")
    with pytest.raises(CaptureError) as absent:
        run_engine(capture(loopback))
    assert is_quoted(absent.value)


def test_the_configuration_does_not_fit_the_host() -> None:
    def elsewhere(cfg: dict[str, Any]) -> None:
        cfg["interfaces"][0]["address"] = "192.0.2.9"
        cfg["interfaces"][0]["socket_config"]["local_addr"] = "udp://192.0.2.9:47100"

    assert is_quoted(refusal(changed("udp", elsewhere)))
    assert is_quoted(refusal(raw_on("eth7")))


def test_an_engine_is_not_part_of_the_build() -> None:
    # Of DPDK's engine this is said by builds without it only: wheels.
    assert is_quoted(refusal(changed("igx", lambda cfg: cfg.update(engine="ibverbs"))))


def test_no_hugepages_are_left() -> None:
    if int(Path("/proc/sys/vm/nr_hugepages").read_text()) or int(
        Path("/proc/sys/vm/nr_overcommit_hugepages").read_text()
    ):
        pytest.skip("this host has hugepages")
    assert is_quoted(
        refusal(changed("udp", lambda cfg: cfg["memory_regions"][0].update(kind="huge")))
    )


def test_there_is_no_gpu() -> None:
    config = changed("udp", lambda cfg: cfg["memory_regions"][0].update(kind="device"))
    with suppress(OSError):
        import ctypes

        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this host has NVIDIA's driver")
    assert is_quoted(refusal(config))


@pytest.mark.root
def test_a_raw_interface_needs_a_privilege(tmp_path: Path) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    command = f"{Path(sys.executable).parent}/daqiri-ophyd capture lo --seconds 1"
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", *command.split()],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1
    assert is_quoted(done.stderr)


@pytest.mark.root
def test_buffers_are_shorter_than_frames_of_the_interface() -> None:
    program = "import sys; from daqiri_ophyd.engine import Engine; Engine.open(eval(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, repr(raw_on("lo"))],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert is_quoted(done.stderr)


@pytest.mark.root
@pytest.mark.usefixtures("udp_profile_port")
def test_the_kernel_grants_less_than_the_engine_asks_for() -> None:
    if int(Path("/proc/sys/net/core/rmem_max").read_text()) >= 33_554_432:
        pytest.skip("net.core.rmem_max is large")
    command = f"{Path(sys.executable).parent}/daqiri-ophyd stats udp --count 1"
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", *command.split()],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert is_quoted(done.stderr)


def test_the_catalog_refuses_files(
    tmp_path: Path,
    loopback: Daq,
    run_engine: RunEngine,
    empty_catalog: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(tmp_path / "catalog", readable=[tmp_path / "elsewhere"]) as catalog:
        run_engine.subscribe(catalog.writer())
        with caplog.at_level(logging.WARNING):
            (uid,) = run_engine(capture(loopback))
            run = catalog.client[uid]
        assert any(
            is_quoted(record.getMessage())
            for record in caplog.records
            if "cannot read its captures" in record.getMessage()
        )
        with pytest.raises(UnreadableFileError) as refused:
            capture_files(run)
        assert is_quoted(refused.value)
        shutil.rmtree(tmp_path / "captures")
        with pytest.raises(UnreadableFileError) as gone:
            capture_files(run)
        assert is_quoted(gone.value)


def test_incomplete_frames_are_refused_with_this_message() -> None:
    text = "packets are missing in frames; to accept such frames set "
    sources = Path(devices.__file__ or "").parent.rglob("*.py")
    assert any(text in source.read_text() for source in sources)
    assert any(text in line for line in QUOTED)


def test_torn_files_are_checked_and_repaired(
    tmp_path: Path, loopback: Daq, run_engine: RunEngine
) -> None:
    run_engine(capture(loopback))
    (file,) = tmp_path.glob("captures/**/*.pcap")
    whole = file.read_bytes()
    size = 24 + 16 + 242  # of the file's header and one packet with its own
    (tmp_path / "port0_000003.pcap").write_bytes(whole[: size + 32])
    link, check, repair = commands_of(PAGE)
    run_command(link, tmp_path)
    assert any(is_quoted(line) for line in run_command(check, tmp_path, 1).splitlines()[:1])
    run_command(repair, tmp_path)
    run_command(check, tmp_path)
