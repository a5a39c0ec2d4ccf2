"""TCP in UDP through an address translator that repeatedly gives the client a new UDP port."""

import contextlib
import selectors
import socket
import threading
import time

import firstflight
from firstflight import check_no_panic, show
from net import url
from process import Process
from testbed import body, sha256

SERVER = {4: "127.0.0.1", 6: "::1"}
#: The address at which the client reaches the translator. The port is the server's, because it is also the inner
#: port.
INSIDE = {4: "127.0.0.2", 6: "fd77::2"}
PORT = 8080
#: Bytes per second from the server, so that a download takes some seconds.
RATE = 3_000_000


class Translator:
    """Relays datagrams of one client to the server from a port that `rebind` changes. Datagrams to earlier ports are
    dropped. To the server, the translator's address is the client's."""

    def __init__(self, ns, family):
        self.family = socket.AF_INET if family == 4 else socket.AF_INET6
        self.server = (SERVER[family], PORT)
        with ns.entered():
            self.inside = self.socket((INSIDE[family], PORT))
            # A socket belongs to the namespace in which it was created.
            self.ready = [self.socket((SERVER[family], 0)) for _ in range(40)]
        self.outside = self.ready.pop()
        self.client, self.over, self.rebindings = None, False, 0
        self.thread = threading.Thread(target=self.run)

    def socket(self, at):
        made = socket.socket(self.family, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        made.bind(at)
        made.setblocking(False)
        return made

    def rebind(self):
        if self.ready:
            self.outside, self.rebindings = self.ready.pop(), self.rebindings + 1

    def pass_on(self, outside):
        with contextlib.suppress(BlockingIOError):
            data, self.client = self.inside.recvfrom(65536)
            outside.sendto(data, self.server)
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            data = outside.recv(65536)
            time.sleep(len(data) / RATE)
            if self.client:
                self.inside.sendto(data, self.client)

    def run(self):
        while not self.over:
            outside = self.outside
            with selectors.DefaultSelector() as selector:
                for one in (self.inside, outside):
                    selector.register(one, selectors.EVENT_READ)
                while not self.over and self.outside is outside:
                    if selector.select(0.05):
                        self.pass_on(outside)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()
        for one in (self.inside, self.outside, *self.ready):
            one.close()


def test_udp_download_goes_on_when_the_client_gets_other_ports(testbed, family):
    root = testbed.root(large=8_000_000)
    ns = testbed.namespace("udp")
    ns.ip("addr", "add", f"{INSIDE[6]}/128", "dev", "lo", "nodad")
    at = f"{SERVER[family]}:{PORT}" if family == 4 else f"[{SERVER[family]}]:{PORT}"
    server = testbed.start(firstflight.Command(ns, "serve", "--udp", at, "--root", root, "--json-log"))
    with Translator(ns, family) as translator:
        target = url(INSIDE[family], PORT, "/large")
        client = testbed.start(Process([firstflight.BINARY, "get", "--json", "--udp", target], ns=ns))
        while client.popen.poll() is None:
            time.sleep(0.5)
            translator.rebind()
        assert client.wait(60) == 0, f"exit status of get: {client.text()}"
        assert translator.rebindings >= 3, f"only {translator.rebindings} other ports"
    check_no_panic(client)
    (record,) = [record for record in client.records() if "outcome" in record]
    assert (record["status"], record["sha256"]) == (200, sha256(body(root, "large"))), show(record)
    server.terminate()
    check_no_panic(server)
    (counters,) = [record for record in server.records() if record.get("event") == "counters"]
    assert counters["encapsulation_paths_moved"] >= 3, f"moves: {show(counters)}"
    assert counters["resets_sent"] == 0, "resets sent"
