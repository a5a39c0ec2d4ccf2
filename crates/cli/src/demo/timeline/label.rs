//! What a packet is called in the picture.

use firstflight_wire::asap::AsapOption;
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::ip::{Packet, Protocol};
use firstflight_wire::tcp::{FastOpen, Flags, Segment};
use firstflight_wire::udp::Datagram;
use std::net::IpAddr;

/// A part of what a packet carries, in the order in which a label names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelPart {
    Syn,
    SynAck,
    Ack,
    CookieRequest,
    Cookie,
    Probe,
    Certificate,
    Fin,
    Reset,
    /// The question for the server's address.
    Query,
    /// A name that contains a piece of a first flight.
    Name,
    /// An answer of the name server.
    Answer,
    /// Data of the client.
    Request,
    /// Data of the server.
    Response,
}

impl LabelPart {
    /// Its name, if `count` packets carry it.
    fn text(self, count: usize) -> String {
        let text = match self {
            Self::Syn => "SYN",
            Self::SynAck => "SYN-ACK",
            Self::Ack => "ACK",
            Self::CookieRequest => "cookie request",
            Self::Cookie => "cookie",
            Self::Probe => "probe",
            Self::Certificate => "certificate",
            Self::Fin => "FIN",
            Self::Reset => "RST",
            Self::Query => "DNS query",
            Self::Name if count > 1 => return format!("request in {count} names"),
            Self::Name => "request in a name",
            Self::Answer if count > 1 => "DNS answers",
            Self::Answer => "DNS answer",
            Self::Request => "request",
            Self::Response if count > 1 => return format!("response ×{count}"),
            Self::Response => "response",
        };
        text.to_owned()
    }
}

/// The label of packets that travel together.
pub fn label(mut parts: Vec<LabelPart>) -> String {
    parts.sort();
    let same = parts.chunk_by(|a, b| a == b);
    let names: Vec<_> = same.filter_map(|same| Some(same.first()?.text(same.len()))).collect();
    names.join(" + ")
}

/// A connection: the server's address and the client's port, which is the inner one in UDP.
pub type Connection = (IpAddr, u16);

/// The connection of a packet and its parts; `None` if it is no segment of TCP. The sender is the client if
/// `of_client`.
pub fn read(packet: &[u8], of_client: bool) -> Option<(Connection, Vec<LabelPart>)> {
    let ip = Packet::parse(packet).ok()?;
    let inner = match ip.protocol {
        Protocol::Udp => match Carried::parse(Datagram::parse(ip.payload).ok()?.payload).ok()? {
            Carried::Segment(segment) => segment,
            Carried::Control(_) => return None,
        },
        _ => ip.payload,
    };
    let segment = Segment::parse(inner).ok()?;
    let connection = if of_client { (ip.dst, segment.src_port) } else { (ip.src, segment.dst_port) };
    Some((connection, parts(&segment, of_client)))
}

fn parts(segment: &Segment<'_>, of_client: bool) -> Vec<LabelPart> {
    let mut parts = Vec::new();
    // The part of the payload that is not data of the stream.
    let mut block = 0;
    if segment.flags.contains(Flags::SYN) {
        parts.push(if segment.flags.contains(Flags::ACK) { LabelPart::SynAck } else { LabelPart::Syn });
        parts.extend(segment.options.fast_open().map(|option| match option {
            FastOpen::Request(_) => LabelPart::CookieRequest,
            FastOpen::Cookie(..) => LabelPart::Cookie,
        }));
        // The option of a SYN-ACK is the answer to one, and has another form.
        if of_client && let Some(option) = segment.options.asap().and_then(AsapOption::parse) {
            parts.push(match option {
                AsapOption::Probe { .. } => LabelPart::Probe,
                AsapOption::Block { .. } => LabelPart::Certificate,
            });
            if let AsapOption::Block { len, .. } = option {
                block = usize::from(len);
            }
        }
    }
    if segment.payload.len() > block {
        // It may be the one that completes the handshake.
        if of_client && !segment.flags.contains(Flags::SYN) {
            parts.push(LabelPart::Ack);
        }
        parts.push(if of_client { LabelPart::Request } else { LabelPart::Response });
    }
    if segment.flags.contains(Flags::RST) {
        parts.push(LabelPart::Reset);
    }
    if parts.is_empty() {
        parts.push(if segment.flags.contains(Flags::FIN) { LabelPart::Fin } else { LabelPart::Ack });
    }
    parts
}
