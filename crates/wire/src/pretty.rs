//! Shows packets as one line of text, in the style of tcpdump.

use crate::ParseError;
use crate::encapsulation::{Carried, Control};
use crate::icmp::{self, IcmpError, IcmpErrorKind};
use crate::ip::{Packet, Protocol};
use crate::tcp::{FastOpen, FastOpenForm, Flags, SackBlocks, Segment, TcpOption};
use crate::udp;
use core::fmt::{self, Formatter};
use core::net::IpAddr;

/// Shows an IP packet as tcpdump does:
///
/// ```text
/// IP 10.0.0.1.49152 > 10.0.0.2.80: Flags [S], seq 1, win 64240, options [mss 1460,sackOK,TS val 1 ecr 0,nop,wscale 7,tfo cookiereq], length 0
/// ```
///
/// For a TCP segment in a UDP datagram, the segment follows with its inner ports:
///
/// ```text
/// IP 10.0.0.1.4433 > 10.0.0.2.4433: UDP, length 24, carries 49152 > 80: Flags [.], ack 9, win 64240, length 0
/// ```
///
/// Bytes that cannot be read are shown as `malformed: ` and the reason. A wrong checksum is noted at the end.
/// Cookies are shown in hexadecimal. A packet dump shows everything on the wire, so protect it like the wire
/// itself.
#[derive(Debug, Clone, Copy)]
pub struct Pretty<'a>(pub &'a [u8]);

impl fmt::Display for Pretty<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let packet = match Packet::parse(self.0) {
            Ok(packet) => packet,
            Err(error) => return malformed(error, f),
        };
        f.write_str(if packet.src.is_ipv4() { "IP " } else { "IP6 " })?;
        match (packet.protocol, packet.src) {
            (Protocol::Tcp, _) => tcp(&packet, f),
            (Protocol::Udp, _) => udp(&packet, f),
            (Protocol::Icmp, IpAddr::V4(_)) | (Protocol::Icmpv6, IpAddr::V6(_)) => icmp(&packet, f),
            (protocol, _) => {
                let (number, len) = (protocol.number(), packet.payload.len());
                write!(f, "{} > {}: proto {number}, length {len}", packet.src, packet.dst)
            }
        }
    }
}

fn malformed(error: ParseError, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "malformed: {error}")
}

fn tcp(packet: &Packet<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let (src, dst) = (packet.src, packet.dst);
    let segment = match Segment::parse(packet.payload) {
        Ok(segment) => segment,
        Err(error) => {
            write!(f, "{src} > {dst}: tcp ")?;
            return malformed(error, f);
        }
    };
    write!(f, "{src}.{} > {dst}.{}: ", segment.src_port, segment.dst_port)?;
    summary(&segment, f)?;
    if Segment::parse_checked(packet.payload, src, dst) == Err(ParseError::BadChecksum) {
        f.write_str(", bad checksum")?;
    }
    Ok(())
}

/// Shows a segment from its flags to its length.
fn summary(segment: &Segment<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let flags = segment.flags;
    write!(f, "Flags [{flags}]")?;
    let len = segment.payload.len();
    if len > 0 || flags.intersects(Flags::SYN | Flags::FIN | Flags::RST) {
        write!(f, ", seq {}", segment.seq)?;
        if len > 0 {
            write!(f, ":{}", segment.seq + len as u32)?;
        }
    }
    if flags.contains(Flags::ACK) {
        write!(f, ", ack {}", segment.ack)?;
    }
    write!(f, ", win {}", segment.window)?;
    if flags.contains(Flags::URG) {
        write!(f, ", urg {}", segment.urgent)?;
    }
    for (index, one) in segment.options.iter().enumerate() {
        f.write_str(if index == 0 { ", options [" } else { "," })?;
        option(one, f)?;
    }
    if segment.options.iter().next().is_some() {
        f.write_str("]")?;
    }
    write!(f, ", length {len}")
}

fn option(option: TcpOption<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    match option {
        TcpOption::Nop => f.write_str("nop"),
        TcpOption::Mss(mss) => write!(f, "mss {mss}"),
        TcpOption::WindowScale(shift) => write!(f, "wscale {shift}"),
        TcpOption::SackPermitted => f.write_str("sackOK"),
        TcpOption::Sack(data) => {
            let blocks = SackBlocks::from_wire(data);
            write!(f, "sack {} ", blocks.len())?;
            blocks.as_slice().iter().try_for_each(|(start, end)| write!(f, "{{{start}:{end}}}"))
        }
        TcpOption::Timestamps(ts) => write!(f, "TS val {} ecr {}", ts.value, ts.echo),
        TcpOption::FastOpen(fast_open) => {
            f.write_str(match fast_open.form() {
                FastOpenForm::Standard => "tfo cookie",
                FastOpenForm::Experimental => "exp-tfo cookie",
            })?;
            match fast_open {
                FastOpen::Request(_) => f.write_str("req"),
                FastOpen::Cookie(_, cookie) => hex(" ", cookie.as_bytes(), f),
            }
        }
        TcpOption::Experimental { exid, data, .. } => {
            write!(f, "exp-{exid:04x}")?;
            hex(" 0x", data, f)
        }
        TcpOption::Unknown { kind, data } => {
            write!(f, "unknown-{kind}")?;
            hex(" 0x", data, f)
        }
    }
}

/// Shows `prefix` and the data in hexadecimal; shows nothing without data.
fn hex(prefix: &str, data: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    if !data.is_empty() {
        f.write_str(prefix)?;
    }
    data.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn udp(packet: &Packet<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let (src, dst) = (packet.src, packet.dst);
    let datagram = match udp::Datagram::parse(packet.payload) {
        Ok(datagram) => datagram,
        Err(error) => {
            write!(f, "{src} > {dst}: udp ")?;
            return malformed(error, f);
        }
    };
    let udp::Datagram { src_port, dst_port, payload } = datagram;
    write!(f, "{src}.{src_port} > {dst}.{dst_port}: UDP, length {}", payload.len())?;
    match Carried::parse(payload) {
        Ok(Carried::Segment(bytes)) => {
            // If it is not a segment, this is another protocol that begins with the same four bytes.
            let Ok(segment) = Segment::parse(bytes) else { return Ok(()) };
            write!(f, ", carries {} > {}: ", segment.src_port, segment.dst_port)?;
            summary(&segment, f)?;
        }
        Ok(Carried::Control(Control::KeepAlive)) => f.write_str(", encapsulation keep-alive")?,
        Ok(Carried::Control(Control::Reset)) => f.write_str(", encapsulation reset")?,
        Ok(Carried::Control(Control::PathChallenge(path))) => {
            write!(f, ", encapsulation path challenge {} > {}", path.src_port, path.dst_port)?;
        }
        Ok(Carried::Control(Control::PathResponse(path))) => {
            write!(f, ", encapsulation path response {} > {}", path.src_port, path.dst_port)?;
        }
        Err(_) => return Ok(()),
    }
    match udp::Datagram::parse_checked(packet.payload, src, dst) {
        Ok(_) => Ok(()),
        Err(_) if packet.payload.get(6..8) == Some(&[0, 0]) => f.write_str(", no checksum"),
        Err(_) => f.write_str(", bad checksum"),
    }
}

fn icmp(packet: &Packet<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let v4 = packet.src.is_ipv4();
    let name = if v4 { "ICMP" } else { "ICMP6" };
    write!(f, "{} > {}: {name} ", packet.src, packet.dst)?;
    let error = if v4 {
        icmp::parse_v4(packet.payload)
    } else {
        icmp::parse_v6(packet.payload, packet.src, packet.dst)
    };
    match error {
        Ok(error) => icmp_error(&error, f)?,
        Err(ParseError::NotAnError(ty)) => query(packet, ty, f)?,
        Err(error) => return malformed(error, f),
    }
    write!(f, ", length {}", packet.payload.len())
}

fn query(packet: &Packet<'_>, ty: u8, f: &mut Formatter<'_>) -> fmt::Result {
    let what = match (packet.src, ty) {
        (IpAddr::V4(_), 8) | (IpAddr::V6(_), 128) => "request",
        (IpAddr::V4(_), 0) | (IpAddr::V6(_), 129) => "reply",
        _ => return write!(f, "type {ty}"),
    };
    let Some((&[_, _, _, _, a, b, c, d], _)) = packet.payload.split_first_chunk() else {
        return Ok(());
    };
    let (id, seq) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    write!(f, "echo {what}, id {id}, seq {seq}")
}

fn icmp_error(error: &IcmpError<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let dst = error.dst;
    match error.kind {
        IcmpErrorKind::NetUnreachable => write!(f, "net {dst} unreachable"),
        IcmpErrorKind::HostUnreachable => write!(f, "host {dst} unreachable"),
        IcmpErrorKind::ProtocolUnreachable => {
            write!(f, "{dst} protocol {} unreachable", error.protocol.number())
        }
        IcmpErrorKind::PortUnreachable => {
            write!(f, "{dst} ")?;
            match error.protocol {
                Protocol::Tcp => f.write_str("tcp")?,
                Protocol::Udp => f.write_str("udp")?,
                other => write!(f, "proto {}", other.number())?,
            }
            // The destination port is at the same place in TCP and UDP.
            if let [_, _, high, low, ..] = *error.quoted {
                write!(f, " port {}", u16::from_be_bytes([high, low]))?;
            }
            f.write_str(" unreachable")
        }
        IcmpErrorKind::AdminProhibited => write!(f, "host {dst} unreachable - admin prohibited"),
        IcmpErrorKind::PacketTooBig { mtu } if dst.is_ipv4() => {
            write!(f, "{dst} unreachable - need to frag (mtu {mtu})")
        }
        IcmpErrorKind::PacketTooBig { mtu } => write!(f, "packet too big, mtu {mtu}"),
        IcmpErrorKind::SourceRouteFailed => write!(f, "{dst} unreachable - source route failed"),
        IcmpErrorKind::TimeExceeded => f.write_str("time exceeded"),
        IcmpErrorKind::ParameterProblem => f.write_str("parameter problem"),
        IcmpErrorKind::Other { ty, code } => write!(f, "type {ty} code {code}"),
    }
}

#[cfg(test)]
mod tests;
