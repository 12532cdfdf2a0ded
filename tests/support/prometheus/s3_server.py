"""A small S3 server in memory: buckets, objects, listing, parts. It checks no signature."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class S3Server(ThreadingHTTPServer):
    """objects: ``bucket/key`` -> content. parts: those of incomplete uploads. writes: keys in the order of writing."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.writes: list[str] = []
        self.full = False

    @property
    def keys(self) -> list[str]:
        """Keys of the objects, without the empty ones that stand for folders."""
        return sorted(key for key in self.objects if not key.endswith("/"))

    @property
    def url(self) -> str:
        """Its base URL, as in ``AWS_ENDPOINT_URL``."""
        return f"http://127.0.0.1:{self.server_port}"

    def store(self, key: str, content: bytes) -> None:
        """Store an object."""
        self.objects[key] = content
        self.writes.append(key)


@contextmanager
def serving() -> Iterator[S3Server]:
    """A server that runs until the end of the block."""
    server = S3Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 2**16  # headers and body in one packet
    server: S3Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Log nothing."""

    def handle_expect_100(self) -> bool:
        """Tell the client immediately that it may send the body."""
        go_on = super().handle_expect_100()
        self.wfile.flush()
        return go_on

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    @property
    def _query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True)

    def do_GET(self) -> None:
        if "list-type" in self._query:
            return self._list(self._key.rstrip("/"))
        content = self.server.objects.get(self._key)
        if content is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not span:
            return self._answer(200, content)
        begin, end = int(span[1]), int(span[2] or len(content) - 1)
        return self._answer(206, content[begin : end + 1], {"Content-Range": f"bytes {begin}-{end}/{len(content)}"})

    def do_HEAD(self) -> None:
        content = self.server.objects.get(self._key)
        bucket = "/" not in self._key.rstrip("/")
        if content is None and not bucket:
            return self._answer(404, b"")
        return self._answer(200, content or b"", {"x-amz-bucket-region": "us-east-1"})

    def do_PUT(self) -> None:
        content = self._body()
        if self.server.full:
            return self._answer(507, b"<Error><Code>InsufficientStorage</Code><Message>full</Message></Error>")
        upload = self._query.get("uploadId")
        if upload:
            self.server.parts[upload[0]][int(self._query["partNumber"][0])] = content
        elif source := self.headers.get("x-amz-copy-source"):
            self.server.store(self._key, self.server.objects[unquote(source).lstrip("/")])
            return self._answer(200, b"<CopyObjectResult><ETag>x</ETag></CopyObjectResult>")
        else:
            self.server.store(self._key, content)
        return self._answer(200, b"", {"ETag": '"x"'})

    def do_POST(self) -> None:
        body = self._body()
        if "uploads" in self._query:
            upload = f"upload-{len(self.server.parts)}"
            self.server.parts[upload] = {}
            begun = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, begun.encode())
        if "delete" in self._query:
            for key in re.findall(rb"<Key>(.*?)</Key>", body):
                self.server.objects.pop(f"{self._key.rstrip('/')}/{key.decode()}", None)
            return self._answer(200, b"<DeleteResult/>")
        parts = self.server.parts.pop(self._query["uploadId"][0])
        self.server.store(self._key, b"".join(parts[number] for number in sorted(parts)))
        done = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
        return self._answer(200, done.encode())

    def do_DELETE(self) -> None:
        self.server.objects.pop(self._key, None)
        self._answer(204, b"")

    def _body(self) -> bytes:
        """The body, without the chunks of HTTP and of S3 around it."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b"".join(iter(self._chunk, b""))
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return _unchunked(body) if "aws-chunked" in self.headers.get("Content-Encoding", "") else body

    def _chunk(self) -> bytes:
        size = int(self.rfile.readline().partition(b";")[0], 16)
        content = self.rfile.read(size)
        self.rfile.readline()
        return content

    def _list(self, bucket: str) -> None:
        prefix, delimiter = (self._query.get(name, [""])[0] for name in ("prefix", "delimiter"))
        keys = [key.partition("/")[2] for key in sorted(self.server.objects) if key.startswith(f"{bucket}/{prefix}")]
        found: dict[str, str] = {}
        for key in keys:
            rest = key[len(prefix) :]
            folder = prefix + rest.partition(delimiter)[0] + delimiter if delimiter and delimiter in rest else ""
            size = len(self.server.objects[f"{bucket}/{key}"])
            found[folder or key] = (
                f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                if folder
                else f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
            )
        rows = "".join(found.values())
        about = f"<IsTruncated>false</IsTruncated><KeyCount>{len(found)}</KeyCount>"
        self._answer(200, f"<ListBucketResult>{about}{rows}</ListBucketResult>".encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _unchunked(body: bytes) -> bytes:
    """The content of a body in signed chunks: size in hex, then the bytes; trailers after the last."""
    parts: list[bytes] = []
    while body:
        line, _, body = body.partition(b"\r\n")
        size = int(line.partition(b";")[0] or b"0", 16)
        if not size:
            break
        parts.append(body[:size])
        body = body[size + 2 :]
    return b"".join(parts)
