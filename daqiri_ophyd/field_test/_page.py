"""The report of a field test as one HTML page, without anything from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._step import StepStatus
from ._steps import GROUPS

__all__ = ["page_of"]

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0;
         border-bottom: 1px solid #d0d0d0; overflow-wrap: break-word; }
td:last-child { overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.passed { color: #176d2f; } .failed { color: #b3161b; font-weight: bold; }
.skipped, .interrupted { color: #5f5f5f; } pre { white-space: pre-wrap; font-size: .85rem; }
@media print { body { max-width: none; margin: 0; font-size: 10pt; }
               tr { break-inside: avoid; } details { display: block; } }
"""
_NOT_KNOWN = "not known"


def page_of(report: Mapping[str, Any]) -> str:
    """Return the page of a report.

    Parameters
    ----------
    report : mapping
        As in ``report.json``.
    """
    config, settings = report["configuration"], report["settings"]
    name = _text(str(config["name"]))
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Field test of {name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>Field test of {name}: {_status(report['result'])}</h1>",
        "<p>" + ", ".join(f"{n} {s}" for s, n in report["counts"].items()) + ".</p>",
        _facts(
            {
                "started": report["started"],
                "last written": report["updated"]
                + (" (interrupted)" if report["interrupted"] else ""),
                "daqiri-ophyd": report["version"],
                "configuration, SHA-256": config["sha256"],
                "limits": f"{settings['seconds']:g} s for a rate, {settings['limit_s']:g} s and "
                f"{settings['traffic_bytes'] / 1e9:g} GB for all",
            }
        ),
        "<h2>Steps</h2>",
        _steps(report["steps"]),
        "<h2>Rates without loss</h2>",
        _rates(report),
        "<h2>Lost packets</h2>",
        _losses(report["steps"]),
        "<h2>Ports</h2>",
        _ports(report["ports"]),
        "<h2>Where packets went</h2>",
        _addresses(report["steps"]),
        "<h2>Host</h2>",
        _facts(report["host"]),
        "<h2>Published figures</h2>",
        _published(report["published"]),
        "<h2>Configuration</h2>",
        f"<pre>{_lines(config['text'])}</pre>",
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _text(text: str) -> str:
    r"""Return text of others for the page: what would change how it is shown, as ``\u202e``."""
    plain = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return html.escape("".join(plain))


def _lines(text: str) -> str:
    return "\n".join(map(_text, text.split("\n")))


def _status(status: str) -> str:
    known = {str(each) for each in StepStatus}
    return f'<span class="{status if status in known else "skipped"}">{_text(status)}</span>'


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; cells that are numbers are on the right, those in tuples are HTML."""
    body = [list(row) for row in rows]
    right = [
        bool(body) and all(isinstance(row[i], int | float) for row in body)
        for i in range(len(columns))
    ]
    head = "".join(
        f"<th{' class=n' * n}>{_text(c)}</th>" for c, n in zip(columns, right, strict=True)
    )
    lines = [
        "<tr>"
        + "".join(f"<td{' class=n' * n}>{_cell(v)}</td>" for v, n in zip(row, right, strict=True))
        + "</tr>"
        for row in body
    ]
    return f"<table>\n<tr>{head}</tr>\n" + "\n".join(lines) + "\n</table>"


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return str(value[0])
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, Mapping):
        return _text(", ".join(f"{key}: {_plain(each)}" for key, each in value.items()))
    if isinstance(value, list):
        return _text(", ".join(_plain(each) for each in value) or "none")
    return _text(str(value))


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {each}" for key, each in value.items())
    return str(value)


def _facts(facts: Mapping[str, Any]) -> str:
    return _table(("", ""), [(key.replace("_", " "), value) for key, value in facts.items()])


def _steps(steps: Sequence[Mapping[str, Any]]) -> str:
    return _table(
        ("step", "result", "found", "s"),
        [
            (
                (f'<span title="{_text(GROUPS.get(s["group"], ""))}">{_text(s["name"])}</span>',),
                (_status(s["status"]),),
                s["text"],
                float(s["seconds"]),
            )
            for s in steps
        ],
    )


def _rates(report: Mapping[str, Any]) -> str:
    rows = []
    for step in report["steps"]:
        found = step["figures"]
        if step["group"] != "rate" or "packets_per_s" not in found:
            continue
        published = found.get("published_Gb_per_s")
        rows.append(
            (
                int(found["size"]),
                int(found["queues"]),
                round(found["packets_per_s"]),
                float(found["Gb_per_s"]),
                found["limited_by"],
                _share(found.get("share_of_link")),
                _share(found.get("share_of_pcie")),
                _share(found["verified"] / found["arrived"] if found["arrived"] else None),
                "no published figure" if published is None else f"{published:g} Gb/s",
            )
        )
    if not rows:
        return "<p>No rate was measured.</p>"
    columns = ("B", "queues", "packets/s", "Gb/s", "limited by", "of the link", "of PCIe")
    return _table((*columns, "compared", "published, same payload"), rows)


def _share(value: float | None) -> str:
    return _NOT_KNOWN if value is None else f"{100 * value:.1f} %"


def _losses(steps: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (step["name"], where, int(count))
        for step in steps
        for trial in (step["figures"], *step["figures"].get("trials", []))
        for where, count in (trial.get("losses") or {}).items()
    ]
    if not rows:
        return "<p>No packet was lost.</p>"
    return _table(("step", "where, by the counters", "packets"), rows)


def _ports(ports: Sequence[Mapping[str, Any]]) -> str:
    if not ports:
        return "<p>The ports were not opened.</p>"
    keys = list(dict.fromkeys(key for port in ports for key in port if key != "port"))
    return _table(
        ("", *(port["port"] for port in ports)),
        [(key.replace("_", " "), *(port.get(key, _NOT_KNOWN) for port in ports)) for key in keys],
    )


def _addresses(steps: Sequence[Mapping[str, Any]]) -> str:
    found = next((s["figures"].get("addresses") for s in steps if s["group"] == "link"), None)
    if not found:
        return "<p>No packets were sent.</p>"
    return _table(("flow", "packets to"), list(found.items()))


def _published(published: Mapping[str, Any]) -> str:
    url = _text(published["url"])
    rows = [
        (f"{kind}, {size} B", float(rate), figures["what"])
        for kind, figures in published.items()
        if isinstance(figures, Mapping)
        for size, rate in figures["Gb_per_s"].items()
    ]
    source = f'<a href="{url}">{_text(published["source"])}</a>'
    return (
        f"<p>Of {_text(published['card'])}; source: {source}. Not measured by this test.</p>"
        + _table(("", "Gb/s", "what"), rows)
    )
