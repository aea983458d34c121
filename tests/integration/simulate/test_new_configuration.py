"""`daqiri-ophyd config new`: from a description, or from answers, to frames."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pexpect
import pytest
import yaml
from free_ports import free_port, free_ports
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import Network
from packet_formats import documents
from waiting import wait_for

from daqiri_ophyd.cli import _main
from daqiri_ophyd.cli._ask_format import format_text
from daqiri_ophyd.cli._new_config import write_all
from daqiri_ophyd.cli._simulate_senders import Destination, SocketSender
from daqiri_ophyd.engine import Engine, check_config
from daqiri_ophyd.simulate import (
    DescribedDetector,
    PacketFormat,
    PacketFormatError,
    Traffic,
    configuration_text,
    pixel_bits,
)

CAMERA = """
name: camera
port: 6000
frame: [64, 96]
pixels: uint16
payload_bytes: 384
header:
- {name: mark, bytes: 2, value: 0xCAFE}
- {name: packet, bytes: 2, role: packet_number}
- {name: image, bytes: 8, role: frame_number, first: 1}
"""


def run(*arguments: str | Path) -> int:
    """Run the command; returns its exit code."""
    return _main._run(list(map(str, arguments)))


@pytest.fixture
def camera(tmp_path: Path) -> Path:
    """A description of packets, on a free port."""
    file = tmp_path / "camera-packets.yaml"
    file.write_text(CAMERA.replace("6000", str(free_port("udp"))))
    return file


def test_images_that_the_command_sends_arrive_with_the_configuration_that_it_wrote(
    camera: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("config", "new", tmp_path / "camera", "--format", camera) == 0
    config = tmp_path / "camera.yaml"
    printed = capsys.readouterr().out
    port = PacketFormat.read(camera).ports[0]
    for command in ("config check", f"simulate {camera} 127.0.0.1:{port}", "shell"):
        assert f"daqiri-ophyd {command}" in printed
    assert run("config", "check", config) == 0
    assert capsys.readouterr().out == f"{config}: ok\n"
    options = ["--frames", "4", "--rate", "50", "--loss", "0.1", "--seed", "3", "--json"]
    with Engine.open(config) as engine:
        plan = engine.port("camera").reorder["images"]
        with plan.frames(timeout=60.0) as frames:
            assert run("simulate", camera, f"127.0.0.1:{port}", *options) == 0
            got = [next(frames) for _ in range(4)]
    said = json.loads(capsys.readouterr().out)
    detector = DescribedDetector(PacketFormat.read(camera))
    (chunk,) = Traffic(detector, 4, seed=3)
    assert [frame.batch for frame in got] == [1, 2, 3, 4]
    assert sum(frame.missing for frame in got) == said["lost"] > 0
    for frame, sent in zip(got, chunk.frames, strict=True):
        rows = sent.reshape(len(frame.valid), -1) * frame.valid[:, None]
        np.testing.assert_array_equal(frame.data, rows.reshape(sent.shape))


@pytest.mark.parametrize(
    ("address", "host"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("192.0.2.7", "192.0.2.7")],
)
def test_the_printed_command_sends_to_where_the_configuration_receives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str, host: str
) -> None:
    file = tmp_path / "camera-packets.yaml"
    file.write_text(CAMERA.replace("port: 6000", f"port: 6000\naddress: '{address}'"))
    assert run("config", "new", tmp_path / "camera", "--format", file) == 0
    assert f"simulate {file} {host}:6000 --frames 0" in capsys.readouterr().out


@pytest.mark.parametrize("address", ["eth0.100", "123", "0x1", "#b", "{a", "@x", "~", "it's\""])
def test_any_name_of_a_network_interface_is_a_text(address: str) -> None:
    form = PacketFormat.from_document(changed(engine="packet", address=address))
    report = check_config(configuration_text(form, "any"))
    assert report.ok, report.text()


def test_pixels_that_go_on_in_the_next_packet() -> None:
    form = PacketFormat.from_document(changed(pixels="uint12", frame=[64, 64], payload_bytes=1024))
    assert form.packets == 6
    text = configuration_text(form, "any")
    assert "payload_bytes: 1024\n" in text
    report = check_config(text)
    assert report.ok, report.text()


@pytest.mark.parametrize(
    ("keys", "types"),
    [
        ({"pixels": "uint12"}, "input_type: uint12, output_type: uint16, packing: msb"),
        (
            {"pixels": "int10", "packing": "lsb", "byte_order": "little"},
            "input_type: int10, output_type: int16, packing: lsb",
        ),
        ({"pixels": "uint24"}, "input_type: uint24, output_type: uint32, endianness: network"),
        ({"pixels": "int24", "byte_order": "little"}, "input_type: int24, output_type: int32"),
        ({"pixels": "float32"}, "input_type: fp32, output_type: fp32, endianness: network"),
        ({"pixels": "uint64"}, "input_type: uint64, output_type: uint64, endianness: network"),
    ],
)
def test_pixels_are_converted_as_the_format_says(keys: dict[str, Any], types: str) -> None:
    size = 128 * pixel_bits(keys["pixels"]) // 8
    form = PacketFormat.from_document(changed(**keys, frame=[64, 64], payload_bytes=size))
    text = configuration_text(form, "any")
    assert f"data_types: {{{types}}}" in text
    assert check_config(text).ok


def test_required_values_tell_data_from_leaders() -> None:
    header = [
        {"name": "kind", "bits": 4, "value": 3, "required": True},
        {"name": "packet", "bits": 12, "role": "packet_number"},
        {"name": "mark", "bytes": 2, "byte_order": "little", "value": 0xCAFE, "required": True},
        {"name": "frame", "bytes": 4, "role": "frame_number"},
    ]
    text = configuration_text(PacketFormat.from_document(changed(header=header)), "any")
    assert check_config(text).ok
    (interface,) = yaml.safe_load(text)["daqiri"]["cfg"]["interfaces"]
    (plan,) = interface["rx"]["reorder_configs"]
    assert plan["conditions"] == [
        {"bit_offset": 0, "bit_width": 4, "base": "udp_payload", "equal": 3},
        {
            **{"bit_offset": 16, "bit_width": 16, "byte_order": "little"},
            **{"base": "udp_payload", "equal": 0xCAFE},
        },
    ]


def test_the_last_packet_of_a_module_may_be_shorter() -> None:
    form = PacketFormat.from_document(changed(payload_bytes=500))
    assert (form.packets, form.last_bytes) == (25, 288)
    sizes = DescribedDetector(form).sizes()
    assert sizes.tolist() == [512] * 24 + [300]
    text = configuration_text(form, "any")
    assert "payload_bytes: 500  # the last packet in a frame has 288\n" in text
    assert check_config(text).ok
    assert "payload_bytes" not in configuration_text(PacketFormat.from_document(changed()), "any")


def test_packets_of_ipv6_with_two_tags_fit_into_buffers() -> None:
    form = PacketFormat.from_document(changed(engine="packet", payload_bytes=6144))
    text = configuration_text(form, "any")
    region = yaml.safe_load(text)["daqiri"]["cfg"]["memory_regions"][0]
    # UDP, IPv6, two tags and Ethernet around 12 bytes of header and the pixels
    assert region["buf_size"] >= 8 + 40 + 2 * 4 + 14 + 12 + 6144


def test_images_of_modules_with_a_port_each(tmp_path: Path) -> None:
    file = tmp_path / "two-packets.yaml"
    port = free_ports("udp", 2)
    text = CAMERA.replace("6000", f"{port}-{port + 1}").replace("[64, 96]", "[66, 98]")
    text += "- {name: mark2, bytes: 1, value: 7, required: true}\n"
    text += "- {name: pulse_id, bytes: 8, value: 9, column: sum}\n"
    text += "- {name: options, bytes: 1, role: payload_offset, unit: 4}\n"
    layout = {
        **{"shape": [32, 96], "chip": [32, 32], "chip_gap": [2, 1]},
        "positions": [{"origin": [0, 0]}, {"origin": [34, 0], "flip": "rows"}],
    }
    text += f"modules: 2\nlayout: {json.dumps(layout)}\nleaders: 1\ntrailers: 2\n"
    file.write_text(text)
    assert run("config", "new", tmp_path / "two", "--format", file) == 0
    with Engine.open(tmp_path / "two.yaml") as engine:
        plan = engine.reorder["images"]
        with plan.frames(timeout=60.0) as frames:
            to = f"127.0.0.1:{port}-{port + 1}"
            assert run("simulate", file, to, "--frames", "2", "--rate", "20", "--seed", "4") == 0
            got = [next(frames) for _ in range(2)]
        wait_for(lambda: plan.counters().left_out == 2 * 2 * 3)
    (chunk,) = Traffic(DescribedDetector(PacketFormat.read(file)), 2, seed=4)
    for frame, sent in zip(got, chunk.frames, strict=True):
        np.testing.assert_array_equal(frame.data, sent)
        assert frame.columns == {"pulse_id": 9 * 32}
        # Gaps between chips and modules.
        assert not frame.data[:, 32].any() and not frame.data[32:34].any()
        assert frame.data[0, 33] != 0 and frame.data[65, 97] != 0
    # By hand: the first packet of the second module has its first two rows, the last of the image.
    packets = DescribedDetector(PacketFormat.read(file)).packets(chunk.frames[:1], 0)
    leader, first, second = packets[0], packets[3], packets[5]
    assert leader[12] == 0 and first[12] == 7
    assert (first[21], second[21]) == (1, 0)
    row = np.delete(chunk.frames[0, 65], [32, 65])
    assert first[22 + 4 :][:192].tobytes() == row.astype(">u2").tobytes()


@pytest.mark.root
def test_modules_by_a_field_arrive_on_a_network_interface(networks: Any, tmp_path: Path) -> None:
    file = tmp_path / "stack-packets.yaml"
    file.write_text(
        CAMERA.replace("port:", "engine: packet\nmodules: 4\nport:")
        + "- {name: module, bytes: 4, role: module}\n"
    )
    assert run("config", "new", tmp_path / "stack", "--format", file) == 0
    network: Network = networks()
    detector = DescribedDetector(PacketFormat.read(file))
    (chunk,) = Traffic(detector, 3)
    with network.call(Engine.open, tmp_path / "stack.yaml") as engine:
        plan = engine.port("camera").reorder["images"]
        to = Destination("127.0.0.1:6000", detector)
        sender = network.call(SocketSender, to, detector, 0.0)
        with plan.frames(timeout=60.0) as frames:
            sender.send(chunk)
            got = [next(frames) for _ in range(3)]
            for frame, sent in zip(got, chunk.frames, strict=True):
                np.testing.assert_array_equal(frame.data, sent)
        sender.close()
        del got, frame
    assert (plan.counters().complete, plan.counters().malformed) == (3, 0)


def test_files_are_never_overwritten_unless_asked_for(
    camera: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "camera.yaml"
    config.write_text("mine")
    assert run("config", "new", config, "--format", camera) == 2
    assert f"{config} exists; give another name, or --force" in capsys.readouterr().err
    assert config.read_text() == "mine"
    described = camera.read_text()
    assert run("config", "new", config, "--format", camera, "--force") == 0
    assert yaml.safe_load(config.read_text())["daqiri"]["cfg"]["interfaces"][0]["name"] == "camera"
    assert camera.read_text() == described
    assert run("config", "new", tmp_path / "camera-packets", "--format", camera, "--force") == 2
    assert "is the description of the packets" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [camera, config]


@pytest.mark.parametrize("force", [False, True])
def test_all_files_are_written_or_none(tmp_path: Path, force: bool) -> None:
    with pytest.raises(FileNotFoundError):
        write_all({tmp_path / "a.yaml": "a", tmp_path / "absent" / "b.yaml": "b"}, force)
    assert list(tmp_path.iterdir()) == []


def test_a_description_with_mistakes_writes_nothing(
    camera: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    camera.write_text(CAMERA.replace("uint16", "uint18").replace("bytes: 2, value", "value"))
    for command in (("config", "new", tmp_path / "a", "--format"), ("simulate",)):
        more = ["h:1"] if command == ("simulate",) else []
        assert run(*command, camera, *more) == 2
        text = capsys.readouterr().err
        assert f"{camera}: pixels: found 'uint18'; no plan unpacks pixels of 18 bits" in text
        assert f"{camera}: header[0]: accepts one of bytes and bits" in text
    assert run("config", "new", tmp_path / "a", "--format", tmp_path / "absent.yaml") == 1
    assert list(tmp_path.iterdir()) == [camera]


SINGLE = "name: a\nport: 6000\nframe: [4, 4]\npixels: uint8\npayload_bytes: 16\nheader:\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CAMERA + "pixels: uint8\n", "is not YAML: pixels: given 2 times; accepts a key once"),
        ("[" * 5000, "is nested too deeply"),
        (CAMERA.replace("[64, 96]", "9" * 5000), "is not YAML"),
        (CAMERA.replace("[64, 96]", "0x" + "F" * 5000), "frame: found an integer of thousands"),
        (CAMERA.replace("camera", "2026-13-45"), "is not YAML: month"),
        ("#" * 2**20 + "\n", "is larger than 1048576 bytes"),
        ("name: [a\n", "is not YAML: while parsing a flow sequence"),
        (CAMERA + "nme: camera\n", "nme: unknown key; accepts address, "),
        # A plan has first numbers of 32 bits.
        (
            SINGLE + "- {name: number, bytes: 8, role: sequence_number, first: 4294967296}\n",
            r"header\[0\].first: found 4294967296; accepts an integer, 0 to 4294967295",
        ),
        (
            SINGLE + "- {name: number, bytes: 8, role: frame_number, first: 4294967296, step: 2}\n",
            "header: field 'number' has first: 4294967296 and step: 2, alone; accepts a first "
            "number up to 4294967295 there",
        ),
    ],
)
def test_what_is_no_description_is_named_with_its_file(
    camera: Path, text: str, message: str
) -> None:
    camera.write_text(text)
    with pytest.raises(PacketFormatError, match=f"^{camera}: {message}"):
        PacketFormat.read(camera)


@pytest.mark.parametrize("key", ["name", "port", "address", "engine", "frame", "pixels", "header"])
def test_aliases_of_aliases_do_not_make_an_endless_message(key: str) -> None:
    endless: list[Any] = ["x"] * 9
    for _ in range(8):
        endless = [endless] * 9
    with pytest.raises(PacketFormatError) as raised:
        PacketFormat.from_document({**changed(), key: endless})
    assert len(str(raised.value)) < 10_000


def test_names_that_are_no_file_are_refused_and_a_pipe_is_read(
    camera: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("", ".", "sub/", ".."):
        assert run("config", "new", name, "--format", camera) == 2
        assert f"found {name!r}; accepts the name of a file" in capsys.readouterr().err
    (tmp_path / "folder.yaml").mkdir()
    assert run("config", "new", tmp_path / "folder", "--force", "--format", camera) == 2
    assert "folder.yaml is a directory; give another name" in capsys.readouterr().err
    # A pipe can be read once.
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        file.write(camera.read_text())
    assert run("config", "new", tmp_path / "piped", "--format", f"/dev/fd/{reading}") == 0
    os.close(reading)
    (tmp_path / "piped.yaml").unlink()
    capsys.readouterr()
    assert run("config", "new", tmp_path / "a", "--format", tmp_path / "absent.yaml") == 1
    said = capsys.readouterr().err
    assert said == f"error: {tmp_path / 'absent.yaml'}: No such file or directory\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == [camera.name, "folder.yaml"]


def test_without_a_terminal_there_are_no_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("config", "new", tmp_path / "a") == 2
    assert "standard input is no terminal" in capsys.readouterr().err
    assert run("config", "new", tmp_path / "absent" / "a") == 2
    assert f"{tmp_path}/absent is no directory that can be written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def session(folder: Path, answers: list[str], stdout: str = "") -> tuple[str, int]:
    """Answer questions on a terminal; returns what was shown, and the exit code."""
    terminal = pexpect.spawn(
        "sh",
        ["-c", f"{sys.executable} -m daqiri_ophyd config new lynx-4 {stdout}"],
        cwd=str(folder),
        encoding="utf-8",
        timeout=30,
        dimensions=(50, 400),
    )
    shown = ""
    for answer in answers:
        terminal.expect_exact("]: ")
        shown += terminal.before
        terminal.sendline(answer)
    terminal.expect(pexpect.EOF)
    terminal.close()
    return shown + terminal.before, terminal.exitstatus


def test_enter_accepts_every_question(tmp_path: Path) -> None:
    shown, code = session(tmp_path, [""] * 11)
    assert code == 0, shown
    assert "daqiri-ophyd config check lynx-4.yaml" in shown
    form = PacketFormat.read(tmp_path / "lynx-4-packets.yaml")
    assert (form.name, form.shape, form.pixels) == ("lynx_4", (256, 256), "uint16")
    assert (form.payload_bytes, form.packets, form.numbered_by) == (8192, 16, "packet")
    assert run("config", "check", tmp_path / "lynx-4.yaml") == 0


def test_questions_are_no_result(tmp_path: Path) -> None:
    shown, code = session(tmp_path, [""] * 11, "> out")
    assert code == 0, shown
    assert "engine: socket, packet [socket" in shown
    assert "]: " not in (tmp_path / "out").read_text()


def test_wrong_answers_are_asked_again(tmp_path: Path) -> None:
    answers = [
        *("rdma", "socket", "here", "", "0", "4", "70000", "6000"),
        *("50101-50103", ""),
        *("768 by 250", "768 x 250", "uint18", "uint16", "middle", "little", "1023", "1000"),
        *("1024", "mark 2 =BEEF", "mark 2 =0xBEEF", "frame 8 frame_number first=one"),
        *("frame 8 frame_number first=1", "number 8 frame_number"),
        *("pulse 8 column=mean", "pulse 8 step=2", "flags 3bits", "end"),
        # Bits are no whole bytes, and a packet number is missing: again.
        *("mark 2 =0xBEEF", "frame 8 frame_number first=1 step=any"),
        *("packet 4 packet_number big step=2", "begin 1 payload_offset unit=4"),
        *("pulse 8 column=first", ""),
    ]
    shown, code = session(tmp_path, answers)
    assert code == 0, shown
    for text in (
        "engine: found 'rdma'; accepts socket, packet",
        "address: found 'here'; accepts an IP address of this host",
        "modules: found 0; accepts an integer, 1 to 4096",
        "port: found 70000; accepts a UDP port",
        "source_ports: found 3 ports for modules: 4",
        "frame: found '768 by 250'; accepts a list of integers",
        "pixels: found 'uint18'; no plan unpacks pixels of 18 bits",
        "byte_order: found 'middle'; accepts big, little",
        "payload_bytes: found 1023, which splits a pixel of 2 bytes",
        "found '1024'; accepts NAME BYTES",
        "found '=BEEF'; accepts = and a number, such as 7 or 0x1F",
        "found 'first=one'; accepts first= and a number, such as 7 or 0x1F",
        "header[2].role: found 'frame_number'; accepts a role once",
        "header[2].column: found 'mean'; accepts first, sum, packets",
        "header[2].step: needs one of the roles frame_number, packet_number",
        "header: its fields have 83 bits; accepts whole bytes",
    ):
        assert text in shown
    description = yaml.safe_load((tmp_path / "lynx-4-packets.yaml").read_text())
    assert description == {
        **{"name": "lynx_4", "engine": "socket", "address": "127.0.0.1", "modules": 4},
        **{"port": 6000, "frame": [768, 250], "pixels": "uint16", "byte_order": "little"},
        **{"source_ports": "50101-50104", "payload_bytes": 1000},
        "header": [
            {"name": "mark", "bytes": 2, "value": 0xBEEF},
            {"name": "frame", "bytes": 8, "role": "frame_number", "first": 1, "step": "any"},
            {
                **{"name": "packet", "bytes": 4, "role": "packet_number"},
                **{"byte_order": "big", "step": 2},
            },
            {"name": "begin", "bytes": 1, "role": "payload_offset", "unit": 4},
            {"name": "pulse", "bytes": 8, "column": "first"},
        ],
    }
    assert run("config", "check", tmp_path / "lynx-4.yaml") == 0


def test_a_module_number_in_the_header_is_an_answer(tmp_path: Path) -> None:
    answers = ["", "", "4", "", "none", "", "", "", "", "module 4 module", "frame 8 frame_number"]
    shown, code = session(tmp_path, [*answers, "packet 4 packet_number", "end"])
    assert code == 0, shown
    assert "source_ports" not in (tmp_path / "lynx-4-packets.yaml").read_text()
    assert run("config", "check", tmp_path / "lynx-4.yaml") == 0


def test_ports_of_modules_are_an_answer(tmp_path: Path) -> None:
    shown, code = session(tmp_path, ["", "", "4", "6000-6003", *[""] * 7])
    assert code == 0, shown
    config = yaml.safe_load((tmp_path / "lynx-4.yaml").read_text())["daqiri"]["cfg"]
    (plan,) = config["reorder_configs"]
    assert plan["flows"] == [f"lynx_4_{number}/module{number}" for number in range(4)]
    assert run("config", "check", tmp_path / "lynx-4.yaml") == 0


def test_nothing_is_written_when_the_answers_end(tmp_path: Path) -> None:
    shown, code = session(tmp_path, ["", "\x04"])
    assert code == 1, shown
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=30, suppress_health_check=[HealthCheck.filter_too_much])
@given(document=documents("packet"))
def test_a_description_is_written_as_it_is_read(document: dict[str, Any]) -> None:
    assert yaml.safe_load(format_text(document)) == document


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("1-2")
LISTS = st.lists(LEAF, max_size=3)
ANY = LEAF | LISTS | st.dictionaries(st.text(), LEAF | LISTS, max_size=3)


@settings(max_examples=200)
@given(data=st.data())
def test_any_value_of_a_key_is_accepted_or_named(data: st.DataObject) -> None:
    document = changed()
    keys = ("name", "engine", "address", "port", "source_ports", "modules", "frame", "pixels")
    more = ("byte_order", "payload_bytes", "header", "field", "layout", "leaders", "part")
    key = data.draw(st.sampled_from([*keys, *more]))
    value = data.draw(ANY)
    if key == "field":
        keys = ("name", "bytes", "bits", "role", "value", "required", "first", "byte_order")
        keys += ("step", "unit", "column")
        document["header"][1][data.draw(st.sampled_from(keys))] = value
    elif key == "part":
        document["frame"] = [66, 96]
        keys = ("shape", "tile", "chip", "chip_gap", "positions")
        document["layout"] = {**HALVES, data.draw(st.sampled_from(keys)): value}
    else:
        document[key] = value
    try:
        form = PacketFormat.from_document(document)
    except PacketFormatError as error:
        assert error.problems
    else:
        assert check_config(configuration_text(form, "any")).ok


def changed(**changes: Any) -> dict[str, Any]:
    return {**yaml.safe_load(CAMERA), **changes}


FRAME, PACKET = {"name": "f", "role": "frame_number"}, {"name": "p", "role": "packet_number"}
SEQUENCE, OFFSET = {"name": "s", "role": "sequence_number"}, {"name": "o", "role": "byte_offset"}
MODULE, BEGIN = {"name": "m", "role": "module"}, {"name": "b", "role": "payload_offset"}
HEADER = yaml.safe_load(CAMERA)["header"]
HALVES = {
    "shape": [32, 96],
    "positions": [{"origin": [0, 0]}, {"origin": [34, 0], "flip": "rows"}],
}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, "the description: found None; accepts a map with address, byte_order"),
        ({}, "pixels: required, but not given"),
        (changed(name="1st"), "name: found '1st'; accepts a letter"),
        (changed(name="on"), "name: found 'on'; accepts a letter"),
        (changed(trailer_bytes=4), "trailer_bytes: no plan skips bytes at the end of packets"),
        (changed(transport="udp"), "transport: packets are UDP datagrams"),
        (changed(colour=1), "colour: unknown key; accepts address"),
        (changed(frame=[0, 2]), "frame: found [0, 2]; accepts a list of integers from 1"),
        (changed(port="6000-5000"), "port: found '6000-5000'; accepts a UDP port"),
        (changed(engine="packet", address="a b"), "address: found 'a b'; accepts the name of"),
        (changed(pixels="rgb"), "pixels: found 'rgb'; accepts int4, int8"),
        (changed(pixels="uint18"), "found 'uint18'; no plan unpacks pixels of 18 bits. Use uint8"),
        (
            changed(packing="lsb"),
            "packing: found 'lsb' with pixels: uint16; accepts it with pixels",
        ),
        (changed(pixels="uint12", packing="big"), "packing: found 'big'; accepts msb, lsb"),
        (
            changed(pixels="uint12", payload_bytes=2),
            "payload_bytes: found 2, which splits 2 pixels of 3 bytes; accepts 3 and more",
        ),
        (
            changed(
                pixels="uint12",
                payload_bytes=64,
                header=[{**FRAME, "bytes": 4}, {**OFFSET, "bytes": 4}],
            ),
            "payload_bytes: found 64, which splits 2 pixels of 3 bytes; accepts a multiple of 3",
        ),
        (changed(payload_bytes=383), "payload_bytes: found 383, which splits a pixel of 2 bytes"),
        (changed(modules=7), "frame: found 12288 bytes for 7 modules; accepts a frame of which"),
        (
            changed(payload_bytes=12290),
            "payload_bytes: found 12290, but a module sends 12288 bytes of a frame; accepts up to",
        ),
        (
            changed(pixels="uint12", frame=[4, 4], payload_bytes=3, modules=3),
            "frame: found 8 bytes of uint12 for a module; accepts a multiple of 3",
        ),
        (changed(pixels="int4", frame=[3]), "frame: found 12 bits of int4; accepts whole bytes"),
        (
            changed(pixels="int4", frame=[65536, 65536]),
            "accepts whole bytes, up to 4 GiB in memory",
        ),
        (changed(payload_bytes=65500, frame=[32750]), "found a packet of 65512 bytes; accepts up"),
        (changed(header=[]), "header: found []; accepts a list of fields"),
        (changed(header=[{**FRAME, "bytes": 4, "required": True}]), "required: needs a value"),
        (
            changed(header=[{"name": "a", "bits": 4, "value": 1, "required": 1}]),
            "header[0].required: found 1; accepts true, false",
        ),
        (
            changed(header=[{"name": "a", "bytes": 9, "value": 1, "required": True}]),
            "field 'a' is required, and has 72 bits in more than eight bytes",
        ),
        (changed(header=[{"name": "a", "bytes": 1}]), "header: no field has a role"),
        (changed(header=[{**FRAME, "bits": 12}]), "accepts whole bytes: add a field of 4 bits"),
        (changed(header=[{**FRAME, "bytes": 4}]), "found frame_number alone, with 32 packets"),
        (changed(header=[{**PACKET, "bytes": 4}]), "found packet_number without frame_number"),
        (
            changed(
                header=[{**FRAME, "bytes": 4}, {**PACKET, "bits": 4}, {"name": "r", "bits": 4}]
            ),
            "field 'p' has 4 bits, too few for packet number 31",
        ),
        (
            changed(header=[{**FRAME, "bytes": 4}, {**OFFSET, "bytes": 1}]),
            "field 'o' has 8 bits, too few for a frame of 12288 bytes",
        ),
        (
            changed(header=[{**PACKET, "bytes": 4}, {**OFFSET, "bytes": 4}]),
            "found roles packet_number and byte_offset; accepts one of them",
        ),
        (
            changed(frame=[60, 96], header=[{**SEQUENCE, "bytes": 2}]),
            "has 16 bits, and a module sends 30 packets per frame; accepts a power of two",
        ),
        (
            changed(frame=[60, 96], header=[{**SEQUENCE, "bytes": 4}, {**FRAME, "bytes": 4}]),
            "With 32 bits, leave out the role frame_number",
        ),
        (
            changed(header=[{**FRAME, "bytes": 4, "step": 0}, {**PACKET, "bytes": 4}]),
            "header[0].step: found 0; accepts an integer, 1 to 4294967295",
        ),
        (
            changed(header=[{**FRAME, "bytes": 4}, {**PACKET, "bytes": 4, "step": "any"}]),
            "header[1].step: found 'any'; accepts an integer",
        ),
        (
            changed(header=[{**FRAME, "bytes": 4}, {**PACKET, "bytes": 1, "step": 10}]),
            "field 'p' has 8 bits, too few for packet number 310",
        ),
        (
            changed(frame=[4, 48], header=[{**FRAME, "bytes": 4, "step": "any"}]),
            "field 'f' has step: any, alone; accepts it with packet_number",
        ),
        (
            changed(header=[{**SEQUENCE, "bytes": 4, "step": 3}]),
            "header: method.seq_packets_per_batch.sequence_number.step: found 3 for numbers of 32",
        ),
        (
            changed(header=[{"name": "a", "bytes": 4, "step": 2}]),
            "header[0].step: needs one of the roles frame_number, packet_number, sequence_number",
        ),
        (
            changed(header=[{**PACKET, "bytes": 4, "unit": 2}]),
            "header[0].unit: needs one of the roles byte_offset, payload_offset",
        ),
        (
            changed(header=[{**FRAME, "bytes": 4}, {**OFFSET, "bytes": 4, "unit": 5}]),
            "field 'o' has unit: 5; accepts one that divides payload_bytes, 384",
        ),
        (
            changed(header=[*HEADER, {**BEGIN, "bytes": 1, "unit": 8, "first": 2}]),
            "has first: 2 and unit: 8, and pixels that begin right after the header would begin",
        ),
        (
            changed(header=[*HEADER, {**BEGIN, "bytes": 1, "unit": 2**31}]),
            "has unit: 2147483648, which makes a packet of 2147484045 bytes; accepts up to 65507",
        ),
        (
            changed(header=[*HEADER, {"name": "a", "bytes": 9, "column": "first"}]),
            "header[3].column: its 72 bits are in more than eight bytes",
        ),
        (
            changed(header=[*HEADER, {"name": "a", "bytes": 4, "column": "mean"}]),
            "header[3].column: found 'mean'; accepts first, sum, packets",
        ),
        (
            changed(
                header=[
                    {"name": "frame", "bytes": 4, "role": "frame_number"},
                    {"name": "offset", "bytes": 4, "role": "byte_offset"},
                    {"name": "a", "bytes": 4, "column": "packets"},
                ]
            ),
            "header: columns.a.from: found 'packets' with batch_byte_offset, where packets have no",
        ),
        (
            changed(header=[*HEADER, {"name": "batch", "bytes": 4, "column": "sum"}]),
            "header: columns: found 'batch' as a name, which frames have already",
        ),
        (changed(leaders=1), "leaders: found 1, and no field of the header is required"),
        (changed(trailers=17), "trailers: found 17; accepts an integer, 0 to 16"),
        (changed(layout=[]), "layout: found []; accepts a map with chip, chip_gap, positions"),
        (
            changed(frame=[6144], layout=HALVES),
            "frame: found [6144]; accepts two numbers with a layout: rows and columns",
        ),
        (
            changed(layout={"shape": [64], "positions": [{"origin": [0, 0]}]}),
            "layout.shape: found [64]; accepts [ROWS, COLUMNS], from 1",
        ),
        (changed(layout={"shape": [64, 96]}), "layout.positions: found None; accepts a list"),
        (
            changed(frame=[66, 96], layout=HALVES | {"chip": [32, 32]}),
            "layout.chip: found without chip_gap; accepts both",
        ),
        (
            changed(frame=[64, 96], layout=HALVES),
            "layout.positions[1].origin: found [34, 0] for a module of 32 x 96 pixels, beyond the",
        ),
        (
            changed(layout={"shape": [64, 96], "positions": [{"origin": [0, 0], "rotate": 45}]}),
            "layout.positions[0].rotate: found 45; accepts 0, 90, 180, 270",
        ),
        (
            changed(header=[{"name": "b", "bits": 4, "byte_order": "little"}]),
            "header[0].byte_order: found 'little'; accepts big for fields that are not of whole",
        ),
        (changed(header=[{**FRAME, "bytes": 9}]), "numbers of up to 8 bytes in a field with a"),
        (changed(header=[{**FRAME, "bytes": 4, "value": 1}]), "value: accepts role or value"),
        (changed(header=[{"name": "a", "bytes": 1, "first": 1}]), "header[0].first: needs a role"),
        (changed(header=[{"name": True, "bytes": 1}]), "put words such as yes and on in quotes"),
        (changed(modules=2), "modules: found 2, which nothing in packets distinguishes; accepts"),
        (changed(port="6000-6001"), "port: found 2 ports for modules: 1; accepts one port"),
        (changed(source_ports=7000), "source_ports: found with one module; leave it out"),
        (
            changed(header=[*HEADER, {**MODULE, "bytes": 1}]),
            "modules: found 1, and a field with role: module; accepts 2 to 4096, the number of",
        ),
        (
            changed(modules=2, source_ports=7000),
            "source_ports: found 1 ports for modules: 2; accepts one for each",
        ),
        (
            changed(
                modules=2,
                source_ports="70-71",
                header=[{**FRAME, "bytes": 4}, {**OFFSET, "bytes": 4}],
            ),
            "modules: found 2 with a byte_offset, for which a plan has no modules",
        ),
        (
            changed(
                modules=2,
                engine="packet",
                header=[*HEADER, {**MODULE, "bytes": 8}],
            ),
            "is in bits 96 to 159; accepts one 32-bit word of the first 64 bytes",
        ),
        (
            changed(
                modules=4,
                engine="packet",
                header=[
                    *HEADER,
                    {**MODULE, "bits": 1},
                    {"name": "r", "bits": 7},
                ],
            ),
            "field 'm' has too few bits for 4 modules",
        ),
    ],
)
def test_what_a_plan_cannot_do_is_refused_with_what_can_be_done_instead(
    document: Any, text: str
) -> None:
    with pytest.raises(PacketFormatError) as raised:
        PacketFormat.from_document(document, "packets.yaml")
    assert text in str(raised.value)
    assert all(line.startswith("packets.yaml: ") for line in str(raised.value).splitlines())
