"""``daqiri-ophyd metrics``."""

import threading
from importlib.resources import files
from typing import Annotated

import typer

from ._limits import seconds, whole
from ._output import print_line, print_message

_PORT = 9464
_FILES = {"dashboard": "dashboard.json", "alerts": "alerts.yaml"}


def metrics(
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help=f"TCP port for Prometheus; default: {_PORT}.",
            parser=whole(0, 65535),
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of this host to listen on.")
    ] = "127.0.0.1",
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Push to an OpenTelemetry collector instead, such as "
            "http://localhost:4318/v1/metrics.",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time between pushes.", parser=seconds(0.1)),
    ] = 15.0,
    printed: Annotated[
        str | None,
        typer.Option(
            "--print",
            metavar="|".join(_FILES),
            help="Print a dashboard for Grafana, or alert rules for Prometheus, and end.",
        ),
    ] = None,
) -> None:
    """
    Give counters and levels of running engines to Prometheus or OpenTelemetry.

    It reads all engines of this user, in any process, now and later. Prometheus reads
    http://127.0.0.1:9464/metrics. Ctrl-C ends it.

    Example: [bold]daqiri-ophyd metrics --port 9464[/bold]
    """
    from ..engine import ask_engines

    if printed is not None:
        if printed not in _FILES:
            raise typer.BadParameter(f"--print is {printed!r}; accepts {', '.join(_FILES)}")
        print_line((files("daqiri_ophyd.metrics") / _FILES[printed]).read_text().rstrip())
        return
    if otlp is not None and port is not None:
        raise typer.BadParameter("--port is for Prometheus, --otlp pushes; give one of them")
    ask_engines()  # fails now, if it always would
    try:
        if otlp is None:
            _serve(address, _PORT if port is None else port)
        else:
            _push(otlp, interval)
    except KeyboardInterrupt:
        print_message("ended")


def _serve(address: str, port: int) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from ..metrics import EngineCollector

    registry = CollectorRegistry()
    registry.register(EngineCollector())
    try:
        server, _ = start_http_server(port, address, registry)
    except OSError as error:
        raise RuntimeError(
            f"cannot listen on {address}, port {port}: {error.strerror or error}; give another "
            "--port or --address"
        ) from None
    host = f"[{address}]" if ":" in address else address
    print_message(f"Prometheus reads http://{host}:{server.server_port}/metrics; Ctrl-C ends it")
    try:
        threading.Event().wait()
    finally:
        server.shutdown()
        server.server_close()


def _push(url: str, interval: float) -> None:
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    except ImportError as error:
        raise RuntimeError(
            f"{error.name} is not installed, and --otlp needs it: pip install opentelemetry-sdk "
            "opentelemetry-exporter-otlp-proto-http"
        ) from None
    from ..metrics import instrument

    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"--otlp is {url!r}; accepted is http://HOST:PORT/v1/metrics")
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=url), export_interval_millis=interval * 1000
    )
    provider = MeterProvider([reader], Resource.create({SERVICE_NAME: "daqiri-ophyd"}))
    instrument(provider, all_processes=True)
    print_message(f"pushing to {url} every {interval:g} s; Ctrl-C ends it")
    try:
        threading.Event().wait()
    finally:
        provider.shutdown()
