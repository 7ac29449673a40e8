"""moto's S3 server as a process of its own, and a proxy before it that counts what is fetched and breaks what it is told to."""

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

START_SECONDS = 60
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=AKIA-TEST/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
}


class Answer(NamedTuple):
    """What the proxy saw: a request, and how many bytes of body it answered."""

    method: str
    key: str
    status: int
    num_bytes: int


Fault = Callable[[str, str], int | str | Callable[[bytes], bytes] | None]
"""Method and path of a request to a status, "hang", "lose" (say yes, keep nothing), "cut", another body; `None`: pass it on."""


@contextmanager
def moto() -> Iterator[int]:
    """Start an S3 server on a free port of this machine; end it after."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _listens(port):
            assert server.poll() is None, "moto's server ended; is moto[s3] installed, with flask and flask-cors?"
            assert time.monotonic() < deadline, f"moto's server did not start in {START_SECONDS} s"
            time.sleep(0.05)
        yield port
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Proxy:
    """Between a client and the store: `fault` decides what goes wrong, `answers` is what went through."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        self.fault: Fault = lambda method, path: None
        self.answers: list[Answer] = []
        self.hung = threading.Event()  # someone waits for an answer
        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask the store itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            connection.request(method, path, body, headers or SIGNED)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def fetched(self, *names: str) -> int:
        """Count the bytes of all bodies that were fetched of objects with such names."""
        return sum(a.num_bytes for a in self.answers if a.method == "GET" and a.key.endswith(names))

    def puts(self) -> list[str]:
        return [a.key.partition("?")[0] for a in self.answers if a.method == "PUT" and a.status == 200]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:  # the client was killed
                    self.close_connection = True

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = proxy.fault(self.command, self.path)
                if fault == "hang":
                    proxy.hung.set()
                    proxy.released.wait()
                    self.close_connection = True
                elif isinstance(fault, int):
                    self.send(
                        fault,
                        {},
                        b"the token AKIA-SECRET has expired <Error><Code>Broken</Code><Message>AKIA-SECRET</Message></Error>",
                    )
                elif fault == "lose":
                    self.send(200, {"ETag": '"0"'}, b"")
                else:
                    sent = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "content-length")}
                    status, headers, data = proxy.ask(self.command, self.path, body, sent)
                    self.send(status, headers, fault(data) if callable(fault) else data, cut=fault == "cut")

            def send(self, status: int, headers: dict[str, str], data: bytes, cut: bool = False) -> None:
                proxy.answers.append(Answer(self.command, self.path, status, len(data)))
                self.send_response(status)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(data))
                kept = {k: v for k, v in headers.items() if k.lower() not in ("connection", "content-length", "date", "server")}
                for name, value in {**kept, "Content-Length": length}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data[: len(data) // 2] if cut else data)
                self.close_connection = cut

            def log_message(self, *args: object) -> None:
                pass

        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.answer)
        return Handler


def use(monkeypatch, proxy: Proxy, bucket: str) -> str:
    """Make a bucket, put into the environment how to reach it, and return its address."""
    proxy.ask("PUT", f"/{bucket}")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-TEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never-shown")
    monkeypatch.setenv("CKPTLAB_STORE_SECONDS", "20")
    return f"s3://{bucket}/runs/mine"
