"""Every C++ block of a guide compiles as C++17 and runs, or names the part that this build lacks.

The project's own guides, and others with `--guides PATH`. The blocks are found in the text. Those
of a document are functions of one program, which runs each by itself around bursts of its own; a
block with a `main` is a program.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from free_ports import free_port
from guide_blocks import Block, blocks

ROOT = Path(__file__).parents[2]
HARNESS = Path(__file__).parent / "cpp_api"

# Reasons that name a part which this build or this host lacks.
MISSING = re.compile(
    r"this build has no [^;:]*"
    r"|which (?:this build|engine '\w+') does not have"
    r"|no credentials for S3"
)
# Bursts for a block: received, to send, without buffers yet; segments.
KINDS = ["r1", "r2", "t1", "t2", "h1"]

CONFIG = """
version: 1
master_core: 0
stream_type: raw
loopback: sw
memory_regions:
- {name: rx, kind: host, num_bufs: 256, buf_size: 2048}
- {name: tx, kind: host, num_bufs: 256, buf_size: 2048}
- {name: rx_data, kind: host, num_bufs: 256, buf_size: 2048}
- {name: tx_data, kind: host, num_bufs: 256, buf_size: 2048}
interfaces:
- name: rx_port
  address: loopback
  rx:
    queues:
    - {name: rx, id: 0, cpu_core: any, batch_size: 8, memory_regions: [rx], timeout_us: 1000}
    flows:
    - {name: all, id: 7, action: {type: queue, id: 0}}
  tx:
    queues:
    - {name: tx, id: 0, cpu_core: any, batch_size: 8, memory_regions: [tx]}
"""


UDP = """
version: 1
master_core: 0
stream_type: socket
memory_regions:
- {name: rx, kind: host, num_bufs: 256, buf_size: 2048}
interfaces:
- name: receiver
  address: 127.0.0.1
  socket_config: {mode: server, local_addr: "udp://127.0.0.1:PORT"}
  rx:
    queues:
    - {name: rx, id: 0, cpu_core: any, batch_size: 8, memory_regions: [rx]}
"""


def config(segments: int) -> str:
    if segments == 1:
        return "\n".join(line for line in CONFIG.splitlines() if "_data" not in line)
    split = CONFIG.replace("[rx]", "[rx, rx_data], split_boundary: 42")
    return split.replace("[tx]", "[tx, tx_data]")


def documents(config: pytest.Config) -> list[Path]:
    given = [Path(path).absolute() for path in config.getoption("--guides")]
    for path in given:
        if not path.exists():
            raise pytest.UsageError(f"--guides {path}: there is no such file or folder")
    found = []
    for path in [ROOT / "README.md", ROOT / "docs", *given]:
        inside = [*path.rglob("*.md"), *path.rglob("*.txt")] if path.is_dir() else [path]
        found += sorted(file for file in inside if file.is_file())
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "block" in metafunc.fixturenames:
        found = [block for path in documents(metafunc.config) for block in blocks(path)]
        metafunc.parametrize("block", found, ids=str)


@dataclass(frozen=True)
class Program:
    """A program that has some blocks, and what the compiler said of each."""

    path: Path
    messages: dict[Block, str]


@dataclass(frozen=True)
class Compiler:
    """Compiles against the installed library."""

    prefix: Path
    folder: Path

    def command(self, source: Path, program: Path) -> list[str]:
        (library,) = self.prefix.rglob("libdaqiri.so")
        flags = ["-std=c++17", "-O0", "-w", "-pthread", "-fmax-errors=0", f"-I{HARNESS}"]
        link = [f"-I{self.prefix}/include", f"-L{library.parent}", "-ldaqiri"]
        here = f'-DHERE="{self.folder}"'
        return ["g++", *flags, here, str(source), "-o", str(program), *link]

    def environment(self) -> dict[str, str]:
        (library,) = self.prefix.rglob("libdaqiri.so")
        return os.environ | {"LD_LIBRARY_PATH": str(library.parent)}

    def compile(self, name: str, source: str, parts: list[Block]) -> Program:
        file = self.folder / f"{name}.cpp"
        file.write_text(source)
        command = self.command(file, self.folder / name)
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        if done.returncode == 0:
            return Program(self.folder / name, dict.fromkeys(parts, ""))
        said = {
            block: "\n".join(line for line in done.stderr.splitlines() if lies_in(line, block))
            for block in parts
        }
        if not any(said.values()):
            said = dict.fromkeys(parts, done.stderr)
        return Program(self.folder / name, said)


def lies_in(message: str, block: Block) -> bool:
    found = re.match(rf"{re.escape(block.document.name)}:(\d+):", message)
    return bool(found) and 0 <= int(found[1]) - block.line < block.code.count("\n")


def source_of(parts: list[Block]) -> str:
    lines = ['#include "guide_harness.h"', *(line for block in parts for line in block.includes())]
    for block in parts:
        lines.append(f"static void block_{block.line}() {{")
        lines.append(f'#line {block.line} "{block.document.name}"')
        lines.append(block.body() + "\n}")
    lines.append("int main(int argc, char** argv) { return harness_main({")
    for block in parts:
        starts = str(block.starts_the_engine).lower()
        lines.append(f'{{"{block.line}", block_{block.line}, {starts}}},')
    lines.append("}, argc, argv); }")
    return "\n".join(lines) + "\n"


def compile_group(compiler: Compiler, parts: list[Block]) -> dict[Block, Program]:
    """Compile blocks as one program; those that do not compile are left out of it."""
    name = f"{parts[0].document.stem}_{parts[0].line}"
    if parts[0].is_program:
        mark = f'#line {parts[0].line} "{parts[0].document.name}"\n'
        return {parts[0]: compiler.compile(name, mark + parts[0].code, parts)}
    program = compiler.compile(name, source_of(parts), parts)
    good = [block for block, message in program.messages.items() if not message]
    found = dict.fromkeys(parts, program)
    if good and len(good) < len(parts):
        found |= dict.fromkeys(good, compiler.compile(name, source_of(good), good))
    return found


@pytest.fixture(scope="module")
def compiler(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(prefix, tmp_path_factory.mktemp("guide"))


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest, compiler: Compiler) -> dict[Block, Program]:
    """Return the programs of all blocks of this run, compiled two at a time."""
    groups: dict[object, list[Block]] = {}
    for item in request.session.items:
        block = item.callspec.params.get("block") if hasattr(item, "callspec") else None
        if isinstance(block, Block) and not block.needs_nvcc:
            groups.setdefault(block if block.is_program else block.document, []).append(block)
    with ThreadPoolExecutor(2) as pool:
        compiled = pool.map(lambda parts: compile_group(compiler, parts), groups.values())
        return {block: program for group in compiled for block, program in group.items()}


def run(compiler: Compiler, folder: Path, *command: str | Path) -> str:
    """Run a program that must end by itself, without a crash."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=compiler.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout}"
    return done.stdout


def refusal(compiler: Compiler, program: Path, block: Block, kind: str, folder: Path) -> str:
    """Run a block; return the reason of the last rejected call, or ''."""
    (folder / "path" / "to").mkdir(parents=True)
    for file in ("path/to/config.yaml", "recorder.yaml"):
        (folder / file).write_text(config(int(kind[1])))
    for path in block.folders():
        (compiler.folder / path).mkdir(parents=True, exist_ok=True)
    last = run(compiler, folder, program, str(block.line), kind).splitlines()[-1]
    how, _, why = last.partition(": ")
    assert how == "ends" or why, f"{block} goes on for ever"
    return why


def missing_part(compiler: Compiler, program: Path, block: Block, folder: Path) -> str:
    """Run a block with a suitable burst; return the part that it lacks here, or ''."""
    whys = []
    for kind in KINDS:
        why = refusal(compiler, program, block, kind, folder / kind)
        if not why or MISSING.search(why):
            return why
        whys.append(why)
    pytest.fail(f"{block} is refused: {whys}")


def compile_kernel(compiler: Compiler, block: Block) -> None:
    source = compiler.folder / f"{block.document.stem}_{block.line}.cu"
    include = "\n".join(['#include "guide_harness.h"', *block.includes()])
    source.write_text(f"{include}\n{block.kernels()}\nvoid run() {{\n{block.body()}\n}}\n")
    search = [f"-I{HARNESS}", f"-I{compiler.prefix}/include"]
    done = subprocess.run(
        ["nvcc", "-std=c++17", "-w", *search, "-c", source, "-o", source.with_suffix(".o")],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr


def test_a_block_compiles_and_runs(
    block: Block, programs: dict[Block, Program], compiler: Compiler, tmp_path: Path
) -> None:
    if block.needs_nvcc:
        if not shutil.which("nvcc"):
            pytest.skip("a CUDA kernel: needs nvcc")
        compile_kernel(compiler, block)
        pytest.skip("compiles with nvcc; this build has no CUDA to run it with")
    program = programs[block]
    assert not program.messages[block], program.messages[block]
    if block.is_program:
        if re.search(r"main\(\s*\)", block.code):
            run(compiler, tmp_path, program.path)
            return
        pytest.skip("compiles; a program that takes arguments")
    if missing := missing_part(compiler, program.path, block, tmp_path):
        pytest.skip(f"compiles; {missing}")


def test_the_program_that_receives_records_what_arrives(compiler: Compiler, tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "use-the-cpp-library.md"
    (block,) = [block for block in blocks(page) if "int argc" in block.code]
    program = compile_group(compiler, [block])[block]
    assert not program.messages[block], program.messages[block]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        port = free_port("udp")
        (tmp_path / "udp.yaml").write_text(UDP.replace("PORT", str(port)))
        receiving = subprocess.Popen(
            [program.path, "udp.yaml", "receiver", "10", tmp_path],
            cwd=tmp_path,
            env=compiler.environment(),
        )
        try:
            # Until it exists and has ten.
            end = time.monotonic() + 60
            while receiving.poll() is None and time.monotonic() < end:
                with contextlib.suppress(ConnectionRefusedError):
                    peer.sendto(b"datagram", ("127.0.0.1", port))
                time.sleep(0.001)
            assert receiving.poll() == 0
        finally:
            receiving.kill()
            receiving.wait()
    capture = tmp_path / "capture.pcap"
    record = 16 + 20 + 8 + len(b"datagram")
    packets, rest = divmod(capture.stat().st_size - 24, record)
    assert packets >= 10
    assert rest == 0


PAGE = """# A guide

Code that compiles:

```cpp
#include <vector>
daqiri::FlowRuleConfig rule = /* yours */;
```

## Mistakes

```cpp
int one = daqiri::get_port_id("rx_port");
int two = daqiri::get_nothing();
```

And this:

```cpp
daqiri::free_packet(burst, 999);
```

And this:

```cpp
// This
daqiri::free_packet(burst, idx);

// That
daqiri::free_rx_burst(burst);
```

And this:

```cpp
std::uint16_t port = 0;
while (daqiri::rdma_get_port_queue(1, &port, &port) != daqiri::Status::SUCCESS) {
}
```

And this:

```cpp
daqiri::send_tx_burst(burst);
```

And this:

```cpp
if (daqiri::is_tx_burst_available(burst)) {
daqiri::get_tx_packet_burst(burst);
}
```
"""


def test_mistakes_of_a_guide_are_told_block_by_block(compiler: Compiler, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    good, wrong, refused, this, that, endless, send, take = blocks(page)
    assert str(wrong) == "page.md:13: Mistakes"
    assert (this.line, that.line) == (26, 29)
    programs = compile_group(compiler, blocks(page))
    said = {block: program.messages[block] for block, program in programs.items()}
    assert "page.md:14:" in said[wrong]
    assert "get_nothing" in said.pop(wrong)
    assert not any(said.values())

    def missing(block: Block) -> str:
        folder = tmp_path / str(block.line)
        folder.mkdir()
        return missing_part(compiler, programs[block].path, block, folder)

    assert [missing(block) for block in (good, this, that, send, take)] == [""] * 5
    with pytest.raises(pytest.fail.Exception, match="page.md:20: Mistakes is refused.*999"):
        missing(refused)
    assert "this build has no RDMA engine" in missing(endless)


def test_a_page_saved_as_text_has_the_blocks_of_its_markdown(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    text = tmp_path / "page.txt"
    # As a browser saves it: no fences, no indentation, no empty lines in code.
    lines = re.sub(r"^```.*\n", "", PAGE, flags=re.MULTILINE).replace("\n\n//", "\n//")
    text.write_text(re.sub(r"^#+ (.*)", r"\1¶", lines, flags=re.MULTILINE))
    assert [" ".join(b.code.split()) for b in blocks(text)] == [
        " ".join(b.code.split()) for b in blocks(page)
    ]
