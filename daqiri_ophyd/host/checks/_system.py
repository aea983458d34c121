"""Checks of the kernel and of privileges."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from .._needs import PortNeeds
from .._platform import Platform

_BACKLOG = 10_000
# SO_RCVBUF counts the kernel's own overhead of each packet too.
_MOST_BUFFER = 1 << 30
_EFI_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"


@check(
    "secure-boot",
    "Secure Boot",
    wanted="off while link type, read request or BAR1 are being changed",
    why="With it the kernel forbids writes to PCI configuration space, also by root.",
    sources=("/sys/firmware/efi/efivars/SecureBoot-*",),
    platforms=(Platform.IGX, Platform.SPARK),
)
def secure_boot(context: Context) -> Iterator[Finding]:
    root = context.facts.root
    path = f"/sys/firmware/efi/efivars/SecureBoot-{_EFI_GLOBAL}"
    if not root.exists(path):
        yield skip("no such EFI variable")
        return
    value = root.bytes(path, 16)
    # Four bytes of attributes, then the value.
    if len(value) < 5:
        yield skip(f"the EFI variable has {len(value)} bytes; five are expected")
    elif value[4]:
        note = "Disable it in the firmware setup for the change, and enable it again afterwards."
        yield Finding(Status.WARN, "on", "", Remedy(note=note))
    else:
        yield ok("off")


@check(
    "capabilities",
    "privileges of this process",
    wanted="those that the configuration needs",
    why="The kernel refuses raw sockets, pinned memory and real-time threads without them.",
    sources=(
        "/proc/self/status",
        "/proc/self/limits",
        "/proc/sys/kernel/unprivileged_bpf_disabled",
    ),
)
def capabilities(context: Context) -> Iterator[Finding]:
    needs, process = context.needs, context.facts.process
    if not needs.given:
        yield skip(f"no configuration; has {', '.join(sorted(process.capabilities)) or 'none'}")
        return
    wanted: dict[str, str] = {}
    if needs.engine == "packet":
        wanted["CAP_NET_RAW"] = "packet sockets"
        if any(port.receive_path == "af_xdp" for port in needs.ports):
            wanted["CAP_NET_ADMIN"] = wanted["CAP_BPF"] = "receive_path: af_xdp"
    if needs.engine in ("dpdk", "ibverbs"):
        wanted["CAP_NET_RAW"] = "NIC queues in user space"
        if process.memlock is not None and process.memlock < needs.memory(*_LOCKED):
            wanted["CAP_IPC_LOCK"] = "registered memory"
    if any(p.realtime_priority > process.rtprio for p in needs.pollers):
        wanted["CAP_SYS_NICE"] = "realtime_priority"
    receives_udp = needs.engine == "socket" and any(p.rx_queues and p.frame for p in needs.ports)
    if receives_udp and not _anybody_loads_bpf(context):
        wanted["CAP_BPF"] = "counting each datagram that the kernel drops of a batch"
    if not wanted:
        yield ok("the configuration needs none")
    for name, use in wanted.items():
        if name in process.capabilities:
            yield ok(f"present, for {use}", name)
        else:
            status = Status.FAIL if needs.engine != "socket" or name != "CAP_BPF" else Status.WARN
            yield Finding(status, f"missing, for {use}", name, _grant(list(wanted)))


def _anybody_loads_bpf(context: Context) -> bool:
    path = "/proc/sys/kernel/unprivileged_bpf_disabled"
    root = context.facts.root
    return root.exists(path) and root.text(path).strip() == "0"


_LOCKED = ("host", "huge", "host_pinned")


def _grant(names: list[str]) -> Remedy:
    # All in one call: setcap removes others. The interpreter gets them, because it runs the script.
    privileges = ",".join(name.lower() for name in sorted(names))
    grant = f'setcap {privileges}+ep "$(readlink -f "$(command -v python3)")"'
    note = (
        "It gives the privileges to every program of this interpreter; to limit that, run the "
        "engine from a virtual environment made with --copies."
    )
    return Remedy((grant,), lasting=(grant,), note=note)


@check(
    "socket-buffers",
    "socket buffers",
    wanted="the size of a receive queue's packet buffers, and a backlog of some thousand packets",
    why="While a poller is busy, the kernel buffers what fits here and drops the rest.",
    sources=("/proc/sys/net/core/{rmem_max,wmem_max,netdev_max_backlog}",),
)
def socket_buffers(context: Context) -> Iterator[Finding]:
    needs = context.needs
    if needs.given and needs.engine not in ("socket", "packet"):
        yield skip(f"engine {needs.engine} uses none")
        return
    root = context.facts.root
    buffered = min(max((port.buffered for port in needs.ports), default=0), _MOST_BUFFER)
    wanted = {"rmem_max": buffered or 8 << 20, "wmem_max": min(buffered, 8 << 20) or 4 << 20}
    wanted["netdev_max_backlog"] = _BACKLOG if any(map(_leaves_host, needs.ports)) else 1000
    for name, least in wanted.items():
        value = root.integer(f"/proc/sys/net/core/{name}")
        if value >= least:
            yield ok(str(value), name)
            continue
        if name != "netdev_max_backlog" and "CAP_NET_ADMIN" in context.facts.process.capabilities:
            yield ok(f"{value}; CAP_NET_ADMIN lets the engine exceed it", name)
            continue
        setting = f"net.core.{name}={least}"
        remedy = Remedy(
            now=(f"sysctl -w {setting}",),
            files=((f"/etc/sysctl.d/90-daqiri-{name}.conf", f"{setting}\n"),),
        )
        yield Finding(Status.WARN, f"{value} (need {least})", name, remedy)


def _leaves_host(port: PortNeeds) -> bool:
    return port.address not in ("lo", "loopback", "::1") and not port.address.startswith("127.")
