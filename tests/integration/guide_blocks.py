"""C++ blocks of a guide: of Markdown, or of a page that was saved as plain text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
# A line of code in plain text: how it begins, or how it ends once its comment is taken off.
CODE = re.compile(r"(^#include\b)|(^//)|(^__global__\b)|([;{}]$)|(::\w+\($)")
COMMENT = re.compile(r"\s*//.*$")
LANGUAGES = {"cpp", "c++", "cxx", "cuda"}
# What makes lines of a page without fences a block: prose and shell end like C++ now and then.
OURS = re.compile(r"\bdaqiri::|^#include\b", re.MULTILINE)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*$", re.MULTILINE)
PATH = re.compile(r'"(/[^"\n]*)"')
KERNEL = re.compile(r'^(?:extern "C" )?__global__[^{]*\{.*?^\}', re.DOTALL | re.MULTILINE)
MAIN = re.compile(r"^\s*int main\(", re.MULTILINE)
# A statement that is one call and declares nothing.
CALL = re.compile(r"[\w:]+\([^;]*\);(\s*//.*)?")


@dataclass(frozen=True)
class Block:
    """Lines of C++, and where they stand."""

    document: Path
    heading: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}: {self.heading}"

    @property
    def is_program(self) -> bool:
        return bool(MAIN.search(self.code))

    @property
    def needs_nvcc(self) -> bool:
        return bool(KERNEL.search(self.code))

    @property
    def starts_the_engine(self) -> bool:
        return "daqiri_init" in self.code

    def includes(self) -> list[str]:
        return [line.strip() for line in INCLUDE.findall(self.code)]

    def kernels(self) -> str:
        """What cannot stand in a function."""
        return "\n".join(KERNEL.findall(self.code))

    def body(self) -> str:
        """The statements, on the lines where the page has them.

        What a guide leaves to its reader is filled in, and files go below the folder HERE.
        """

        def empty(match: re.Match[str]) -> str:
            return "\n" * match[0].count("\n")

        code = INCLUDE.sub("", KERNEL.sub(empty, self.code))
        code = re.sub(r"= */\*[^*]*\*/ *;", "= {};", code)
        code = re.sub(r"(\b(\w+);\s*)// *(?:Populate|Fill in)\b[^\n]*", r"\1example(\2);", code)
        return PATH.sub(r'HERE "\1"', code)

    def folders(self) -> list[str]:
        """Folders that the block takes to exist."""
        return [path.lstrip("/") for path in PATH.findall(self.code)]


def blocks(document: Path) -> list[Block]:
    """Return the C++ blocks of `document`, in its order.

    A page without fences has lost them, and with them the indentation and empty lines: there, a
    block is what begins or ends like C++, line after line, until its brackets are closed.
    """
    text = document.read_text()
    found = _fenced(document, text) if "```" in text else _plain(document, text)
    return [part for block in found for part in _ways(block)]


def _fenced(document: Path, text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        if match[2].strip("{}").lower() not in LANGUAGES:
            continue
        line = text.count("\n", 0, match.start(3)) + 1
        headings = re.findall(r"^#+ +(.*)$", text[: match.start()], re.MULTILINE)
        found.append(Block(document, headings[-1] if headings else "", line, match[3]))
    return found


def _plain(document: Path, text: str) -> list[Block]:
    found: list[Block] = []
    heading, begun, lines = "", 0, list[str]()

    def end() -> None:
        code = "\n".join(lines) + "\n"
        if OURS.search(code) and any(line.endswith((";", "}")) for line in lines):
            found.append(Block(document, heading, begun, code))
        lines.clear()

    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if _open_brackets("\n".join(lines)) > 0 or CODE.search(COMMENT.sub("", line) or line):
            if not lines:
                begun = number
            lines.append(line)
            continue
        end()
        if line.endswith("¶"):
            heading = line.rstrip("¶")
    end()
    return found


def _open_brackets(code: str) -> int:
    code = re.sub(r'//[^\n]*|"(\\.|[^"\\])*"', "", code)
    return sum(code.count(a) for a in "({[") - sum(code.count(a) for a in ")}]")


def _ways(block: Block) -> list[Block]:
    """Return the ways that a block shows, of which a program takes one.

    They begin with `// Or ...`; and where a block has nothing but calls below comments, every
    comment begins one.
    """
    lines = block.code.splitlines(keepends=True)
    comments = [i for i, line in enumerate(lines) if line.startswith("//")]
    calls = [line.strip() for i, line in enumerate(lines) if line.strip() and i not in comments]
    if len(comments) > 1 and comments[0] == 0 and all(map(CALL.fullmatch, calls)):
        starts = comments
    else:
        starts = [0] + [i for i in comments if re.match(r"// Or\b", lines[i])]
    return [
        Block(block.document, block.heading, block.line + begin, "".join(lines[begin:end]))
        for begin, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]
