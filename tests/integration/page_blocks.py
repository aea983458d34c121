"""Fenced blocks of a page of the documentation, in every language, and why one does not run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# A comment on the line before gives the reason why a block is not run: MyST's, or, in the README,
# HTML's.
WHY = r"(?:(?:% not run: (?P<why>[^\n]+)|<!-- not run: (?P<why_html>[^\n]+?) -->)\n+)?"
FENCE = re.compile(
    rf"^{WHY}(?P<indent> *)```(?P<language>[^\s`]*)[^\n`]*\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class PageBlock:
    """A block of a page."""

    page: Path
    line: int
    language: str
    code: str
    why_not_run: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}: {self.language or 'no language'}"


def page_blocks(page: Path) -> list[PageBlock]:
    """Return the blocks of a page, in its order; directives such as tables of contents are none."""
    text = page.read_text()
    return [
        PageBlock(
            page,
            text.count("\n", 0, found.start("code")),
            found["language"],
            found["code"],
            found["why"] or found["why_html"] or "",
        )
        for found in FENCE.finditer(text)
        if not found["language"].startswith("{")
    ]


def program(page: Path) -> str:
    """Return the Python code of a page as one program, without the blocks that are not run."""
    blocks = page_blocks(page)
    return "\n".join(b.code for b in blocks if b.language == "python" and not b.why_not_run)
