"""Every page of the built site, in a browser, on a desktop and on a phone: nothing is cut off.

`make docs` runs this after the build, with `--site build/docs`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: run `make docs`")

# The one of Debian, from packages.apt; playwright would download another.
CHROMIUM = "/usr/bin/chromium"
DESKTOP = {"width": 1280, "height": 1000}
PHONE = {"width": 390, "height": 844}

# Returns what is cut off or does not fit, an element a line.
FAULTS = """
(desktop) => {
  const faults = [];
  const name = (element) => {
    const text = (element.textContent || element.alt || "").trim().replace(/\\s+/g, " ");
    const classes = [...element.classList].map((each) => "." + each).join("");
    return `<${element.tagName.toLowerCase()}${classes}> ${text.slice(0, 60)}`;
  };
  const root = document.documentElement;
  const boxes = [...document.body.querySelectorAll("*")].filter((element) => {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    // Text for screen readers alone is in a box of a pixel.
    return box.width > 1 && box.height > 1 && style.visibility !== "hidden";
  });
  const scrolls = (element) =>
    element && element !== document.body &&
    (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
  if (root.scrollWidth > root.clientWidth) {
    const wide = boxes.filter(
      (box) => box.getBoundingClientRect().right > root.clientWidth + 1 && !scrolls(box));
    faults.push(`the page is ${root.scrollWidth} px wide: ${wide.map(name).slice(-1)}`);
  }
  for (const box of boxes) {
    const style = getComputedStyle(box);
    const across = box.scrollWidth > box.clientWidth + 1;
    const down = box.scrollHeight > box.clientHeight + 1;
    const hides = (overflow) => overflow === "hidden" || overflow === "clip";
    if (!box.textContent.trim() || style.display === "inline") continue;
    if ((across && hides(style.overflowX)) || (down && hides(style.overflowY)))
      faults.push(`cut off: ${name(box)}`);
    else if (desktop && across && /auto|scroll/.test(style.overflowX)) {
      const lines = box.textContent.split("\\n");
      const longest = lines.reduce((a, b) => (a.length >= b.length ? a : b));
      faults.push(`needs scrolling: ${name(box)} | ${longest.length} columns: ${longest}`);
    }
  }
  for (const text of document.querySelectorAll("svg text")) {
    const svg = text.ownerSVGElement.getBoundingClientRect();
    const box = text.getBoundingClientRect();
    if (box.left < svg.left - 1 || box.right > svg.right + 1 ||
        box.top < svg.top - 1 || box.bottom > svg.bottom + 1)
      faults.push(`outside its picture: ${text.textContent}`);
  }
  return faults;
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        # Root, as in a container, has no sandbox.
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: sync_api.Browser) -> Iterator[sync_api.Page]:
    """A page that reads the site's files alone."""
    context = browser.new_context(viewport=DESKTOP, offline=True)
    yield context.new_page()
    context.close()


@pytest.mark.timeout(600)
def test_every_page_fits_a_desktop_and_a_phone(
    site: Path, pages: list[Path], page: sync_api.Page
) -> None:
    found = []
    for file in pages:
        page.set_viewport_size(DESKTOP)
        page.goto(file.as_uri())
        for size in (DESKTOP, PHONE):
            page.set_viewport_size(size)
            # Source code may be wider.
            text = "_modules" not in file.parts
            faults = page.evaluate(FAULTS, text and size is DESKTOP)
            found += [f"{file.relative_to(site)} at {size['width']}: {fault}" for fault in faults]
    assert not found, "\n" + "\n".join(found)


def test_the_text_of_pictures_lies_within_them(site: Path, page: sync_api.Page) -> None:
    found = []
    for file in sorted((site / "_images").glob("*.svg")):
        page.goto(file.as_uri())
        inside = page.evaluate(
            """() => [...document.querySelectorAll("text")].filter((text) => {
              const svg = document.documentElement, box = text.getBoundingClientRect();
              const all = svg.getBoundingClientRect();
              return box.left < all.left - 1 || box.right > all.right + 1 ||
                box.top < all.top - 1 || box.bottom > all.bottom + 1;
            }).map((text) => text.textContent)"""
        )
        found += [f"{file.name}: {text}" for text in inside]
    assert not found, "\n" + "\n".join(found)


def test_pictures_have_white_paper_in_the_dark(
    site: Path, pages: list[Path], page: sync_api.Page
) -> None:
    page.emulate_media(color_scheme="dark")
    found = []
    for file in (file for file in pages if "<img " in file.read_text()):
        page.goto(file.as_uri())
        dark = page.evaluate(
            """() => [...document.querySelectorAll("article img")].filter((picture) =>
              getComputedStyle(picture).backgroundColor !== "rgb(255, 255, 255)"
            ).map((picture) => picture.getAttribute("src"))"""
        )
        found += [f"{file.relative_to(site)}: {picture}" for picture in dark]
    assert not found, "\n" + "\n".join(found)
