"""A web page that lists runs, each with a link to its page of Tiled's web interface."""

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

__all__ = ["page_router"]

page_router = APIRouter()


@page_router.get("/browse", response_class=HTMLResponse)
async def browse() -> str:
    """Return the page; it has no data, and reads those that its user may read."""
    return files("daqiri_ophyd.catalog").joinpath("runs.html").read_text("utf-8")
