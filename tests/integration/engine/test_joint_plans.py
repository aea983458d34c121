"""Reorder plans with flows of several interfaces: modules on ports and links of their own."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from free_ports import free_port
from networks import Network
from waiting import wait_for

from daqiri_ophyd.engine import (
    ConfigError,
    Engine,
    NotSupportedError,
    ReorderPlan,
    ethernet,
    load_config,
)

Config = dict[str, Any]
Send = Callable[[int, bytes], object]

MODULES, PACKETS, BYTES = 8, 4, 64
SLOTS = MODULES * PACKETS


def bits(at: int) -> Config:
    return {"bit_offset": at, "bit_width": 32, "base": "udp_payload"}


def plan(modules: int = MODULES, **keys: Any) -> Config:
    """A plan whose packets have the number of the image, then their own in their module."""
    return {
        "name": "images",
        "reorder_type": "cpu",
        "memory_region": "frames",
        "flows": [f"module{i}/data" for i in range(modules)],
        "flow_stride": PACKETS,
        "payload_base": "udp_payload",
        "payload_byte_offset": 8,
        "timeout_us": 2_000_000,
        "frame": {"shape": [modules * PACKETS, BYTES], "dtype": "uint8"},
        "method": {
            "batch_packet_number": {
                "batch_number": bits(0),
                "packet_number": bits(32),
                "packets_per_batch": modules * PACKETS,
            }
        },
    } | keys


def module(number: int, **keys: Any) -> Config:
    """An interface with a queue and a flow; every second one is read by another thread."""
    queue = {"name": "rx", "id": 0, "batch_size": 64, "timeout_us": 1000, "memory_regions": ["in"]}
    flow = {"name": "data", "id": number + 1, "action": {"type": "queue", "id": 0}}
    rx = {"queues": [{**queue, "cpu_core": ("any", "0")[number % 2]}], "flows": [flow]}
    return {"name": f"module{number}", "rx": rx} | keys


def configuration(interfaces: list[Config], plans: list[Config], **keys: Any) -> Config:
    regions = [("in", 4096, 256), ("frames", 32, MODULES * PACKETS * 256)]
    return {
        "version": 1,
        "master_core": 0,
        "memory_regions": [
            {"name": name, "kind": "host", "num_bufs": number, "buf_size": size}
            for name, number, size in regions
        ],
        "interfaces": interfaces,
        "reorder_configs": plans,
    } | keys


def sockets(*plans: Config, modules: int = MODULES) -> tuple[Config, list[tuple[str, int]]]:
    """Modules on UDP ports of two addresses; the addresses."""
    hosts = [f"127.0.0.{1 + i % 2}" for i in range(modules)]
    addresses = [(host, free_port("udp", host)) for host in hosts]
    interfaces = [
        module(
            i,
            address=host,
            socket_config={"mode": "server", "local_addr": f"udp://{host}:{port}"},
        )
        for i, (host, port) in enumerate(addresses)
    ]
    chosen = list(plans) or [plan(modules)]
    return configuration(interfaces, chosen, stream_type="socket"), addresses


def image(batch: int, slots: int = SLOTS) -> Any:
    rows = np.arange(slots, dtype=np.uint8)[:, None] + np.uint8(batch * 37 % 256)
    return np.repeat(rows, BYTES, axis=1)


def packet(batch: int, slot: int) -> bytes:
    numbers = np.array([batch, slot % PACKETS], ">u4").tobytes()
    return numbers + image(batch)[slot].tobytes()


def packets(batch: int, without: tuple[int, ...] = (), slots: int = SLOTS) -> Iterator[Any]:
    """Modules and packets of an image; modules take turns."""
    for slot in sorted(range(slots), key=lambda slot: slot % PACKETS):
        if slot not in without:
            yield slot // PACKETS, packet(batch, slot)


def send_paced(
    engine: Engine, send: Send, batches: range, lost: dict[int, int], slots: int = SLOTS
) -> int:
    """Send images, some without a slot; a few at a time, as sockets hold few."""
    sent = 0
    made = engine.reorder["images"]
    before = made.counters().packets
    for batch in batches:
        without = (lost[batch],) if batch in lost else ()
        for number, data in packets(batch, without, slots):
            send(number, data)
            sent += 1
        wait_for(lambda sent=sent: made.counters().packets == before + sent)
    return sent


@contextmanager
def udp_senders(addresses: list[tuple[str, int]]) -> Iterator[Send]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        yield lambda number, data: sender.sendto(data, addresses[number])


def balanced(engine: Engine, made: ReorderPlan) -> int:
    """Check that every packet is counted at its queue and by the plan; return their number."""
    received = 0
    for state in engine.snapshot().rx:
        counters = state.counters
        assert counters.received == counters.delivered + counters.held + counters.dropped_total
        received += counters.delivered
    counters = made.counters()
    dropped = counters.duplicate + counters.late + counters.early + counters.malformed
    assert counters.packets == received == counters.placed + dropped + counters.no_buffer
    return received


def test_a_thousand_images_of_eight_sockets(tmp_path: Path) -> None:
    config, addresses = sockets()
    lost = {batch: 5 * PACKETS + batch % PACKETS for batch in range(250, 1000, 250)}
    with Engine.open(config) as engine, udp_senders(addresses) as send:
        made = engine.reorder["images"]
        assert made is engine.reorder_plan("images")
        recorder = made.record(tmp_path)
        sent = send_paced(engine, send, range(1000), lost)
        wait_for(lambda: recorder.snapshot().frames == 1000)
        recorder.stop()
        counters = made.counters()
        assert balanced(engine, made) == sent == 1000 * SLOTS - 3
        assert (counters.complete, counters.incomplete, counters.missing) == (997, 3, 3)
        for port in engine.ports:
            kept = PACKETS * 1000 - (3 if port.name == "module5" else 0)
            assert port.rx[0].counters().delivered == kept
        (state,) = engine.snapshot().reorder
        assert (state.port, state.plan, state.counters) == ("", "images", counters)
    assert engine.counters["plans"]["images"]["packets"] == sent
    with h5py.File(tmp_path / "frames_000000.h5") as file:
        data = file["entry/data"]
        assert data["batch"][:].tolist() == list(range(1000))
        valid = np.unpackbits(data["valid"][:], axis=1, bitorder="little")[:, :SLOTS]
        assert dict(zip(*np.nonzero(valid == 0), strict=True)) == lost
        wanted = np.array([image(batch) for batch in range(1000)])
        wanted[tuple(np.array(list(lost.items())).T)] = 0
        np.testing.assert_array_equal(data["data"][:], wanted)
    told = json.loads((tmp_path / "frames_000000.h5.json").read_text())
    assert told["reorder_plan"] == "images"
    flows = [(flow["interface"], flow["name"], flow["id"]) for flow in told["flows"]]
    assert flows == [(f"module{i}", "data", i + 1) for i in range(MODULES)]


def test_what_finds_no_buffer_is_counted_at_its_queue() -> None:
    config, addresses = sockets()
    with Engine.open(config) as engine, udp_senders(addresses) as send:
        made = engine.reorder["images"]
        with made.frames():  # which are not taken
            sent = send_paced(engine, send, range(100), {})
            assert balanced(engine, made) == sent
        counters = made.counters()
        assert counters.no_buffer == sent - 32 * SLOTS
        assert counters.lost == counters.no_buffer / SLOTS


def frames_of(data: bytes, port: int = 5000) -> Any:
    return ethernet.udp_frames(
        np.frombuffer(data, np.uint8)[None],
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=port,
    )


def test_two_loopback_ports() -> None:
    queue = {"name": "tx", "id": 0, "cpu_core": "any", "batch_size": 64, "memory_regions": ["out"]}
    interfaces = [module(i, address="loopback", tx={"queues": [queue]}) for i in range(2)]
    config = configuration(interfaces, [plan(2)], stream_type="raw", loopback="sw")
    config["memory_regions"].append(
        {"name": "out", "kind": "host", "num_bufs": 1024, "buf_size": 256}
    )
    with Engine.open(config) as engine:
        ports = engine.ports
        made = engine.reorder["images"]
        with made.frames(timeout=30.0) as frames:
            send = lambda number, data: ports[number].tx[0].send(frames_of(data))  # noqa: E731
            send_paced(engine, send, range(20), {}, 2 * PACKETS)
            for batch in range(20):
                frame = next(frames)
                assert (frame.batch, frame.missing) == (batch, 0)
                np.testing.assert_array_equal(frame.data, image(batch, 2 * PACKETS))
        assert balanced(engine, made) == 20 * 2 * PACKETS


@pytest.mark.root
def test_a_thousand_images_of_eight_ports_on_two_network_interfaces(cable: Network) -> None:
    # Modules 0 to 3 are on the first link, 4 to 7 on the second, each with a port of its own.
    cable.run("ip link add near2 type veth peer name far2")
    cable.without_ipv6("near2", "far2")
    cable.up("near2", "far2")
    of_link = MODULES // 2
    interfaces = [module(link, address=("far", "far2")[link]) for link in range(2)]
    for link, interface in enumerate(interfaces):
        interface["rx"] |= {
            "flow_isolation": True,
            "flows": [
                {
                    "name": f"module{number}",
                    "id": number + 1,
                    "match": {"udp_dst": 5000 + number},
                    "action": {"type": "queue", "id": 0},
                }
                for number in range(link * of_link, (link + 1) * of_link)
            ],
        }
    flows = [f"module{i // of_link}/module{i}" for i in range(MODULES)]
    config = configuration(interfaces, [plan(flows=flows)], stream_type="raw", engine="packet")
    # Each packet of module 5 in turn, in every 50th image.
    lost = {batch: 5 * PACKETS + batch // 50 % PACKETS for batch in range(25, 1000, 50)}

    def wire(link: str) -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        made.bind((link, 0))
        return made

    with (
        cable.call(wire, "near") as first,
        cable.call(wire, "near2") as second,
        cable.call(Engine.open, config) as engine,
    ):
        wires = first, second

        def send(number: int, data: bytes) -> None:
            wires[number // of_link].send(frames_of(data, 5000 + number)[0].tobytes())

        made = engine.reorder["images"]
        with made.frames(timeout=30.0) as frames:
            for end in range(10, 1011, 10):
                send_paced(engine, send, range(end - 10, min(end, 1000)), lost)
                # A lossy one waits until more follow than may be open.
                for batch in range(max(end - 20, 0), end - 10):
                    frame = next(frames)
                    missing = [lost[batch]] if batch in lost else []
                    assert (frame.batch, np.flatnonzero(~frame.valid).tolist()) == (batch, missing)
                    wanted = image(batch)
                    wanted[missing] = 0
                    np.testing.assert_array_equal(frame.data, wanted)
        assert balanced(engine, made) == 1000 * SLOTS - len(lost)
        counters = made.counters()
        assert (counters.complete, counters.incomplete, counters.missing) == (980, 20, 20)
        kept = {
            port.name: [flow.counters().packets for flow in port.flows] for port in engine.ports
        }
        each = 1000 * PACKETS
        assert kept == {"module0": [each] * 4, "module1": [each, each - 20, each, each]}


def test_modules_of_one_socket_differ_by_a_field() -> None:
    config, addresses = sockets(modules=1)
    (interface,) = config["interfaces"]
    port = addresses[0][1]
    rx = interface["rx"]
    rx["flex_items"] = [{"name": "module", "id": 1, "offset": 60, "udp_dst_port": port}]
    rx["flows"] = [
        {
            "name": f"module{i}",
            "id": i + 1,
            "match": {"flex_item_id": 1, "val": i << 16, "mask": 0xFF0000},
            "action": {"type": "queue", "id": 0},
        }
        for i in range(MODULES)
    ]
    flows = [f"module0/module{i}" for i in range(MODULES)]
    config["reorder_configs"] = [plan(flows=flows, payload_byte_offset=64)]
    with Engine.open(config) as engine, socket.socket(type=socket.SOCK_DGRAM) as sender:

        def send(number: int, data: bytes) -> None:
            field = bytes([0xA5, number, 0xA5, 0xA5])
            sender.sendto(data[:8] + bytes(52) + field + data[8:], addresses[0])

        made = engine.reorder["images"]
        with made.frames(timeout=30.0) as frames:
            sent = send_paced(engine, send, range(30), {})
            for batch in range(30):
                np.testing.assert_array_equal(next(frames).data, image(batch))
        assert balanced(engine, made) == sent
        assert [flow.counters().packets for flow in engine.ports[0].flows] == [
            30 * PACKETS
        ] * MODULES


def test_other_queues_keep_their_packets() -> None:
    """A flow of another plan, and one of none, are as they were."""
    config, addresses = sockets(plan(1, memory_region="own"), modules=3)
    config["memory_regions"].append(
        {"name": "own", "kind": "host", "num_bufs": 8, "buf_size": PACKETS * 256}
    )
    own = plan(1, name="own") | {"flow_ids": [2]}
    del own["flows"], own["flow_stride"]
    config["interfaces"][1]["rx"]["reorder_configs"] = [own]
    with Engine.open(config) as engine, udp_senders(addresses) as send:
        plans = engine.reorder["images"], engine.ports[1].reorder["own"]
        assert engine.reorder_plan("module1/own") is plans[1]
        for number in range(3):
            for slot in range(PACKETS):
                send(number, packet(0, slot))
        for each in plans:
            wait_for(lambda each=each: each.counters().complete == 1)
            assert each.counters().packets == PACKETS
        queue = engine.ports[2].rx[0]
        wait_for(lambda: queue.counters().received == PACKETS)
        names = [(state.port, state.plan) for state in engine.snapshot().reorder]
        assert names == [("module1", "own"), ("", "images")]
        assert engine.counters["reorder"]["module1"].dtype.names == ("own",)


@pytest.mark.parametrize(
    ("plans", "path", "message"),
    [
        (
            [plan(flows=["module0/data", "camera/data"])],
            "flows[1]",
            "found 'camera/data', which is not a flow of an interface; accepts 'module0/data', "
            "'module1/data', 'module2/data'",
        ),
        ([plan(flows=["data"])], "flows[0]", "found 'data', which is not a flow of an interface"),
        ([plan(flows=[])], "flows", "found an empty list; accepts flows of any interface"),
        (
            [plan(2), plan(1, name="others")],
            "flows[0]",
            "found 'module0/data', already claimed by reorder_configs[0].flows[0]",
        ),
        (
            [plan(2), plan(1, flows=["module2/data"])],
            "name",
            "found 'images', also the name of reorder_configs[0]",
        ),
        ([plan(2) | {"flow_ids": [1]}], "flow_ids", "is a key of the plans of an interface"),
        ([plan(2, flow_stride=5)], "flow_stride", "found 5 for each of 2 flows, which makes 10"),
        (
            [plan(2, name="module1/own", flows=["module0/data", "module2/data"])],
            "name",
            "found 'module1/own', as plan 'own' of interface 'module1' appears in files",
        ),
    ],
)
def test_what_is_refused(plans: list[Config], path: str, message: str) -> None:
    config, _ = sockets(*plans, modules=3)
    if "own" in message:
        own = plan(1, name="own") | {"flow_ids": [2]}
        del own["flows"], own["flow_stride"]
        config["interfaces"][1]["rx"]["reorder_configs"] = [own]
    with pytest.raises(ConfigError) as raised:
        load_config(config)
    (problem,) = (each for each in raised.value.report.problems if each.path.endswith(f".{path}"))
    assert message in problem.message


def test_a_flow_has_one_plan_wherever_it_is() -> None:
    config, _ = sockets(plan(2), modules=2)
    own = plan(1, name="own") | {"flow_ids": [2]}
    del own["flows"], own["flow_stride"]
    config["interfaces"][1]["rx"]["reorder_configs"] = [own]
    with pytest.raises(ConfigError, match=r"found 'module1/data', already claimed by interfaces"):
        load_config(config)
    config["interfaces"][1]["rx"]["reorder_configs"] = [own | {"flows": ["module0/data"]}]
    with pytest.raises(ConfigError, match="is a key of the plans under reorder_configs at the top"):
        load_config(config)


def test_tcp_and_absent_gpus_are_refused_by_name() -> None:
    config, _ = sockets(modules=2)
    text = json.dumps(config).replace("udp://", "tcp://")
    with pytest.raises(NotSupportedError, match="'images' of packets, which TCP does not have"):
        Engine.open(json.loads(text))


def test_queues_of_its_flows_stay_while_flows_change() -> None:
    interfaces = [module(i, address="loopback") for i in range(2)]
    queues = interfaces[0]["rx"]["queues"]
    queues.append({**queues[0], "name": "other", "id": 1})
    config = configuration(interfaces, [plan(2)], stream_type="raw", loopback="sw")
    with Engine.open(config) as engine:
        flow = interfaces[0]["rx"]["flows"][0]
        flow["match"] = {"udp_dst": 5000}
        engine.change_flows(config)
        flow["action"] = {"type": "queue", "id": 1}
        with pytest.raises(NotSupportedError, match="flow 1 feeds reorder config 'images'"):
            engine.change_flows(config)


def test_a_configuration_is_written_and_read_again() -> None:
    config = load_config(sockets()[0])
    (made,) = config.reorder_configs
    assert made.flows == tuple(f"module{i}/data" for i in range(MODULES))
    assert made.flow_ids == tuple(range(1, MODULES + 1))
    assert load_config(config.to_yaml()) == config
    written = config.to_dict()["daqiri"]["cfg"]["reorder_configs"][0]
    assert "flow_ids" not in written
