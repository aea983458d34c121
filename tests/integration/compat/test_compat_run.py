"""`daqiri-ophyd run SCRIPT` is `python SCRIPT`, with a module daqiri."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from daqiri_ophyd.engine import PcapFile

Run = Callable[..., tuple[int, str, str]]
Start = Callable[..., subprocess.Popen[str]]

# Sends a burst to itself and reports it; what follows runs with the engine open.
BEGUN = """
import daqiri, sys, time

def arrived():
    while True:
        status, burst = daqiri.get_rx_burst()
        if status == daqiri.Status.SUCCESS:
            return burst

assert daqiri.daqiri_init(sys.argv[1]) == daqiri.Status.SUCCESS
burst = daqiri.create_tx_burst_params()
daqiri.set_header(burst, 0, 0, 32, 1)
assert daqiri.get_tx_packet_burst(burst) == daqiri.Status.SUCCESS
daqiri.set_all_packet_lengths(burst, [100])
assert daqiri.send_tx_burst(burst) == daqiri.Status.SUCCESS
received = arrived()
print("begun", flush=True)
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def to_file(text: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return to_file


@pytest.fixture
def config(write: Callable[..., Path], loopback: Callable[..., dict[str, Any]]) -> Path:
    return write(yaml.safe_dump(loopback()), "loopback.yaml")


def test_arguments_and_exit_status_are_the_scripts(run: Run, write: Callable[..., Path]) -> None:
    script = write(
        "import json, sys\n"
        "own = 5\n"
        "main = sys.modules['__main__']\n"
        "print(json.dumps([sys.argv, __name__, __file__, main.own]))\n"
        "sys.exit(3)\n"
    )
    arguments = ["--help", "-h", "--", "a b", "--json", "-"]
    status, output, errors = run(script, *arguments)
    assert (status, errors) == (3, "")
    assert json.loads(output) == [[str(script), *arguments], "__main__", str(script), 5]


def test_a_text_at_exit_goes_to_stderr(run: Run, write: Callable[..., Path]) -> None:
    assert run(write("import sys; sys.exit('no beam')")) == (1, "", "no beam\n")


def test_daqiri_is_the_module_of_this_package(run: Run, write: Callable[..., Path]) -> None:
    script = write(
        "import daqiri\n"
        "from daqiri import Status, get_rx_burst\n"
        "from daqiri_ophyd import compat, engine\n"
        "assert daqiri is compat\n"
        "assert Status is engine.Status\n"
        "print(daqiri.__version__, daqiri.get_rx_burst is get_rx_burst)\n"
    )
    status, output, errors = run(script)
    assert (status, errors) == (0, "")
    assert output.endswith(" True\n")


def test_modules_beside_the_script_are_found_from_any_folder(
    run: Run, write: Callable[..., Path], tmp_path: Path
) -> None:
    write("def greet(): return 'from beside'\n", "scripts/beside.py")
    script = write("import beside; print(beside.greet())", "scripts/script.py")
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert run(script, cwd=other) == (0, "from beside\n", "")
    assert run("../scripts/script.py", cwd=other) == (0, "from beside\n", "")


def test_a_script_may_come_from_standard_input(run: Run) -> None:
    script = "import daqiri, sys; print(sys.argv, daqiri.MAX_NUM_SEGS)"
    assert run("-", "-x", "a", input=script) == (0, "['-', '-x', 'a'] 4\n", "")


def test_a_script_that_is_not_there_is_exit_status_2(run: Run, tmp_path: Path) -> None:
    status, output, errors = run(tmp_path / "none.py")
    assert (status, output) == (2, "")
    assert f"{tmp_path}/none.py" in errors
    assert "No such file" in errors


def test_an_option_before_the_script_is_wrong_usage(run: Run) -> None:
    status, output, errors = run("--nonsense", "script.py")
    assert (status, output) == (2, "")
    assert "--nonsense" in errors


def test_a_file_whose_name_begins_with_a_dash(
    run: Run, write: Callable[..., Path], tmp_path: Path
) -> None:
    write("print('run')", "-c.py")
    assert run("--", "-c.py", cwd=tmp_path) == (0, "run\n", "")


def test_a_traceback_is_of_the_script_only(
    run: Run, write: Callable[..., Path], config: Path
) -> None:
    script = write(BEGUN + "def fails():\n    raise ValueError('mine')\nfails()\n")
    status, output, errors = run(script, config)
    assert (status, output) == (1, "begun\n")
    assert errors.splitlines()[-1] == "ValueError: mine"
    files = [line for line in errors.splitlines() if line.lstrip().startswith("File ")]
    assert len(files) == 2
    assert all(str(script) in line for line in files)


def test_leaving_with_bursts_and_the_engine_open(
    run: Run, write: Callable[..., Path], config: Path
) -> None:
    leaves = "kept = [received, daqiri.create_tx_burst_params()]\nsys.exit(4)\n"
    assert run(write(BEGUN + leaves), config) == (4, "begun\n", "")


def test_what_the_script_does_at_exit_finds_the_engine(
    run: Run, write: Callable[..., Path], config: Path
) -> None:
    """Functions that it registers run before the engine is shut down."""
    at_exit = "import atexit\natexit.register(daqiri.print_stats)\n"
    status, output, errors = run(write(BEGUN + at_exit), config)
    assert (status, errors) == (0, "")
    assert "camera/rx " in output


@pytest.mark.parametrize(
    "loop",
    [
        "while True: daqiri.get_rx_burst()",
        "while True: time.sleep(1)",
        "while True: daqiri.get_packet_bytes(received, 0)",
    ],
)
def test_ctrl_c_ends_it_as_it_ends_python(
    start: Start, write: Callable[..., Path], config: Path, loop: str
) -> None:
    process = start(write(f"{BEGUN}\n{loop}\n"), config)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.startswith("Traceback (most recent call last):\n")
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("File ") == 1, errors


def test_sigterm_ends_it_with_whole_files(
    start: Start, write: Callable[..., Path], config: Path, tmp_path: Path
) -> None:
    loop = "while True: daqiri.daqiri_write_pcap_to_file(received, sys.argv[2], 'written')\n"
    process = start(write(BEGUN + loop), config, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    written = tmp_path / "written.pcap"
    # It is made before its header is written.
    while not (written.exists() and written.stat().st_size):
        assert process.poll() is None, process.communicate()
    process.terminate()
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (-signal.SIGTERM, "", "")
    with PcapFile(written) as pcap:
        assert (pcap.lengths == 100).all()


def test_a_script_may_handle_sigterm(start: Start, write: Callable[..., Path]) -> None:
    script = write(
        "import daqiri, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    process = start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 7


def test_processes_that_it_starts_find_the_module(run: Run, write: Callable[..., Path]) -> None:
    script = write(
        "import multiprocessing, subprocess, sys\n"
        "import daqiri\n"
        "def segments(n):\n"
        "    return n * daqiri.MAX_NUM_SEGS\n"
        "if __name__ == '__main__':\n"
        "    command = [sys.executable, '-c', 'import daqiri; print(daqiri.MAX_NUM_SEGS)']\n"
        "    print(subprocess.check_output(command, text=True).strip())\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(segments, [2]))\n"
    )
    assert run(script) == (0, "4\n[8]\n", "")


def test_the_path_of_the_environment_stays(
    run: Run, write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("value = 9\n", "library/own.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    assert run(write("import daqiri, own; print(own.value)")) == (0, "9\n", "")
