"""Connections of urllib3 whose first request is the first flight: ``pool.ConnectionCls = firstflight.urllib3.HTTPConnection``."""

import sys
from typing import Any

import urllib3.connection
import urllib3.exceptions

from . import Client, create_connection

# RFC 9110, section 9.2.1: they have no effects, so a server may run them twice.
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class HTTPConnection(urllib3.connection.HTTPConnection):
    """Connects when the first request is written, and sends its head as the first flight.

    A request with a safe method may run twice. Others wait for the handshake. ``source_address`` and proxies make an ordinary
    connection.
    """

    #: what is known of servers; None for that of the module
    client: "Client | None" = None

    _safe = False
    _flight = b""

    def putrequest(self, method: str, url: str, *args: Any, **kwds: Any) -> None:
        self._safe = method.upper() in _SAFE
        super().putrequest(method, url, *args, **kwds)

    def send(self, data: Any) -> None:
        if self.sock is None and isinstance(data, (bytes, bytearray)):
            self._flight = bytes(data)
            try:
                self.connect()
            finally:
                left, self._flight = self._flight, b""
            if not left:
                return
        super().send(data)

    def _new_conn(self) -> Any:
        if self.proxy or self._tunnel_host or self.source_address or not self._flight:
            return super()._new_conn()
        timeout = self.timeout
        try:
            sock = create_connection(
                (self._dns_host.strip("[]"), self.port),
                float(timeout) if isinstance(timeout, (int, float)) else None,
                first=self._flight,
                replayable=self._safe,
                client=self.client,
            )
        except TimeoutError as error:
            raise urllib3.exceptions.ConnectTimeoutError(self, f"Connection to {self.host} timed out.") from error
        except OSError as error:
            raise urllib3.exceptions.NewConnectionError(self, f"Failed to establish a new connection: {error}") from error
        for option in self.socket_options or ():
            sock.setsockopt(*option)
        self._flight = b""
        sys.audit("http.client.connect", self, self.host, self.port)
        return sock
