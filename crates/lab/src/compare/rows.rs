//! The rows of the table.

use super::engine::{self, Kind};
use super::{Compare, ModelFailed, Row, Source, Words, formulas, inside, quic, tcpct, tls};

type Make = fn(&Compare) -> Result<Row, ModelFailed>;

/// In the order of the table.
pub const MAKE: [Make; 20] = [
    handshake,
    persistent,
    preconnect,
    spdy,
    ttcp,
    tcpct_row,
    rapid_restart,
    fast_open,
    asap,
    asap_inside,
    rsa_512,
    dnssec,
    udt,
    tls_plain,
    tls_fast_open,
    quic_one,
    quic_zero,
    quic_retry,
    quic_token,
    sealed,
];

const ENGINE: Source = Source::Run("engine");
const ADDRESS: &str = "the address";
const AGAIN: &str = "the connection ends; a new one";

fn row(name: &'static str, source: Source, numbers: super::Numbers) -> Row {
    Row { name, source, numbers, words: Words::default(), links: ADDRESS, moving: AGAIN, leaves_out: "" }
}

fn handshake(options: &Compare) -> Result<Row, ModelFailed> {
    let numbers = engine::numbers(Kind::Handshake, options.base())?;
    Ok(Row {
        words: Words::NONE,
        leaves_out: "an attacker sends a SYN without data; its SYN-ACK is repeated",
        ..row("TCP: handshake", ENGINE, numbers)
    })
}

fn persistent(options: &Compare) -> Result<Row, ModelFailed> {
    let numbers = engine::numbers(Kind::Persistent, options.base())?;
    Ok(Row {
        words: Words::NONE,
        links: "the connection",
        leaves_out: "later: on a connection that is still open; memory for idle connections; the idle restart of the window",
        ..row("TCP: persistent connection", ENGINE, numbers)
    })
}

fn preconnect(options: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        words: Words::spoofed("as TCP"),
        links: "the address, and what the browser guesses",
        leaves_out: "connections that nobody uses, and their memory at servers; the paper gives no number for the hits, only \"fairly low\" (8)",
        ..row("PRECONNECT", Source::Formula("later = 2 - hits"), formulas::preconnect(options))
    })
}

fn spdy(options: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        words: Words::spoofed("as TCP"),
        links: "all requests to the site",
        leaves_out: "head-of-line blocking after a loss; TLS' round trips, which SPDY had",
        ..row(
            "like SPDY: one connection",
            Source::Formula("later = 1 + 1/requests, mean"),
            formulas::spdy(options),
        )
    })
}

fn ttcp(options: &Compare) -> Result<Row, ModelFailed> {
    let numbers = engine::numbers(Kind::Ttcp, options.base())?;
    Ok(Row {
        words: Words { stolen: "as blind", ..Words::default() },
        links: "the address, and a counter over all connections",
        leaves_out: "CC.NEW, CC.ECHO and the shorter TIME-WAIT; spoofed: the victim has visited before; memory also grows by a count for each host, for good",
        ..row("T/TCP", Source::Run("engine, TAO in front"), numbers)
    })
}

fn tcpct_row(options: &Compare) -> Result<Row, ModelFailed> {
    let numbers = tcpct::numbers(options.base());
    if tcpct::rest(options.base()) != Some(2.0) {
        return Err(ModelFailed("TCPCT", "the rest of a response takes two round trips".into()));
    }
    Ok(Row {
        words: Words::NONE,
        leaves_out: "loss; what does not fit into the SYN-ACK takes 2 RTT; RFC 6013's own limits of data in SYN-ACKs (the model fills one packet)",
        ..row("TCPCT", Source::Run("small model"), numbers)
    })
}

fn rapid_restart(_: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        words: Words { copies: "not stated", ..Words::spoofed("not stated") },
        links: "the address, and the cookie of the last connection",
        leaves_out: "from the Fast Open paper's description (8): the control block of each connection is kept for good, at one server of a farm, so 1 becomes 2 at another; first: no data in TCPCT's SYN",
        ..row("Rapid-Restart", Source::Formula("first = moved = 2, later = 1"), formulas::rapid_restart())
    })
}

fn fast_open(options: &Compare) -> Result<Row, ModelFailed> {
    let numbers = engine::numbers(Kind::FastOpen, options.base())?;
    Ok(Row {
        links: "the address, and a cookie for each server",
        leaves_out: "plain cookies and no response limit; one-time cookies and other policies: `attack reflection`, `attack replay`",
        ..row("TCP Fast Open", ENGINE, numbers)
    })
}

fn asap(options: &Compare) -> Result<Row, ModelFailed> {
    let numbers = engine::numbers(Kind::Asap, options.base())?;
    Ok(Row {
        links: "the address, and the key until the client changes it",
        moving: "2, until a verifier has certified the new address",
        leaves_out: "the verifier: one exchange for each address, not for each server; CPU time for signatures (`steps`)",
        ..row("ASAP", ENGINE, numbers)
    })
}

fn asap_inside(options: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        words: Words { copies: "as ASAP", ..Words::spoofed("attack dns") },
        links: "as ASAP; the resolver sees sealed names",
        moving: "as at first contact, until proved again",
        leaves_out: "WITH the lookup of an address that is not cached, which the other rows need before (1 RTT more each); few networks let it through; attacks: `attack dns`",
        ..row("ASAP inside the lookup", Source::Run("engine, `lookup`"), inside::numbers(options.base())?)
    })
}

fn rsa_512(options: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        links: "the address, and the key until the client changes it",
        moving: "2, until a verifier has certified the new address",
        words: Words { blind: "as ASAP", stolen: "as TFO", memory: "as ASAP", copies: "", moved: "as ASAP" },
        leaves_out: "the thesis' 1 to 2 ms to sign (here 1.5) and 0.326 ms to verify (7.3) as round trips; RSA-512 can be factored within hours today, so who has a certificate can forge: a whole window; copies: a server that remembers requests (4.2.4)",
        ..row(
            "ASAP with RSA-1024/512",
            Source::Formula("1 + (sign + verify)/RTT"),
            formulas::rsa(options.base()),
        )
    })
}

fn dnssec(_: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        links: "the address, and its key in the DNS",
        words: Words { copies: "as ASAP", ..Words::spoofed("not stated") },
        moving: "the new network's zone must sign a key first",
        leaves_out: "the server's lookup of the key takes an RTT as to the client (uncached; more if the chain is not cached), later none; the thesis' ch. 8",
        ..row(
            "DNSSEC instead of a verifier",
            Source::Assertion("first = moved = 1 + lookup/RTT, later = 1"),
            formulas::dnssec(),
        )
    })
}

fn udt(_: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        words: Words { stolen: "not stated", ..Words::default() },
        leaves_out: "UDT's own recovery; spoofed, from draft-gg-udt-03: the first answer is as long as the first message, and nothing is kept before the cookie comes back; the first message holds no request; `transfer` runs it",
        ..row("like UDT", Source::Formula("cookie + handshake + request = 3"), formulas::udt())
    })
}

fn tls_plain(options: &Compare) -> Result<Row, ModelFailed> {
    let numbers = tls::numbers(false, options.base())?;
    Ok(Row {
        links: "the address; tickets are used once",
        words: Words { stolen: "none", memory: "as TCP", ..Words::default() },
        leaves_out: "later: with a ticket and early data",
        ..row("TLS 1.3 over TCP", Source::Run("rustls on the engine"), numbers)
    })
}

fn tls_fast_open(options: &Compare) -> Result<Row, ModelFailed> {
    let numbers = tls::numbers(true, options.base())?;
    Ok(Row {
        words: Words { memory: "as TFO", ..Words::default() },
        links: "the address, and the cookie; tickets are used once",
        leaves_out: "one server whose tickets are good once; without that memory, as in a farm, a copy runs (RFC 8446, 8)",
        ..row("TLS 1.3 over Fast Open", Source::Run("rustls on the engine"), numbers)
    })
}

const MIGRATES: &str = "an open connection continues (RFC 9000, 9)";
const QUIC: Source = Source::Run("quinn");

fn quic_row(name: &'static str, options: &Compare, early: bool, proved: bool) -> Result<Row, ModelFailed> {
    let numbers = quic::numbers(quic::Kind { early, proved }, options.base())?;
    Ok(Row { links: ADDRESS, moving: MIGRATES, ..row(name, QUIC, numbers) })
}

fn quic_one(options: &Compare) -> Result<Row, ModelFailed> {
    let leaves_out = "post-quantum key shares, which take two packets; HTTP/3; always encrypted";
    Ok(Row { words: Words::NONE, leaves_out, ..quic_row("QUIC", options, false, false)? })
}

fn quic_zero(options: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        words: Words { stolen: "as blind", ..Words::default() },
        links: "the address; tickets are used once",
        leaves_out: "one server whose tickets are good once; without that memory, as in a farm, a copy runs (RFC 8446, 8); a ticket proves no address (RFC 9000, 8.1)",
        ..quic_row("QUIC, 0-RTT", options, true, false)?
    })
}

fn quic_retry(options: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        links: "the address, and the token, used once",
        leaves_out: "first contact is answered with Retry, later the token of the last connection saves that",
        ..quic_row("QUIC, address token", options, false, true)?
    })
}

fn quic_token(options: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        links: "the address, and the token, used once",
        leaves_out: "as above, with 0-RTT",
        ..quic_row("QUIC, address token, 0-RTT", options, true, true)?
    })
}

fn sealed(_: &Compare) -> Result<Row, ModelFailed> {
    Ok(Row {
        links: "as ASAP or Fast Open, which carry it",
        words: Words::spoofed("as carrier"),
        leaves_out: "with the server's seal key: one round trip at first contact, encrypted; a server without a farm's other members (docs/sealed.md); run by `firstflight-lab tls` (docs/tls.md), not here",
        ..row(
            "sealed first flight",
            Source::Formula("1 in the SYN, moved = 2 behind a handshake"),
            formulas::sealed(),
        )
    })
}
