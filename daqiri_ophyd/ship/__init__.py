"""Files of captures and frames in an object store: S3, GCS, Azure.

A recorder writes to a local folder, which is the spool: reception never waits for a network. A
`Shipper` uploads each complete file, and its metadata file last: an object ``NAME.json`` says that
``NAME`` is whole. What is not uploaded stays in the folder, and is uploaded by the next process.
"""

from ._mark import Mark, is_shipped, read_mark
from ._object import ObjectReader, StoredObject, fetch_ahead, fetch_all
from ._process import resume, resume_later, shipper_of, shippers
from ._registry import ShipperSnapshot, running_shippers
from ._shipment import Shipment, order_all
from ._shipper import Shipper
from ._state import ShipperState
from ._store import StoreError, is_address, open_store, split_address

__all__ = [
    "Mark",
    "ObjectReader",
    "Shipment",
    "Shipper",
    "ShipperSnapshot",
    "ShipperState",
    "StoreError",
    "StoredObject",
    "fetch_ahead",
    "fetch_all",
    "is_address",
    "is_shipped",
    "open_store",
    "order_all",
    "read_mark",
    "resume",
    "resume_later",
    "running_shippers",
    "shipper_of",
    "shippers",
    "split_address",
]
