"""A web page that lists runs, each with a link to its page of Tiled's web interface."""

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from daqiri_ophyd.documents import SAMPLE_QUERY

__all__ = ["page_router"]

page_router = APIRouter()
# What the page shows of a run, as JMESPath.
_SHOWN = (
    "{scan_id: start.scan_id, started: start.time, plan: start.plan_name, "
    "detectors: start.detectors, ended: stop.time, status: stop.exit_status, reason: stop.reason, "
    f"sample: {SAMPLE_QUERY}}}"
)


@page_router.get("/browse", response_class=HTMLResponse)
async def browse() -> str:
    """Return the page; it has no data, and reads those that its user may read."""
    page = files("daqiri_ophyd.catalog").joinpath("runs.html").read_text("utf-8")
    return page.replace("SHOWN_OF_A_RUN", _SHOWN)
