"""Requests in the first packet of a connection (TCP Fast Open), for asyncio and for blocking programs.

A *first flight* is what a client sends before it has heard of the server. Its data rides in the SYN if the kernel has a cookie for the
server. Otherwise, and wherever the path or the server does not want it, the connection is an ordinary one. All sockets are the
system's own, in the program's own event loop. The package starts no thread.
"""

import asyncio as _asyncio
import errno as _errno
import functools as _functools
import os as _os
import select as _select
import socket as _socket
import time as _time
from typing import (
    TYPE_CHECKING,
    Any,
    Awaitable,
    Callable,
    List,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

from . import _native

if TYPE_CHECKING:
    from typing import Protocol

    class HasFileno(Protocol):
        def fileno(self) -> int: ...


__all__ = [
    "Client",
    "Host",
    "Outcome",
    "confirmed",
    "create_connection",
    "host_check",
    "open_connection",
    "outcome",
    "prepare",
    "set_keys",
    "start_server",
]

Connection = Union["HasFileno", _asyncio.StreamWriter, _asyncio.BaseTransport, int]
Connected = Callable[[_asyncio.StreamReader, _asyncio.StreamWriter], Optional[Awaitable[None]]]

# Data of a first flight that the kernel takes at once is far below this.
_MOST = 2**31 - 1
# Between two questions whether a handshake is complete, seconds.
_ASK = 0.001


class Outcome(NamedTuple):
    """What became of a connection's first flight."""

    #: "accepted", "accepted-part", "accepted-reply-stripped", "handshake", or "unknown" as long as there is no answer
    outcome: str
    #: why it was not accepted, or what was unusual: "no-credential"; "none" if there is nothing to say
    reason: str
    #: whether the data, or a part of it, skipped the handshake
    accepted: bool
    #: whether the handshake is complete
    confirmed: bool
    #: server: how many bytes at the beginning of the stream arrived in the SYN
    early_bytes: int
    #: smoothed round-trip time, seconds; 0.0 before the first measurement
    rtt: float
    #: segments sent again since the connection began, SYNs among them
    retransmissions: int

    @property
    def text(self) -> str:
        """A sentence for the reason; empty if there is none."""
        return _native.reason_text(self.reason)


class Host(NamedTuple):
    """What the network namespace lets TCP do (``net.ipv4.tcp_fastopen``)."""

    #: whether connects may use Fast Open
    client: bool
    #: whether listeners may
    server: bool


class Client:
    """What is known of servers: where first flights failed, round-trip times, addresses that lost a race.

    It is in memory only, and may be shared by loops and threads. The functions of this module use one of their own unless they get
    another. ``network`` is an id of 16 bytes for the network that the host is on: what is learnt on one is not used on
    another. ``plain=True`` makes all connects ordinary ones, as ``FIRSTFLIGHT=off`` in the environment does.
    """

    def __init__(self, *, network: Optional[bytes] = None, plain: bool = False) -> None:
        self._native = _native.Client(network, plain)

    def network_changed(self, network: Optional[bytes] = None) -> None:
        """Reports that the host has moved to the network with this id, or to one that is not known."""
        self._native.network_changed(network)


_shared = Client()


def host_check() -> Host:
    """What the system allows: the first question if every outcome is a handshake. :raises OSError: without Fast Open."""
    return Host(*_native.host_check())


def _fileno(connection: Connection) -> int:
    if isinstance(connection, int):
        return connection
    info = getattr(connection, "get_extra_info", None)
    if info is not None:
        connection = info("socket")
        if connection is None:
            raise OSError(_errno.ENOTCONN, "not connected, or the connection is over")
    fileno: Callable[[], int] = getattr(connection, "fileno")
    return fileno()


def outcome(connection: Connection, *, server: bool = False) -> Outcome:
    """What became of the first flight of a connection, whoever made it.

    ``connection`` is a socket, a writer or transport of asyncio, or a descriptor. ``server`` says that a listener accepted it. Then call
    this once, soon after that: the kernel gives the headers of a SYN once. :raises OSError: if it is no connection of TCP.
    """
    return Outcome(*_native.fd_outcome(_fileno(connection), server))


async def confirmed(connection: Connection) -> None:
    """Server: waits until the client's ACK has completed the handshake.

    Until then the network may have made a copy of the request. A server that must not run it twice waits. A descriptor must stay open
    meanwhile: another connection may get its number.
    :raises ConnectionError: if the connection is over.
    """
    is_closing: Callable[[], bool] = getattr(connection, "is_closing", lambda: False)
    while True:
        # Asked in each turn: a connection that asyncio closed gives its number to the next one that the program accepts.
        fileno = -1 if is_closing() else _fileno(connection)
        known = None if fileno < 0 else _native.confirmed(fileno)
        if known:
            return
        if known is None:
            raise ConnectionAbortedError(_errno.ECONNABORTED, "the connection is over")
        await _asyncio.sleep(_ASK)


def prepare(listener: "HasFileno", *, queue: int = 256, keys: bytes = b"") -> bool:
    """Lets a listening socket grant cookies, and take data in the SYNs of clients that have one.

    At most ``queue`` such connections wait for their ACK at a time. ``keys`` are those of the cookies: 16 bytes, or 32 with a backup
    key; by default the network namespace's. Returns False if ``net.ipv4.tcp_fastopen`` lacks the bit 2: then every handshake is an
    ordinary one.
    """
    return _native.prepare(listener.fileno(), queue, keys)


def set_keys(listener: "HasFileno", keys: bytes) -> None:
    """Replaces the keys of a listener's cookies, from the next SYN on."""
    _native.set_keys(listener.fileno(), keys)


def _check(first: bytes, replayable: Optional[bool]) -> None:
    if first and replayable is None:
        raise TypeError("say replayable=True or replayable=False: may a server run the first flight twice?")
    if len(first) > _MOST:
        raise ValueError("the first flight is too long")


@_functools.lru_cache(maxsize=256)
def _literal(host: str, port: int) -> Optional[List[Tuple[str, int, int]]]:
    for family in (_socket.AF_INET, _socket.AF_INET6):
        try:
            _socket.inet_pton(family, host)
            return [(host, port, 0)]
        except OSError:
            pass
    return None


def _addresses(found: List[Any]) -> List[Tuple[str, int, int]]:
    return [(at[0], at[1], at[3] if len(at) == 4 else 0) for *_, at in found]


def _fail(error: BaseException, connecting: _native.Connecting, replayable: Optional[bool]) -> BaseException:
    if isinstance(error, OSError):
        # A server may have run what must not run twice.
        setattr(error, "maybe_delivered", not replayable and connecting.maybe_delivered())
    # The error has the frames that have the connect.
    connecting.close()
    return error


def _taken(connecting: _native.Connecting) -> Tuple[_socket.socket, int]:
    fileno, sent, ipv6 = connecting.take()
    # Named, the kernel need not be asked for them.
    family = _socket.AF_INET6 if ipv6 else _socket.AF_INET
    return _socket.socket(family, _socket.SOCK_STREAM, _socket.IPPROTO_TCP, fileno), sent


def _wake(waiter: "_asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _race(loop: _asyncio.AbstractEventLoop, connecting: _native.Connecting) -> None:
    # A server on this host has answered as soon as the SYN has left.
    wanted = connecting.step() and connecting.step()
    while wanted is not None:
        sockets, timeout = wanted
        waiter: "_asyncio.Future[None]" = loop.create_future()
        for fileno in sockets:
            loop.add_writer(fileno, _wake, waiter)
        timer = None if timeout is None else loop.call_later(timeout, _wake, waiter)
        try:
            await waiter
        finally:
            # Before the next step, which may close them.
            for fileno in sockets:
                loop.remove_writer(fileno)
            if timer is not None:
                timer.cancel()
        wanted = connecting.step()


async def _connect(
    loop: _asyncio.AbstractEventLoop,
    host: str,
    port: int,
    first: bytes,
    replayable: Optional[bool],
    client: Optional[Client],
) -> Tuple[_socket.socket, int]:
    _check(first, replayable)
    addresses = _literal(host, port)
    if addresses is None:
        addresses = _addresses(await loop.getaddrinfo(host, port, type=_socket.SOCK_STREAM))
    connecting = (client or _shared)._native.begin(addresses, first, bool(replayable))
    try:
        await _race(loop, connecting)
    except BaseException as error:
        raise _fail(error, connecting, replayable)
    return _taken(connecting)


async def open_connection(
    host: str,
    port: int,
    *,
    first: bytes = b"",
    replayable: Optional[bool] = None,
    client: Optional[Client] = None,
    limit: int = 2**16,
    **kwds: Any,
) -> Tuple[_asyncio.StreamReader, _asyncio.StreamWriter]:
    """Like :func:`asyncio.open_connection`, and sends ``first`` as the first flight.

    ``replayable`` says whether a server may run it twice, because the network can make copies of a SYN. Only data that may rides in
    the SYN; other data waits for the handshake. With ``first``, it must be said. Other arguments are those of
    :meth:`loop.create_connection`, as ``ssl``; with ``ssl`` there is no first flight.

    :raises OSError: that of the first attempt. Its attribute ``maybe_delivered`` says that a server may have run data that must not
        run twice.
    """
    if kwds.get("ssl") and first:
        raise ValueError("with ssl, the first bytes are those of TLS")
    loop = _asyncio.get_running_loop()
    sock, sent = await _connect(loop, host, port, first, replayable, client)
    try:
        reader = _asyncio.StreamReader(limit=limit, loop=loop)
        protocol = _asyncio.StreamReaderProtocol(reader, loop=loop)
        if kwds.get("ssl"):
            kwds.setdefault("server_hostname", host)
        transport, _ = await loop.create_connection(lambda: protocol, sock=sock, **kwds)
    except BaseException:
        sock.close()
        raise
    writer = _asyncio.StreamWriter(transport, protocol, reader, loop)
    if sent < len(first):
        writer.write(first[sent:])
    return reader, writer


def create_connection(
    address: Tuple[str, int],
    timeout: Optional[float] = None,
    *,
    first: bytes = b"",
    replayable: Optional[bool] = None,
    client: Optional[Client] = None,
) -> _socket.socket:
    """Like :func:`socket.create_connection`, and sends ``first`` as the first flight, all of it.

    ``timeout`` is in seconds, for the connect and for sending; the socket has it afterwards, too. ``replayable`` and errors
    are those of :func:`open_connection`. :raises TimeoutError: when time is up.
    """
    _check(first, replayable)
    host, port = address
    addresses = _literal(host, port)
    if addresses is None:
        addresses = _addresses(_socket.getaddrinfo(host, port, type=_socket.SOCK_STREAM))
    deadline = None if timeout is None else _time.monotonic() + timeout
    connecting = (client or _shared)._native.begin(addresses, first, bool(replayable))
    try:
        _wait(connecting, deadline)
    except BaseException as error:
        raise _fail(error, connecting, replayable)
    sock, sent = _taken(connecting)
    try:
        # A deadline that is over is no socket that does not block.
        left = None if deadline is None else max(deadline - _time.monotonic(), 1e-6)
        sock.settimeout(left)
        if sent < len(first):
            sock.sendall(first[sent:])
        sock.settimeout(timeout)
    except BaseException:
        sock.close()
        raise
    return sock


def _wait(connecting: _native.Connecting, deadline: Optional[float]) -> None:
    # A server on this host has answered as soon as the SYN has left.
    wanted = connecting.step() and connecting.step()
    while wanted is not None:
        sockets, timeout = wanted
        now = _time.monotonic()
        if deadline is not None:
            if now >= deadline:
                raise TimeoutError(_errno.ETIMEDOUT, _os.strerror(_errno.ETIMEDOUT))
            timeout = deadline - now if timeout is None else min(timeout, deadline - now)
        poll = _select.poll()
        for fileno in sockets:
            poll.register(fileno, _select.POLLOUT)
        # Rounded up: time that is not over would be asked for again and again.
        poll.poll(None if timeout is None else int(timeout * 1000) + 1)
        wanted = connecting.step()


async def start_server(
    client_connected_cb: Connected,
    host: Optional[str] = None,
    port: Optional[int] = None,
    *,
    queue: int = 256,
    keys: bytes = b"",
    start_serving: bool = True,
    **kwds: Any,
) -> _asyncio.AbstractServer:
    """Like :func:`asyncio.start_server`, with listeners that take first flights: see :func:`prepare`.

    A connection with an accepted first flight can come before its handshake is complete: see :func:`confirmed`.
    """
    server = await _asyncio.start_server(client_connected_cb, host, port, start_serving=False, **kwds)
    try:
        for listener in server.sockets:
            prepare(listener, queue=queue, keys=keys)
        if start_serving:
            await server.start_serving()
    except BaseException:
        server.close()
        raise
    return server
