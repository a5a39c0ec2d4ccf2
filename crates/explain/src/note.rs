//! Further observations about a first flight, in addition to its outcome.

use super::offered::BlockContent;
use super::sealed::{FlightAnswer, Sealed};
use crate::time::rfc3339;
use firstflight_wire::asap::{Status, VerifierId};
use firstflight_wire::icmp::IcmpErrorKind;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

/// An observation about one connection. `Display` gives a clause for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The SYN's cookie has an invalid length, bytes.
    IllegalCookie(usize),
    /// The SYN-ACK's cookie has an invalid length, bytes.
    IllegalGrant(usize),
    /// The SYN-ACK has a cookie that was not requested.
    UnaskedCookie,
    /// The SYN has data but no option.
    DataWithoutOption,
    /// The SYN asks whether the server understands ASAP.
    Probe,
    /// The SYN-ACK does not answer the probe.
    ProbeIgnored,
    /// The SYN with the probe got no answer, but a plain SYN after it did.
    ProbeLost,
    /// The SYN shows a certificate.
    Certificate(BlockContent),
    /// The SYN announces a credential block that cannot be read.
    UnreadableBlock,
    /// ASAP's option in the SYN is malformed, or of another version.
    UnreadableOption,
    /// The SYN-ACK's reply to ASAP's option.
    Reply(Status),
    /// The SYN-ACK's reply is malformed, or of another version.
    UnreadableReply,
    /// The reply's tag, given here, differs from the request's.
    ReplyForAnother([u8; 2]),
    /// The SYN-ACK replies to a SYN without ASAP's option.
    UnaskedReply,
    /// The server's clock, Unix seconds.
    ServerTime(u32),
    /// A verifier that the server trusts.
    Trusts(VerifierId),
    /// The client's address as the server sees it.
    Sees(Ipv4Addr),
    /// The reply has the proof of a server that was never contacted.
    Proof,
    /// The same SYN was captured with and without option and data.
    WithAndWithout,
    /// The SYN-ACK was repeated this many times.
    SynAckSentAgain(u32),
    /// The SYN-ACK carried this many bytes of data.
    DataInSynAck(u32),
    /// A SYN-ACK acknowledged this many bytes more than the SYN has.
    AckedTooMuch(u32),
    /// A SYN-ACK acknowledged a number that does not belong to the SYN.
    AckedOther,
    /// A RST answered the SYN.
    Refused,
    /// A RST of the client answered the SYN-ACK.
    ResetByClient,
    /// An ICMP error answered the SYN.
    Icmp(IcmpErrorKind),
    /// Nothing answered the SYN until the end of the capture.
    NoAnswer,
    /// Nothing was received in UDP.
    UdpBlocked,
    /// The capture does not contain the connection's SYN.
    SynNotCaptured,
    /// The capture does not contain the connection's SYN-ACK, but the connection continued.
    SynAckNotCaptured,
    /// The client's stream begins with a sealed flight.
    Sealed(Sealed),
}

impl Note {
    /// A label in kebab-case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IllegalCookie(_) => "illegal-cookie",
            Self::IllegalGrant(_) => "illegal-grant",
            Self::UnaskedCookie => "unasked-cookie",
            Self::DataWithoutOption => "data-without-option",
            Self::Probe => "asap-probe",
            Self::ProbeIgnored => "probe-ignored",
            Self::ProbeLost => "probe-lost",
            Self::Certificate(_) => "certificate",
            Self::UnreadableBlock => "unreadable-block",
            Self::UnreadableOption => "unreadable-option",
            Self::Reply(_) => "asap-reply",
            Self::UnreadableReply => "unreadable-reply",
            Self::ReplyForAnother(_) => "reply-for-another-request",
            Self::UnaskedReply => "unasked-reply",
            Self::ServerTime(_) => "server-time",
            Self::Trusts(_) => "server-trusts",
            Self::Sees(_) => "server-sees",
            Self::Proof => "server-proof",
            Self::WithAndWithout => "with-and-without-option",
            Self::SynAckSentAgain(_) => "syn-ack-retransmitted",
            Self::DataInSynAck(_) => "data-in-syn-ack",
            Self::AckedTooMuch(_) => "acknowledged-too-much",
            Self::AckedOther => "acknowledged-other",
            Self::Refused => "refused",
            Self::ResetByClient => "reset-by-client",
            Self::Icmp(_) => "icmp-error",
            Self::NoAnswer => "no-answer",
            Self::UdpBlocked => "udp-blocked",
            Self::SynNotCaptured => "syn-not-captured",
            Self::SynAckNotCaptured => "syn-ack-not-captured",
            Self::Sealed(_) => "sealed-flight",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IllegalCookie(length) => {
                write!(
                    f,
                    "its cookie of {} counts as none: legal are even lengths from 4 to 16",
                    Bytes(*length)
                )
            }
            Self::IllegalGrant(length) => write!(
                f,
                "the SYN-ACK's cookie of {} counts as none: legal are even lengths from 4 to 16",
                Bytes(*length)
            ),
            Self::UnaskedCookie => f.write_str("the SYN-ACK has a cookie that was not asked for"),
            Self::DataWithoutOption => f.write_str(
                "the SYN has data but no option: the path removed it, or the client goes without cookies",
            ),
            Self::Probe => f.write_str("asks whether the server takes certificates"),
            Self::ProbeIgnored => f.write_str(
                "no reply to that: the server does not understand ASAP, or the path removed the option",
            ),
            Self::ProbeLost => f.write_str(
                "the SYN that asked got no answer, the plain one after it did: something on the path drops SYNs \
                 with the option, or it was lost",
            ),
            Self::Certificate(shown) => certificate(shown, f),
            Self::UnreadableBlock => f.write_str("a credential block that cannot be read"),
            Self::UnreadableOption => {
                f.write_str("an ASAP option that cannot be read: malformed, or of another version")
            }
            Self::Reply(status) => write!(f, "reply {}: {status}", status.as_str()),
            Self::UnreadableReply => {
                f.write_str("a reply that cannot be read and counts as none: malformed, or of another version")
            }
            Self::ReplyForAnother([a, b]) => {
                write!(f, "a reply for another request: its tag {a:02x}{b:02x} is not that of the SYN")
            }
            Self::UnaskedReply => f.write_str("the SYN-ACK replies to an ASAP option that the SYN does not have"),
            Self::ServerTime(at) => write!(f, "the server's clock: {}", rfc3339(u64::from(*at))),
            Self::Trusts(verifier) => write!(f, "the server trusts verifier {verifier}"),
            Self::Sees(address) => write!(f, "the server sees the client at {address}"),
            Self::Proof => f.write_str("the reply has a proof, as for a first flight that travelled by DNS"),
            Self::WithAndWithout => f.write_str(
                "captured with and without the option at once: sent again plain, or changed on the path; one \
                 capture cannot tell",
            ),
            Self::SynAckSentAgain(times) => write!(f, "SYN-ACK sent {}", TimesMore(*times)),
            Self::DataInSynAck(bytes) => write!(f, "{} in the SYN-ACK", Bytes(*bytes as usize)),
            Self::AckedTooMuch(bytes) => {
                write!(f, "a SYN-ACK acknowledged {} more than the SYN has", Bytes(*bytes as usize))
            }
            Self::AckedOther => f.write_str("a SYN-ACK acknowledged a number that the SYN does not have"),
            Self::Refused => f.write_str("refused by RST"),
            Self::ResetByClient => f.write_str("the client answered the SYN-ACK by RST"),
            Self::Icmp(kind) => write!(f, "ICMP error: {}", IcmpName(*kind)),
            Self::NoAnswer => f.write_str("no answer in the capture"),
            Self::UdpBlocked => f.write_str(
                "nothing came back in UDP: something on the path blocks it, or no server of this project is there",
            ),
            Self::SynNotCaptured => f.write_str("its SYN is not in the capture"),
            Self::SynAckNotCaptured => f.write_str("its SYN-ACK is not in the capture"),
            Self::Sealed(sealed) => seal(sealed, f),
        }
    }
}

/// Writes, for example, "a certificate by verifier 2bec5519, 3s old, good for 30m, until 2026-01-01T00:30:00Z".
fn certificate(shown: &BlockContent, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let time = |seconds| humantime::format_duration(Duration::from_secs(seconds));
    write!(f, "a certificate by verifier {}, ", shown.verifier)?;
    match u64::try_from(shown.age_ms()) {
        Ok(age) => write!(f, "{} old", time(age / 1000))?,
        Err(_) => f.write_str("in a request from before it began")?,
    }
    write!(f, ", good for {}, until {}", time(u64::from(shown.duration)), rfc3339(shown.ends()))
}

/// Writes, for example, "a sealed flight of 518 bytes to key 3, answered by TLS".
fn seal(sealed: &Sealed, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Sealed { key_id, bytes, answer, outcome } = sealed;
    write!(f, "a sealed flight of {bytes} bytes to key {key_id}, ")?;
    f.write_str(match answer {
        FlightAnswer::Tls => "answered by TLS",
        FlightAnswer::Reject => {
            "answered by REJECT: the server has another key by now, or somebody on the path says so"
        }
        FlightAnswer::Other => "answered by something else than TLS",
        FlightAnswer::None => "not answered in the capture",
    })?;
    match outcome {
        Some(outcome) => write!(f, " ({outcome})"),
        None => Ok(()),
    }
}

/// "1 byte", "2 bytes".
pub(crate) struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "byte" } else { "bytes" })
    }
}

/// "once more", "3 times more".
pub(crate) struct TimesMore(pub u32);

impl fmt::Display for TimesMore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("once more"),
            times => write!(f, "{times} times more"),
        }
    }
}

struct IcmpName(IcmpErrorKind);

impl fmt::Display for IcmpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            IcmpErrorKind::NetUnreachable => "network unreachable",
            IcmpErrorKind::HostUnreachable => "host unreachable",
            IcmpErrorKind::ProtocolUnreachable => "protocol unreachable",
            IcmpErrorKind::PortUnreachable => "port unreachable",
            IcmpErrorKind::AdminProhibited => "administratively prohibited",
            IcmpErrorKind::PacketTooBig { mtu } => return write!(f, "packet too big (MTU {mtu} bytes)"),
            IcmpErrorKind::SourceRouteFailed => "source route failed",
            IcmpErrorKind::TimeExceeded => "time exceeded",
            IcmpErrorKind::ParameterProblem => "parameter problem",
            IcmpErrorKind::Other { ty, code } => return write!(f, "type {ty} code {code}"),
            _ => "another error",
        })
    }
}
