"""The words for what became of a visit (`Reason` in crates/credential/src/outcome.rs), as the lines expect them."""

ACCEPTED = {"accepted"}
#: A first visit with Fast Open asks for a cookie.
ASKED = {"no-credential"}
#: With certificates: the server is asked whether it takes them, or the certificate is not there yet.
CERTIFYING = {"accepted", "capability-unknown", "no-credential", "not-requested"}
#: The SYN with option or data got no answer, and a plain one did.
LOST = {"syn-timed-out"}
#: A RST or an ICMP error answered it.
REFUSED = {"syn-refused"}
#: It was larger than the path passes.
NARROW = {"path-too-small"}
#: The option did not arrive, or its answer did not.
STRIPPED = {"option-stripped", "data-not-acknowledged", "peer-without-fast-open"}
#: The handshake was completed, and then nothing that carries data arrived.
SWALLOWED = {"syn-timed-out", "data-not-acknowledged", "unknown", "not-requested", "overlap-blackhole"}
#: First flights failed on this network, so none is sent.
REMEMBERED = {"failure-memory"}
#: The certificate is for another address than the server sees.
ELSEWHERE = {"address-mismatch"}
#: Another address of the server's was tried first.
SECOND = {"not-first-address"}
#: At a server that did not recognise three cookies in a row, and is asked for another one.
STALE = {"no-credential", "failure-memory", "stale-or-wrong-credential"}
#: With random loss.
ANY = ACCEPTED | ASKED | CERTIFYING | LOST | REMEMBERED | STRIPPED | SWALLOWED
