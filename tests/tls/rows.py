"""The rows of the table: what is visited, how many round trips it takes, and what both ends must say."""

WAYS = ("kernel", "ip", "udp")
PORT, WRONG_CERTIFICATE, FOREIGN, NGINX = 443, 444, 446, 8443
#: The ports of the libraries' servers.
OURS = (PORT, FOREIGN)


class Row:
    """A visit with the libraries of this project. `trips` are round trips to the first byte of the response."""

    def __init__(self, name, trips, *, credential="none", ticket=False, once=False, seal="", port=PORT, ways=WAYS,
                 bound=None, connections=1, limited=False):  # fmt: skip
        self.name, self.trips, self.ways, self.port = name, trips, ways, port
        self.credential, self.ticket, self.once, self.seal = credential, ticket, once, seal
        #: The most round trips that are allowed, whatever the machine measures.
        self.bound, self.connections = bound, connections
        #: The certificates may not fit into what the server sends before the client's ACK, so more trips are no fault.
        self.limited = limited

    def visit(self, way, number):
        """What the client is told."""
        words = {name: getattr(self, name) for name in ("credential", "ticket", "once", "seal", "port")}
        return {**words, "way": way, "path": f"/{way}-{self.port}-{number}", "settle_ms": 20}

    @property
    def rides(self):
        """The first flight is in the SYN, and the server takes it."""
        return self.credential in ("cookie", "certificate")

    @property
    def early(self):
        """The request runs before the client's Finished."""
        if self.seal == "right" and self.port in OURS:
            return not self.once or self.credential == "certificate"
        return self.ticket and not self.once

    def expected(self, way):
        """What the client and the server say, by the names of the record."""
        if self.port == WRONG_CERTIFICATE:
            return {"error": "the server's certificate is not valid: no trusted authority has signed it"}
        sealed = self.seal == "right" and self.port in OURS
        seals = {"": None, "none": "no-key", "stale": "stale-key"}
        one = "one-round-trip" if self.rides and self.early else "transport-refused"
        words = {
            "status": "200",
            "by": way,
            "outcome": "accepted" if self.rides else "handshake",
            "tls": "resumed" if self.ticket else "full",
            # A SYN on IP holds no hybrid key exchange. Behind a REJECT the connection is open.
            "hybrid": way == "udp" or self.seal == "stale",
            "early_data": "accepted" if self.ticket and not self.once else "none",
            "seal": seals.get(self.seal, one if sealed else "transport-refused"),
        }
        if self.port in OURS:
            words["server early"] = self.early
            words["server block"] = self.credential == "certificate"
            words["server runs"] = 1
            words["server sealed"] = sealed
        return words


#: Rows of ASAP: the kernel's TCP has no certificates.
CERTIFIED = {"credential": "certificate", "ways": ("ip", "udp")}
COOKIE = {"credential": "cookie"}

ROWS = (
    Row("TLS: neither cookie nor ticket", 3),
    Row("TLS: cookie, no ticket", 2, **COOKIE),
    Row("TLS: certificate, no ticket", 2, **CERTIFIED),
    Row("TLS: cookie and ticket, early data", 1, ticket=True, bound=1.05, **COOKIE),
    Row("TLS: certificate and ticket, early data", 1, ticket=True, bound=1.05, **CERTIFIED),
    Row("TLS: cookie and ticket, must not run twice", 2, ticket=True, once=True, **COOKIE),
    Row("sealed: first contact, certificate", 1, seal="right", bound=1.05, **CERTIFIED),
    Row("sealed: first contact, certificate by a foreign verifier", 1, seal="right", port=FOREIGN, limited=True, **CERTIFIED),
    Row("sealed: certificate, must not run twice", 1, seal="right", once=True, bound=1.05, **CERTIFIED),
    Row("sealed: cookie", 1, seal="right", bound=1.05, **COOKIE),
    Row("sealed: cookie, must not run twice", 2, seal="right", once=True, **COOKIE),
    Row("sealed: ordinary handshake", 2, seal="right"),
    Row("sealed: ordinary handshake, must not run twice", 3, seal="right", once=True),
    Row("sealed: credential refused", 2, seal="right", credential="refused"),
    Row("sealed: credential refused, must not run twice", 3, seal="right", once=True, credential="refused"),
    Row("sealed: cookie, no key", 2, seal="none", **COOKIE),
    Row("sealed: cookie, stale key (REJECT)", 3, seal="stale", **COOKIE),
    Row("sealed: cookie, wrong certificate (error)", 1, seal="right", port=WRONG_CERTIFICATE, **COOKIE),
    Row("nginx: TLS, neither cookie nor ticket", 3, port=NGINX, ways=("kernel",)),
    Row("nginx: TLS, cookie and ticket, early data", 1, ticket=True, bound=1.05, port=NGINX, ways=("kernel",), **COOKIE),
    Row("nginx: sealed, which it does not know", 3, seal="right", port=NGINX, ways=("kernel",), connections=2, **COOKIE),
)  # fmt: skip
