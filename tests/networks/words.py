"""The words for the outcome of a visit (`Reason` in crates/credential/src/outcome.rs) that the lines expect."""

ACCEPTED = {"accepted"}
#: A first visit with Fast Open requests a cookie.
ASKED = {"no-credential"}
#: With certificates: the server is asked whether it accepts them, or the certificate has not arrived yet.
CERTIFYING = {"accepted", "capability-unknown", "no-credential", "not-requested"}
#: The SYN with option or data got no answer, but a plain one did.
LOST = {"syn-timed-out"}
#: A RST or an ICMP error answered the SYN.
REFUSED = {"syn-refused"}
#: The SYN was too large for the path.
NARROW = {"path-too-small"}
#: The option did not arrive, or its answer did not.
STRIPPED = {"option-stripped", "data-not-acknowledged", "peer-without-fast-open"}
#: The handshake was completed, but after that nothing that carries data arrived.
SWALLOWED = {"syn-timed-out", "data-not-acknowledged", "unknown", "not-requested", "overlap-blackhole"}
#: First flights failed on this network, so none is sent.
REMEMBERED = {"failure-memory"}
#: The certificate is for another address than the server sees.
ELSEWHERE = {"address-mismatch"}
#: Another address of the server was tried first.
SECOND = {"not-first-address"}
#: At a server that did not recognise three cookies in a row. It is asked for another cookie.
STALE = {"no-credential", "failure-memory", "stale-or-wrong-credential"}
#: Any outcome that is possible with random loss.
ANY = ACCEPTED | ASKED | CERTIFYING | LOST | REMEMBERED | STRIPPED | SWALLOWED
