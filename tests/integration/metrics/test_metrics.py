"""Metrics that Prometheus scrapes and an OpenTelemetry collector receives."""

import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_programs import commands_of, run_command
from free_ports import free_port
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from page_blocks import page_blocks
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_for

from daqiri_ophyd.cli import _main
from daqiri_ophyd.engine import Engine
from daqiri_ophyd.metrics._instruments import INSTRUMENTS

from .conftest import COMMAND, Config

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "watch-in-grafana.md"
Send = Callable[[Engine, int, int], int]

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs Debian's package prometheus"
)


@contextmanager
def command(*arguments: str) -> Iterator[str]:
    """Run the command; yields its first line."""
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.wait(30)
        assert process.returncode == 0
        assert process.stderr.read() == "ended\n"


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read().decode()


def values(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Return samples by name and labels."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def total(text: str, name: str, **labels: str) -> float:
    found = values(text).get(name, {})
    return sum(v for of, v in found.items() if labels.items() <= dict(of).items())


def assembled(engine: Engine) -> int:
    return engine.ports[0].reorder["images"].counters().complete


def test_prometheus_reads_what_engines_of_other_processes_count(config: Config, send: Send) -> None:
    with Engine.open(config) as engine, command("--port", "0") as said:
        address = said.split()[2].rstrip(";")
        sent = send(engine, 0, 5)
        wait_for(lambda: assembled(engine) == 5)
        text = fetch(address)
        queue = {
            "daqiri_engine": "loopback",
            "daqiri_interface_name": "camera",
            "daqiri_port_id": "0",
            "daqiri_queue_id": "3",
            "process_pid": str(os.getpid()),
        }
        receive = {**queue, "daqiri_queue_name": "rx", "network_io_direction": "receive"}
        transmit = {**queue, "daqiri_queue_name": "tx", "network_io_direction": "transmit"}
        found = values(text)
        assert found["daqiri_rx_packets_total"] == {frozenset(receive.items()): sent}
        assert found["daqiri_tx_packets_total"] == {frozenset(transmit.items()): sent}
        assert (
            total(text, "daqiri_rx_bytes_total") == engine.snapshot().rx[0].counters.received_bytes
        )
        assert total(text, "daqiri_dropped_packets_total") == 0
        assert len(found["daqiri_dropped_packets_total"]) == 2 * len(
            engine.snapshot().rx[0].counters.dropped
        )
        assert total(text, "daqiri_frames_total", daqiri_frame_state="complete") == 5
        assert total(text, "daqiri_flow_packets_total", daqiri_flow_name="pixels") == sent
        assert total(text, "daqiri_memory_buffers", daqiri_memory_region="images") == 256
        buckets = found["daqiri_tx_lateness_seconds_bucket"]
        assert {value for of, value in buckets.items() if ("le", "+Inf") in of} == {sent}
        by_bound = sorted((float(dict(of)["le"]), value) for of, value in buckets.items())
        assert [value for _, value in by_bound] == sorted(value for _, value in by_bound)
        assert len(by_bound) == 13
        names = {name.removesuffix("_total").removesuffix("_bucket") for name in found}
        missing = {each.name.replace(".", "_") for each in INSTRUMENTS} - {
            name.removesuffix("_seconds") for name in names
        }
        # Uploads have tests of their own; another process may have some.
        missing = {name for name in missing if not name.startswith("daqiri_ship")}
        assert missing == {"daqiri_engine_unreadable"}


def test_ten_openings_of_two_engines_are_counted_once(config: Config, send: Send) -> None:
    with command("--port", "0") as said:
        address = said.split()[2].rstrip(";")
        before = sent = 0
        for _ in range(10):
            with ExitStack() as opened:
                engines = [opened.enter_context(Engine.open(config)) for _ in range(2)]
                for engine in engines:
                    sent += send(engine, 0, 2)
                for engine in engines:
                    wait_for(lambda engine=engine: assembled(engine) == 2)
                now = total(fetch(address), "daqiri_rx_packets_total")
                assert now == sent > before
                before = now
        assert total(fetch(address), "daqiri_rx_packets_total") == 0
        assert "daqiri_rx_packets" not in values(fetch(address))


class Collector(HTTPServer):
    """Receives OTLP over HTTP on a free port."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.received: list[ExportMetricsServiceRequest] = []

    def latest(self) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        """Return the values of the last push by metric and attributes."""
        if not self.received:
            return {}
        found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for resource in self.received[-1].resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    for point in getattr(metric, kind).data_points:
                        of = frozenset((a.key, a.value.string_value) for a in point.attributes)
                        value = point.as_double or point.as_int
                        found.setdefault(metric.name, {})[of] = value
        return found


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.server.received.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_collector_gets_the_same_numbers(
    config: Config, send: Send, collector: Collector
) -> None:
    url = f"http://127.0.0.1:{collector.server_port}/v1/metrics"
    with Engine.open(config) as engine, command("--otlp", url, "--interval", "0.1"):
        sent = send(engine, 0, 3)
        wait_for(lambda: sum(collector.latest().get("daqiri.frames", {}).values()) == 3)
        found = collector.latest()
        (of, value), *others = found["daqiri.rx.packets"].items()
        assert (value, others) == (sent, [])
        assert dict(of)["daqiri.queue.id"] == "3"
        assert sum(found["daqiri.tx.packets"].values()) == sent
        late = found["daqiri.tx.lateness.packets"]
        assert sum(value for of, value in late.items() if ("le", "+Inf") in of) == sent


@needs_prometheus
def test_every_query_of_the_dashboard_and_every_rule_has_data(
    config: Config, send: Send, tmp_path: Path
) -> None:
    for each in commands_of(GUIDE):
        run_command(each, tmp_path)
    checked = subprocess.run(
        ["promtool", "check", "rules", "daqiri-alerts.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    queries = [
        target["expr"].replace("$__rate_interval", "20s").replace("$process", ".*")
        for panel in json.loads((tmp_path / "daqiri-dashboard.json").read_text())["panels"]
        for target in panel["targets"]
    ]
    with Engine.open(config) as engine, command("--port", "0") as said:
        scraped = said.split()[2].removeprefix("http://").partition("/")[0]
        with prometheus(tmp_path, scraped) as api:
            first = send(engine, 0, 3)
            wait_for(lambda: _value(api, "sum(daqiri_rx_packets_total)") == first)
            more = send(engine, 3, 7)
            wait_for(lambda: _value(api, "sum(daqiri_rx_packets_total)") == first + more)
            assert _value(api, 'sum(daqiri_frames_total{daqiri_frame_state="complete"})') == 10
            for query in queries:
                wait_for(lambda query=query: _value(api, query) is not None)
            names = json.loads(fetch(f"{api}/rules"))["data"]["groups"][0]["rules"]
            assert len(names) == 7
            wait_for(
                lambda: all(
                    rule["health"] == "ok"
                    for rule in json.loads(fetch(f"{api}/rules"))["data"]["groups"][0]["rules"]
                )
            )


@contextmanager
def prometheus(folder: Path, scraped: str) -> Iterator[str]:
    """Run a server with the configuration of the guide; yields the address of its API."""
    port = free_port("tcp")
    (block,) = (each.code for each in page_blocks(GUIDE) if each.language == "yaml")
    config = yaml.safe_load(block.replace("127.0.0.1:9464", scraped))
    config["global"] = {"evaluation_interval": "1s"}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    log = (folder / "prometheus.log").open("w")
    options = [
        f"--config.file={folder}/prometheus.yaml",
        f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log, subprocess.Popen(["prometheus", *options], stderr=log) as process:
        api = f"http://127.0.0.1:{port}/api/v1"

        def is_ready() -> bool:
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            try:
                fetch(f"http://127.0.0.1:{port}/-/ready")
            except (urllib.error.URLError, ConnectionError):
                return False
            return True

        try:
            wait_for(is_ready)
            yield api
        finally:
            process.terminate()


def _value(api: str, query: str) -> float | None:
    """Return the first value of a query; None: it has no data."""
    parameters = urllib.parse.urlencode({"query": query})
    found = json.loads(fetch(f"{api}/query?{parameters}"))["data"]["result"]
    return float(found[0]["value"][1]) if found else None


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--print", "rules"], 2, "--print is 'rules'; accepts dashboard, alerts"),
        (["--otlp", "localhost:4318"], 2, "accepted is http://HOST:PORT/v1/metrics"),
        (["--otlp", "http://h", "--port", "1"], 2, "--port is for Prometheus, --otlp pushes"),
    ],
)
def test_what_it_cannot_do_is_said(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main._run(["metrics", *arguments]) == code
    assert text in " ".join(capsys.readouterr().err.split())


def test_a_port_that_is_taken_is_named(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    port = str(collector.server_port)
    assert _main._run(["metrics", "--port", port]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use; give another" in said


def test_engines_that_cannot_be_found_are_a_failure(
    runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runtime / "daqiri").write_text("")
    assert _main._run(["metrics"]) == 1
    assert "is not a directory" in " ".join(capsys.readouterr().err.split())
