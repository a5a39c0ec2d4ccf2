"""Libraries that take a connection, or a class that makes it."""

import asyncio
import http.server
import shutil
import socket
import socketserver
import subprocess
import threading

import firstflight
import pytest


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self, handler):
        self.outcomes = []
        super().__init__(("127.0.0.1", 0), handler)
        assert firstflight.prepare(self.socket)

    def get_request(self):
        sock, address = super().get_request()
        self.outcomes.append(firstflight.outcome(sock, server=True))
        return sock, address


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server(Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_urllib3_sends_a_get_in_the_syn_and_a_post_after_the_handshake(server):
    urllib3 = pytest.importorskip("urllib3")
    import firstflight.urllib3

    class Pool(urllib3.HTTPConnectionPool):
        ConnectionCls = firstflight.urllib3.HTTPConnection

    for method, early in (("GET", None), ("GET", True), ("POST", False), ("GET", True)):
        with Pool("127.0.0.1", server.server_port, timeout=60) as pool:
            response = pool.request(method, "/", body=b"body" if method == "POST" else None)
            assert response.data == b"hello\n"
            # The same connection again.
            assert pool.request("GET", "/").data == b"hello\n"
            assert pool.num_connections == 1
        if early is not None:
            assert (server.outcomes[-1].early_bytes > 0) is early
    assert len(server.outcomes) == 4
    with Pool("127.0.0.1", 1, retries=False) as pool, pytest.raises(urllib3.exceptions.NewConnectionError):
        pool.request("GET", "/")


def test_http_client_takes_a_socket(server):
    import http.client

    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(2):
        sock = firstflight.create_connection(("127.0.0.1", server.server_port), 60, first=request, replayable=True)
        response = http.client.HTTPResponse(sock)
        response.begin()
        assert response.read() == b"hello\n"
        response.close()
        sock.close()
    assert server.outcomes[-1].early_bytes == len(request)


def test_dnspython_reads_the_answer_to_a_query_in_the_syn():
    dns = pytest.importorskip("dns.message")
    import dns.query

    listener = socket.create_server(("127.0.0.1", 0))
    assert firstflight.prepare(listener)
    outcomes = []

    def answer():
        for _ in range(2):
            sock, _ = listener.accept()
            outcomes.append(firstflight.outcome(sock, server=True))
            query, _ = dns.query.receive_tcp(sock)
            response = dns.message.make_response(query)
            dns.query.send_tcp(sock, response)
            sock.close()

    thread = threading.Thread(target=answer)
    thread.start()
    query = dns.message.make_query("www.example.com", "A")
    wire = query.to_wire(prepend_length=True)
    for _ in range(2):
        sock = firstflight.create_connection(listener.getsockname(), 60, first=wire, replayable=True)
        response, _ = dns.query.receive_tcp(sock)
        assert query.is_response(response)
        sock.close()
    thread.join()
    listener.close()
    assert outcomes[1].early_bytes == len(wire)


def test_redis_logs_in_by_the_syn(run):
    """A driver for asyncio: its first command is the first flight."""
    redis = pytest.importorskip("redis.asyncio")
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server")

    class Connection(redis.Connection):
        """The driver begins with HELLO, which may run twice."""

        async def _connect(self):
            self.hello = b"".join(self.pack_command("HELLO", self.protocol))
            self._reader, self._writer = await firstflight.open_connection(
                self.host, self.port, first=self.hello, replayable=True
            )

        async def send_packed_command(self, command, check_health=True):
            joined = command if isinstance(command, bytes) else b"".join(command)
            if joined == self.hello:
                self.hello = None
            else:
                await super().send_packed_command(command, check_health)

    async def main():
        server = subprocess.Popen(
            ["redis-server", "--port", "7777", "--bind", "127.0.0.1", "--save", ""], stdout=subprocess.DEVNULL
        )
        try:
            for _ in range(2):
                pool = redis.ConnectionPool(connection_class=Connection, host="127.0.0.1", port=7777, protocol=3)
                client = redis.Redis(connection_pool=pool)
                for _ in range(200):
                    try:
                        assert await client.set("key", "value")
                        break
                    except (ConnectionError, redis.ConnectionError):
                        await asyncio.sleep(0.05)
                assert await client.get("key") == b"value"
                writer = (await pool.get_connection())._writer
                assert firstflight.outcome(writer).confirmed
                await client.aclose()
                await pool.disconnect()
        finally:
            server.terminate()
            server.wait()

    run(main())
