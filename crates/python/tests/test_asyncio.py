"""The API in loops of asyncio and of uvloop."""

import asyncio
import errno
import os
import socket
import subprocess
import threading

import firstflight
import pytest

REQUEST = b"request"


class Peer:
    """A server in the same loop, which echoes until the client has sent everything, and keeps outcomes."""

    def __init__(self, wait=False, delay=0):
        self.outcomes, self.wait, self.delay = [], wait, delay

    async def answer(self, reader, writer):
        self.outcomes.append(firstflight.outcome(writer, server=True))
        if self.wait:
            await firstflight.confirmed(writer)
            assert firstflight.outcome(writer, server=True).confirmed
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()
        await writer.wait_closed()

    async def start(self, host="127.0.0.1"):
        self.server = await firstflight.start_server(self.answer, host, 0)
        return self.server.sockets[0].getsockname()[1]


def sockets():
    """The descriptors of sockets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.append(name)
        except FileNotFoundError:
            pass
    return sorted(found)


async def echo(reader, writer):
    writer.write_eof()
    got = await reader.read()
    writer.close()
    await writer.wait_closed()
    return got


def test_the_second_first_flight_rides_in_the_syn_at_both_ends(run):
    async def main():
        peer, client = Peer(wait=True), firstflight.Client()
        port = await peer.start()
        for accepted in (False, True):
            reader, writer = await firstflight.open_connection(
                "127.0.0.1", port, first=REQUEST, replayable=True, client=client
            )
            ours = firstflight.outcome(writer)
            assert ours.accepted is accepted and ours.confirmed
            assert await echo(reader, writer) == REQUEST
        first, second = peer.outcomes
        assert (first.outcome, first.early_bytes) == ("handshake", 0)
        assert (second.outcome, second.early_bytes) == ("accepted", len(REQUEST))
        peer.server.close()

    # Cookies are the namespace's. An address of its own has none yet.
    forget_cookies()
    run(main())


def forget_cookies():
    subprocess.run(["ip", "tcp_metrics", "flush"], check=True, capture_output=True)


def test_data_that_must_not_run_twice_waits_for_the_handshake(run):
    async def main():
        peer = Peer()
        port = await peer.start()
        for _ in range(2):
            pair = await firstflight.open_connection("127.0.0.1", port, first=REQUEST, replayable=False)
            assert await echo(*pair) == REQUEST
        assert [one.early_bytes for one in peer.outcomes] == [0, 0]
        peer.server.close()

    run(main())


def test_long_first_flights_and_names_and_ipv6(run):
    async def main():
        long = os.urandom(300_000)
        for at, host, family in (("127.0.0.1", "localhost", socket.AF_INET), ("::1", "::1", socket.AF_INET6)):
            peer = Peer()
            port = await peer.start(at)
            reader, writer = await firstflight.open_connection(host, port, first=long, replayable=True)
            assert writer.get_extra_info("socket").family == family
            assert await echo(reader, writer) == long
        # Without a first flight.
        pair = await firstflight.open_connection("::1", port, limit=1000)
        pair[1].write(b"x")
        assert await echo(*pair) == b"x"
        peer.server.close()

    run(main())


def test_errors_have_the_systems_numbers_and_leave_nothing_open(run):
    async def main():
        before = sockets()
        with pytest.raises(ConnectionRefusedError) as refused:
            await firstflight.open_connection("127.0.0.1", 1, first=REQUEST, replayable=True)
        assert refused.value.errno == errno.ECONNREFUSED
        with pytest.raises(ConnectionRefusedError) as refused:
            await firstflight.open_connection("127.0.0.1", 1, first=REQUEST, replayable=False)
        assert refused.value.maybe_delivered is False
        with pytest.raises(socket.gaierror):
            await firstflight.open_connection("no.such.name.invalid", 1)
        with pytest.raises(TypeError, match="replayable"):
            await firstflight.open_connection("127.0.0.1", 1, first=REQUEST)
        with pytest.raises(ValueError, match="TLS"):
            await firstflight.open_connection("127.0.0.1", 1, first=REQUEST, replayable=True, ssl=True)
        # The loop of an earlier test may close some.
        assert set(sockets()) <= set(before)

    run(main())


def test_a_connect_that_is_cancelled_closes_its_sockets(run):
    async def main():
        # A listener with a full queue: its SYNs have no answer.
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            with socket.create_connection(full.getsockname()):
                before = sockets()
                task = asyncio.ensure_future(firstflight.open_connection("127.0.0.1", full.getsockname()[1]))
                for _ in range(100):
                    await asyncio.sleep(0.001)
                    if sockets() != before:
                        break
                assert not task.done()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert sockets() == before

    run(main())


def test_no_thread_is_started(run):
    async def main():
        peer, before = Peer(), len(os.listdir("/proc/self/task"))
        port = await peer.start()
        pair = await firstflight.open_connection("127.0.0.1", port, first=REQUEST, replayable=True)
        assert await echo(*pair) == REQUEST
        assert len(os.listdir("/proc/self/task")) == before
        peer.server.close()

    run(main())


def test_blocking_connects_share_a_client_with_threads():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    assert firstflight.prepare(listener)
    port, client, results = listener.getsockname()[1], firstflight.Client(), []

    def visit():
        sock = firstflight.create_connection(("127.0.0.1", port), 60, first=REQUEST, replayable=True, client=client)
        assert sock.gettimeout() == 60
        results.append(firstflight.outcome(sock))
        sock.close()

    threads = [threading.Thread(target=visit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in threads:
        sock, _ = listener.accept()
        got = b""
        while len(got) < len(REQUEST):
            got += sock.recv(100)
        assert got == REQUEST
        sock.close()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(isinstance(one, firstflight.Outcome) for one in results)
    firstflight.set_keys(listener, bytes(16))
    with pytest.raises(ValueError):
        firstflight.set_keys(listener, bytes(15))
    with pytest.raises(ConnectionRefusedError):
        listener.close()
        firstflight.create_connection(("127.0.0.1", port), 60)


def test_time_that_is_up_is_a_timeout():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            with pytest.raises(TimeoutError):
                firstflight.create_connection(full.getsockname(), 0.1)


def test_a_plain_client_makes_ordinary_connections(run):
    async def main():
        peer, client = Peer(), firstflight.Client(plain=True)
        port = await peer.start()
        for _ in range(2):
            pair = await firstflight.open_connection("127.0.0.1", port, first=REQUEST, replayable=True, client=client)
            assert await echo(*pair) == REQUEST
        assert not any(one.accepted for one in peer.outcomes)
        client.network_changed(bytes(16))
        with pytest.raises(ValueError):
            firstflight.Client(network=bytes(3))
        peer.server.close()

    run(main())


def test_what_is_no_connection_is_an_error():
    with socket.socket(socket.AF_UNIX) as sock:
        with pytest.raises(OSError):
            firstflight.outcome(sock)
    with pytest.raises(OSError) as closed:
        firstflight.outcome(sock)
    assert closed.value.errno == errno.EBADF
    with socket.socket() as sock:
        assert firstflight.outcome(sock).outcome == "unknown"
    assert firstflight.host_check() == (True, True)
    assert firstflight.Outcome("handshake", "no-credential", False, True, 0, 0.0, 0).text


def test_confirmed_asks_about_no_other_connection(run, monkeypatch):
    """A connection that ends gives its number to the next one, which may be confirmed: its client sent another request."""
    native = firstflight._native
    ask = native.confirmed
    asked = []

    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours, other = (socket.create_connection(listener.getsockname()) for _ in range(2))
            number = ours.fileno()

            def ends_meanwhile(fileno):
                asked.append(fileno)
                if len(asked) > 1:
                    return ask(fileno)
                ours.close()
                os.dup2(other.fileno(), number)
                return False

            monkeypatch.setattr(native, "confirmed", ends_meanwhile)
            with pytest.raises(ConnectionAbortedError):
                await firstflight.confirmed(ours)
            assert asked == [number]
            os.close(number)
            other.close()

    run(main())
