"""Links of the built site lead somewhere; of links to other sites, only the form is checked."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "object": "data"}


class Page(HTMLParser):
    """Links of a page, and where links to it can lead."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"", "top"}
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {name for name in (given.get("id"), given.get("name")) if name}
        link = given.get(LINKS.get(tag, ""))
        if link is not None:
            self.links.append(link)


def problem(link: str, file: Path, pages: dict[Path, Page]) -> str:
    """Say what is wrong with a link of a page, or nothing."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        whole = parts.scheme in ("http", "https") and "." in parts.netloc and " " not in link
        return "" if whole or parts.scheme == "mailto" else "not an address"
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if not target.is_file():
        return "no such file"
    if target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "no such place on the page"
    return ""


def test_links_lead_somewhere(site: Path, pages: list[Path]) -> None:
    read = {file.resolve(): Page(file) for file in pages}
    found = {
        f"{file.relative_to(site.resolve())}: {link}: {wrong}"
        for file, page in read.items()
        for link in page.links
        if (wrong := problem(link, file, read))
    }
    assert not found, "\n" + "\n".join(sorted(found))
