"""Object stores by address."""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path
from typing import Any

from daqiri_ophyd.engine import store_address_error

__all__ = ["StoreError", "is_address", "open_store", "reason_of", "split_address"]


class StoreError(RuntimeError):
    """An object store, or an object, cannot be used."""


def is_address(text: str) -> bool:
    """Whether a text is meant as an address of an object store, not as a path."""
    return "://" in text and not text.startswith("file:")


def split_address(address: str) -> tuple[str, str]:
    """Return the bucket and the key, or prefix, of an address.

    Parameters
    ----------
    address : str
        ``s3://BUCKET/KEY``, ``gs://`` or ``az://``.

    Returns
    -------
    tuple of str
        ``s3://BUCKET``, and the key without a slash at its ends; empty: the whole bucket.

    Raises
    ------
    ValueError
        If it is no such address.
    """
    if wrong := store_address_error(address):
        raise ValueError(
            f"{address!r} is no address of an object store ({wrong}); accepted is "
            "s3://BUCKET/PREFIX, and the same with gs and az"
        )
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key.rstrip("/")


def open_store(bucket: str, **options: Any) -> Any:
    """Open a bucket.

    Parameters
    ----------
    bucket : str
        ``s3://BUCKET``, ``gs://BUCKET``, ``az://CONTAINER``. Credentials, region and endpoint come
        from the environment, as for other programs of these stores (``AWS_ACCESS_KEY_ID``,
        ``AWS_ENDPOINT_URL``), for S3 also from the files ``~/.aws/credentials`` and
        ``~/.aws/config``, then from the host.
    **options
        As for `obstore.store.from_url`; they come before all others.

    Returns
    -------
    obstore.store.ObjectStore
        The bucket. Requests that fail are not repeated.

    Raises
    ------
    StoreError
        If it cannot be opened; also in a process that was forked from one that has opened one: the
        threads of obstore are missing in it, and its requests would never end.
    """
    from obstore.store import from_url

    _processes.add(os.getpid())
    if len(_processes) > 1:
        raise StoreError(
            f"{bucket} cannot be used in process {os.getpid()}: it was forked from one that has "
            "used a store. Start it with multiprocessing's methods spawn or forkserver."
        )

    client_options = {"connect_timeout": "10s", "timeout": "5m"}
    if bucket.startswith("s3:"):
        options = {**_shared_settings(), **options}
        endpoint = options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3", endpoint) or endpoint
        if endpoint and not re.match(r"https?://[^\s/]", endpoint):
            raise StoreError(
                f"{bucket} cannot be opened: the endpoint is {endpoint!r}; accepted is "
                "http://HOST:PORT or https://HOST, in AWS_ENDPOINT_URL or ~/.aws/config"
            )
        # Whoever names such an endpoint wants it. There, the hash of the bytes is signed, and the
        # store refuses damaged ones; elsewhere TLS does that.
        is_plain = endpoint.startswith("http://")
        client_options["allow_http"] = str(is_plain).lower()
        if not is_plain:
            options.setdefault("unsigned_payload", True)
    options["client_options"] = {**client_options, **options.get("client_options", {})}
    # Attempts are the shipper's: it knows how long a file may wait.
    options.setdefault("retry_config", {"max_retries": 0})
    try:
        return from_url(bucket, **options)
    except Exception as error:
        raise StoreError(f"{bucket} cannot be opened: {reason_of(error)}") from error


# Asked last for credentials.
_METADATA_SERVICE = "http://169.254.169.254"
# This one, and the one that it was forked from.
_processes: set[int] = set()


def _shared_settings() -> dict[str, str]:
    """Return what AWS's shared files have and the environment has not; obstore reads no files.

    Format: https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
    """
    environment, profile = os.environ, os.environ.get("AWS_PROFILE") or "default"
    found: dict[str, str] = {}
    section = profile if profile == "default" else f"profile {profile}"
    config = _section("AWS_CONFIG_FILE", "config", section)
    if not {"AWS_REGION", "AWS_DEFAULT_REGION"} & environment.keys() and "region" in config:
        found["region"] = config["region"]
    if "AWS_ENDPOINT_URL" not in environment and "endpoint_url" in config:
        found["endpoint"] = config["endpoint_url"]
    if "AWS_ACCESS_KEY_ID" in environment:
        return found
    credentials = _section("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile)
    if environment.get("AWS_PROFILE") and not config and not credentials:
        raise StoreError(
            f"AWS_PROFILE is {profile!r}, which is in neither ~/.aws/credentials nor ~/.aws/config"
        )
    for ours, theirs in (
        ("access_key_id", "aws_access_key_id"),
        ("secret_access_key", "aws_secret_access_key"),
        ("session_token", "aws_session_token"),
    ):
        if theirs in credentials:
            found[ours] = credentials[theirs]
    return found


def _section(variable: str, name: str, section: str) -> dict[str, str]:
    path = Path(os.environ.get(variable, f"~/.aws/{name}"))
    # A secret may have percent signs.
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path.expanduser(), "utf-8")
    except (OSError, RuntimeError, ValueError, configparser.Error) as error:
        reason = str(error).partition("\n")[0]
        raise StoreError(f"{path} cannot be read: {reason}") from error
    return dict(parser[section]) if parser.has_section(section) else {}


def reason_of(error: BaseException) -> str:
    """Return what a store answered, in one line; obstore's own text has many."""
    text = str(error)
    code = re.search(r"<Code>(.*?)</Code>", text)
    message = re.search(r"<Message>(.*?)</Message>", text)
    if code or message:
        return ": ".join(found[1].strip() for found in (code, message) if found)
    if _METADATA_SERVICE in text:
        return (
            "no credentials: neither AWS_ACCESS_KEY_ID nor the profile in ~/.aws/credentials has "
            f"them, and this host gives none ({_METADATA_SERVICE})"
        )
    first, _, debug = text.partition("\n")
    # What the system says is deep in the causes: Os { code: 111, ..., message: "..." }.
    if system := re.search(r'Os \{[^}]*message: "([^"]+)"', debug):
        first = re.sub("HTTP error: .*", f"HTTP error: {system[1]}", first)
    for begin in ("HTTP error: ", "Server returned non-2xx status code: "):
        before, found, rest = first.partition(begin)
        if found:
            url = re.search(r"https?://[^\s/]+", before)
            return f"{rest.strip(' :')} ({url[0]})" if url else rest.strip(" :")
    return first or type(error).__name__
