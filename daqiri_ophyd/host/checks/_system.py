"""Checks of the engine, the kernel and privileges."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from .._needs import PortNeeds
from ._gpu import bar1
from ._nic import link_layer
from ._pcie import acs, pcie_read_request

_BACKLOG = 10_000
_EFI_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
# Their remedies write to firmware or to PCI configuration space.
_BLOCKED = (link_layer, pcie_read_request, bar1, acs)


@check(
    "engine",
    "the configuration's engine",
    wanted="in this build, and it accepts the configuration",
    why="The engine rejects a configuration that it cannot serve in full.",
)
def engine(context: Context) -> Iterator[Finding]:
    if not context.needs.given:
        yield skip("no configuration")
        return
    needs = context.needs.by_engine()
    refusals = needs.refusals
    # What no host opens is not asked of this one.
    if not refusals and context.facts.root.live:
        refusals = context.needs.rejected_here()
    note = (
        "Change the configuration or this host as the text says. For an engine that is missing, "
        "install a build that has it."
    )
    for refusal in refusals:
        yield Finding(Status.FAIL, refusal, "", Remedy(note=note))
    if not refusals:
        yield ok(needs.engine)


@check(
    "secure-boot",
    "Secure Boot",
    wanted="off while link type, read request, BAR1 or ACS are being changed",
    why="With it the kernel forbids writes to PCI configuration space, also by root.",
)
def secure_boot(context: Context) -> Iterator[Finding]:
    root = context.facts.root
    path = f"/sys/firmware/efi/efivars/SecureBoot-{_EFI_GLOBAL}"
    if not root.exists(path):
        yield skip("no EFI variable SecureBoot: this host has no UEFI, or /sys hides it")
        return
    value = root.bytes(path, 16)
    # Four bytes of attributes, then the value.
    if len(value) < 5:
        yield skip(f"the EFI variable has {len(value)} bytes; five are expected")
        return
    if not value[4]:
        yield ok("off")
        return
    results = [each.run(context) for each in _BLOCKED]
    open_ones = [r.check for r in results if r.status in (Status.WARN, Status.FAIL)]
    if open_ones:
        note = "Disable it in the firmware setup for the change, and enable it again afterwards."
        found = f"on; it prevents the fixes of {', '.join(open_ones)}"
        yield Finding(Status.WARN, found, "", Remedy(note=note))
    else:
        yield ok("on; nothing that it prevents has to be changed")


@check(
    "capabilities",
    "privileges of this process",
    wanted="those that the configuration needs",
    why="The kernel refuses raw sockets, low ports and locked memory without them.",
)
def capabilities(context: Context) -> Iterator[Finding]:
    needs, process = context.needs, context.facts.process
    if not needs.given:
        yield skip(f"no configuration; has {', '.join(sorted(process.capabilities)) or 'none'}")
        return
    if needs.traits.rdma_cards:
        yield skip(f"what engine {needs.engine} needs is known to a build that has it")
        return
    wanted = _wanted(context)
    if not wanted:
        yield ok("the configuration needs none")
    for name, (use, required) in wanted.items():
        if name in process.capabilities:
            yield ok(f"present, for {use}", name)
        else:
            status = Status.FAIL if required else Status.WARN
            yield Finding(status, f"missing, for {use}", name, _grant(sorted(wanted)))


def _wanted(context: Context) -> dict[str, tuple[str, bool]]:
    """Return what for, and whether the engine opens only with it, by capability."""
    needs, facts = context.needs, context.facts
    process = facts.process
    wanted: dict[str, tuple[str, bool]] = {}
    for port in needs.ports:
        own = needs.by_engine().interfaces[port.name]
        for each in own.privileges:
            if each.capability != "CAP_BPF" or each.required or not facts.anybody_loads_bpf:
                wanted.setdefault(each.capability, (each.use, each.required))
        low = 0 < port.local_port < facts.first_free_port
        if low and not wanted.get("CAP_NET_BIND_SERVICE", ("", False))[1]:
            wanted["CAP_NET_BIND_SERVICE"] = (f"port {port.local_port}", port.opens_at_once)
    # The limit is for all of them together.
    locked = sum(own.locked for own in needs.by_engine().interfaces.values())
    if process.memlock is not None and process.memlock < locked:
        use = f"{locked >> 20} MiB of locked memory (RLIMIT_MEMLOCK is less)"
        wanted["CAP_IPC_LOCK"] = (use, True)
    if any(p.realtime_priority > process.rtprio for p in needs.pollers):
        # Threads run without it.
        wanted["CAP_SYS_NICE"] = ("realtime_priority (RLIMIT_RTPRIO is less)", False)
    return wanted


def _grant(names: list[str]) -> Remedy:
    # All in one call: setcap removes others.
    words = " ".join(names)
    line = f"{','.join(name.lower() for name in names)}+ep"
    return Remedy(
        note=(
            f"Start the program by systemd, with AmbientCapabilities={words} in its unit, or try "
            f"it with `systemd-run --pty --uid=$USER -p AmbientCapabilities='{words}' PROGRAM`. "
            f"`setcap {line} INTERPRETER` gives them to every program of that Python (the file "
            "that `readlink -f .venv/bin/python` prints): use a virtual environment made with "
            "--copies. Root of a user namespace, as in a rootless container, has none of them on "
            "the host's network."
        )
    )


@check(
    "socket-buffers",
    "socket buffers",
    wanted="what the engine asks for, and a backlog of some thousand packets",
    why="While a poller is busy, the kernel buffers what fits here and drops the rest.",
)
def socket_buffers(context: Context) -> Iterator[Finding]:
    needs, root = context.needs, context.facts.root
    if not needs.given:
        yield skip(f"no configuration; rmem_max {root.integer('/proc/sys/net/core/rmem_max')}")
        return
    each = needs.by_engine().interfaces.values()
    wanted = {
        "rmem_max": max((own.receive_buffer for own in each), default=0),
        "wmem_max": max((own.send_buffer for own in each), default=0),
    }
    if needs.kernel_sockets and any(map(_receives, needs.ports)):
        wanted["netdev_max_backlog"] = _BACKLOG
    wanted = {name: least for name, least in wanted.items() if least}
    if not wanted:
        yield skip(f"engine {needs.engine} asks for none with this configuration")
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
            verify=(f'test "$(sysctl -n net.core.{name})" -ge {least}',),
        )
        yield Finding(Status.WARN, f"{value} (need {least})", name, remedy)


def _receives(port: PortNeeds) -> bool:
    """Return whether packets of other hosts come to the port."""
    local = port.address in ("lo", "loopback", "::1") or port.address.startswith("127.")
    return bool(port.rx_queues) and not local
