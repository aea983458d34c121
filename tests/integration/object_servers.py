"""Servers of objects on loopback: moto with authentication, and one whose faults a test chooses."""

import base64
import hashlib
import json
import re
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from free_ports import free_port
from waiting import wait_for

BUCKET = "bucket"


@dataclass(frozen=True)
class ObjectServer:
    """Address and credentials of a server that checks signatures."""

    address: str
    access_key_id: str
    secret_access_key: str

    @property
    def options(self) -> dict[str, Any]:
        """Options of `open_store`."""
        return {
            "endpoint": self.address,
            "region": "us-east-1",
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "client_options": {"allow_http": True},
        }


def use(patch: Any, server: ObjectServer) -> None:
    """Let this process and those that it starts use a server, with a MonkeyPatch."""
    for name, value in {
        "AWS_ENDPOINT_URL": server.address,
        "AWS_ACCESS_KEY_ID": server.access_key_id,
        "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
        "AWS_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)


@contextmanager
def moto_server(folder: Path, port: int | None = None) -> Iterator[ObjectServer]:
    """Run moto's server with one user and one bucket; other credentials are refused."""
    import boto3

    port = port or free_port("tcp")
    address = f"http://127.0.0.1:{port}"
    log = (folder / "moto.log").open("w")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:

        def is_ready() -> bool:
            assert process.poll() is None, (folder / "moto.log").read_text()
            try:
                with urllib.request.urlopen(f"{address}/moto-api/", timeout=10):
                    return True
            except urllib.error.URLError:
                return False

        try:
            wait_for(is_ready)
            of = {
                "endpoint_url": address,
                "region_name": "us-east-1",
                "aws_access_key_id": "any",
                "aws_secret_access_key": "any",
            }
            iam = boto3.client("iam", **of)
            iam.create_user(UserName="user")
            key = iam.create_access_key(UserName="user")["AccessKey"]
            policy = {"Effect": "Allow", "Action": ["s3:*"], "Resource": "*"}
            iam.put_user_policy(
                UserName="user",
                PolicyName="all",
                PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [policy]}),
            )
            boto3.client("s3", **of).create_bucket(Bucket=BUCKET)
            # From now on, signatures are checked.
            check = urllib.request.Request(
                f"{address}/moto-api/reset-auth",
                data=b"0",
                headers={"Content-Type": "text/plain"},
            )
            urllib.request.urlopen(check, timeout=10).close()
            yield ObjectServer(address, key["AccessKeyId"], key["SecretAccessKey"])
        finally:
            process.terminate()


class Fault(Enum):
    """What a `FaultServer` does with a request instead of answering it plainly."""

    # The connection is reset in the middle of the body: of the request, or of the answer to a GET.
    RESET = "reset"
    # The request is performed, and the connection closed without an answer.
    UNANSWERED = "unanswered"
    # The request is performed, and the connection closed after the answer, without announcement.
    CLOSED = "closed"
    # The request is performed; the answer waits for `FaultServer.release`.
    HELD = "held"
    # The answer is not HTTP.
    NOT_HTTP = "not HTTP"
    # "100 Continue", which nobody asked for, comes before the answer.
    CONTINUE_UNASKED = "continue unasked"
    # "100 Continue" comes after the body.
    CONTINUE_LATE = "continue late"
    # Errors of S3.
    SLOW_DOWN = "SlowDown"
    INTERNAL_ERROR = "InternalError"
    REQUEST_TIMEOUT = "RequestTimeout"
    EXPIRED_TOKEN = "ExpiredToken"
    ACCESS_DENIED = "AccessDenied"
    NO_SUCH_BUCKET = "NoSuchBucket"


_STATUS_CODES = {
    "SlowDown": 503,
    "InternalError": 500,
    "RequestTimeout": 400,
    "ExpiredToken": 400,
    "BadDigest": 400,
    "XAmzContentSHA256Mismatch": 400,
    "InvalidRange": 416,
    "AccessDenied": 403,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
}


class FaultServer:
    """Objects of one bucket, in memory; unsigned requests are accepted.

    Attributes
    ----------
    objects
        What was stored, by key.
    puts
        How often each key was stored whole, by one PUT or by parts.
    requests
        Requests of each method, failed ones too.
    answered
        Bytes of the contents of answers.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.puts: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.answered = 0
        self.port = 0
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._faults: list[tuple[Fault, str | None]] = []
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server: _Listener | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, Any]:
        """Options of `open_store`."""
        return ObjectServer(self.address, "any", "any").options

    def use(self, patch: Any) -> None:
        """Let this process and those that it starts use the server, with a MonkeyPatch."""
        use(patch, ObjectServer(self.address, "any", "any"))

    def fail_next(self, count: int, fault: Fault, method: str | None = None) -> None:
        """Treat the next requests, of one method or of any, in this way."""
        with self._lock:
            self._faults += [(fault, method)] * count

    def heal(self) -> None:
        """Forget faults that have not happened yet."""
        with self._lock:
            self._faults.clear()

    def release(self) -> None:
        """Send the answers that are held, and hold no more."""
        self._released.set()

    def start(self) -> None:
        """Listen, after `stop` on the same port and with the same objects."""
        self._server = _Listener(self)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,)).start()

    def stop(self) -> None:
        """Refuse connections, and reset those that are open."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.end_connections()
            self._server = None

    # --- For the requests' threads

    def next_fault(self, method: str) -> Fault | None:
        with self._lock:
            self.requests[method] += 1
            for i, (fault, of) in enumerate(self._faults):
                if of in (None, method):
                    del self._faults[i]
                    return fault
        return None

    def wait_for_release(self) -> None:
        self._released.wait()

    def store(self, key: str, data: bytes) -> None:
        with self._lock:
            self.objects[key] = data
            self.puts[key] += 1

    def remove(self, key: str) -> None:
        with self._lock:
            self.objects.pop(key, None)

    def begin_upload(self) -> str:
        with self._lock:
            number = f"upload-{len(self._uploads)}"
            self._uploads[number] = {}
        return number

    def upload(self, number: str) -> dict[int, bytes] | None:
        return self._uploads.get(number)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, store: FaultServer) -> None:
        self.store = store
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", store.port), _Requests)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._open):
            _reset_on_close(connection)
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # Its thread was faster.
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are none of the test's business."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _reset_on_close(connection: socket.socket) -> None:
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:  # It is closed already.
        return


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Head and body of an answer in one segment.
    wbufsize = 1 << 16

    @property
    def _store(self) -> FaultServer:
        assert isinstance(self.server, _Listener)
        return self.server.store

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_expect_100(self) -> bool:
        # Sent by _answer, because it may be late.
        return True

    def do_PUT(self) -> None:
        self._answer()

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT  # noqa: N815

    def _answer(self) -> None:
        store = self._store
        fault = store.next_fault(self.command)
        length = int(self.headers.get("Content-Length") or 0)
        expects = self.headers.get("Expect", "").lower() == "100-continue"
        if fault is Fault.RESET and self.command != "GET":
            self.rfile.read(length // 2)
            return self._end(reset=True)
        if (expects and fault is not Fault.CONTINUE_LATE) or fault is Fault.CONTINUE_UNASKED:
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wfile.flush()
        body = self.rfile.read(length)
        if len(body) < length:
            return self._end()
        if fault is Fault.CONTINUE_LATE:
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fault is Fault.NOT_HTTP:
            self.wfile.write(b"220 this is another service\r\n")
            return self._end()
        if fault is not None and fault.value in _STATUS_CODES:
            return self._error(fault.value)
        answer = self._perform(body)
        if fault is Fault.UNANSWERED:
            return self._end()
        if fault is Fault.HELD:
            store.wait_for_release()
        status, headers, content = answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            store.answered += len(content)
            cut = fault is Fault.RESET
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if fault is Fault.RESET:
            self.wfile.flush()
            self._end(reset=True)
        elif fault is Fault.CLOSED:
            self._end()

    def _end(self, reset: bool = False) -> None:
        self.close_connection = True
        if reset:
            _reset_on_close(self.connection)

    def _error(self, code: str) -> None:
        status, headers, content = _error_answer(code, self.path)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _perform(self, body: bytes) -> "_Answer":
        store = self._store
        url = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        key = unquote(url.path.removeprefix("/"))
        if not self.headers.get("Host", "").startswith(f"{BUCKET}."):
            bucket, _, key = key.partition("/")
            if bucket != BUCKET:
                return _error_answer("NoSuchBucket", self.path)
        if self.command == "PUT":
            damage = self._damage(body)
            if damage is not None:
                return _error_answer(damage, self.path)
            etag = {"ETag": _etag(body)}
            if "uploadId" not in query:
                store.store(key, body)
                return 200, etag, b""
            parts = store.upload(query["uploadId"])
            if parts is None:
                return _error_answer("NoSuchUpload", self.path)
            parts[int(query["partNumber"])] = body
            return 200, etag, b""
        if self.command == "POST":
            return self._perform_post(key, query, body)
        if self.command == "DELETE":
            if "uploadId" not in query:
                store.remove(key)
            return 204, {}, b""
        if not key:
            return 200, {}, _listing(store.objects, query.get("prefix", ""))
        return self._read(key)

    def _perform_post(self, key: str, query: dict[str, str], body: bytes) -> "_Answer":
        store = self._store
        if "delete" in query:
            names = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for name in names:
                store.remove(unescape(name))
            return _xml(
                "DeleteResult", *(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
            )
        if "uploads" in query:
            number = store.begin_upload()
            return _xml("InitiateMultipartUploadResult", Bucket=BUCKET, Key=key, UploadId=number)
        parts = store.upload(query.get("uploadId", ""))
        wanted = [int(n) for n in re.findall(rb"<PartNumber>(\d+)<", body)]
        if parts is None or any(n not in parts for n in wanted):
            return _error_answer("NoSuchUpload", self.path)
        data = b"".join(parts[n] for n in wanted)
        store.store(key, data)
        return _xml("CompleteMultipartUploadResult", Bucket=BUCKET, Key=key, ETag=_etag(data))

    def _damage(self, body: bytes) -> str | None:
        """Return the error of a body that is not what its header says."""
        digest = hashlib.sha256(body)
        signed = self.headers.get("x-amz-content-sha256", "")
        if len(signed) == 64 and signed != digest.hexdigest():
            return "XAmzContentSHA256Mismatch"
        checksum = self.headers.get("x-amz-checksum-sha256")
        if checksum is not None and base64.b64decode(checksum) != digest.digest():
            return "BadDigest"
        return None

    def _read(self, key: str) -> "_Answer":
        data = self._store.objects.get(key)
        if data is None:
            return _error_answer("NoSuchKey", self.path)
        headers = {
            "ETag": _etag(data),
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
            "Accept-Ranges": "bytes",
        }
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            return 200, headers, data
        first, last = asked.groups()
        begin = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        if begin >= len(data):
            return _error_answer("InvalidRange", self.path)
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        return 206, headers, data[begin:end]


# Status, headers, and content.
_Answer = tuple[int, dict[str, str], bytes]


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _xml(kind: str, *elements: str, **fields: str) -> _Answer:
    inner = "".join(elements)
    inner += "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{kind}>{inner}</{kind}>'
    return 200, {"Content-Type": "application/xml"}, text.encode()


def _error_answer(code: str, path: str) -> _Answer:
    _, headers, content = _xml("Error", Code=code, Message=f"This is {code}.", Resource=path)
    return _STATUS_CODES[code], headers, content


def _listing(objects: dict[str, bytes], prefix: str) -> bytes:
    entries = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>{escape(_etag(data))}</ETag><Size>{len(data)}</Size></Contents>"
        for key, data in sorted(objects.items())
        if key.startswith(prefix)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult>'
        f"<Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
    ).encode()


@contextmanager
def fault_server() -> Iterator[FaultServer]:
    """Run a server of the bucket `BUCKET`, whose faults the test chooses."""
    server = FaultServer()
    server.start()
    try:
        yield server
    finally:
        server.release()
        server.stop()
