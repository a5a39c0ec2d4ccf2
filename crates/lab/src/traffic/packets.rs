//! The packets of a connection.

use super::CaptureSite;
use super::model::{Connection, Dice, Extent, Service, TLS_TIME};
use super::pcap::Captured;
use firstflight_wire::SeqNum;
use firstflight_wire::ip::{self, Ecn, Protocol};
use firstflight_wire::tcp::{Flags, Header, SynOptions, fill_checksum};
use std::net::SocketAddr;

/// Bytes of data in a segment.
const SEGMENT: usize = 1400;
/// One segment of so many is captured twice, as after a retransmission.
const TWICE: usize = 200;

/// A connection that is being written.
struct Writer<'a> {
    service: &'static Service,
    client: SocketAddr,
    /// Half of the round trip if the capture is made at the servers, otherwise 0, ms.
    away: f64,
    seqs: [u32; 2],
    dice: &'a mut Dice,
    out: Vec<Captured>,
}

/// The packets of a connection, in any order. Times are those at the client, moved to the place of the capture.
pub fn of(connection: &Connection, number: usize, site: CaptureSite, dice: &mut Dice) -> Vec<Captured> {
    let Connection { service, rtt, at, .. } = *connection;
    let away = if site == CaptureSite::Server { rtt / 2.0 } else { 0.0 };
    let seqs = [dice.bits(), dice.bits()];
    let mut writer = Writer { service, client: service.client(number), away, seqs, dice, out: Vec::new() };
    let mut now = at;
    if connection.syn_lost > 0.0 || connection.extent == Extent::NeverOpens {
        writer.syn(now, false);
        let again = if connection.extent == Extent::NeverOpens { 1000.0 } else { connection.syn_lost };
        writer.syn(now + again, false);
        now += again;
    }
    if connection.extent == Extent::NeverOpens {
        return writer.out;
    }
    if connection.syn_lost == 0.0 {
        writer.syn(now, false);
    }
    writer.advance(0, 1);
    writer.syn(now + rtt, true);
    writer.advance(1, 1);
    now += rtt;
    writer.segment(now, 0, Flags::ACK, &[]);
    if service.tls {
        writer.data(now, 0, &record(22, 512));
        now += rtt * TLS_TIME;
        writer.data(now, 1, &[record(22, 122), record(23, 1200)].concat());
    }
    if connection.extent == Extent::Later {
        writer.out.clear();
    }
    for (n, request) in connection.requests.iter().enumerate() {
        if n > 0 {
            now += request.pause;
        }
        let asked = if service.tls { sealed(n == 0) } else { head(service.name, n) };
        writer.data(now, 0, &asked);
        now = writer.response(now, rtt, request.beyond, request.size);
    }
    writer.segment(now + 50.0, 0, Flags::ACK | Flags::FIN, &[]);
    writer.out
}

/// A request of TLS; the first one behind the client's Finished.
fn sealed(first: bool) -> Vec<u8> {
    let mut bytes = if first { [record(20, 1), record(23, 53)].concat() } else { Vec::new() };
    bytes.extend(record(23, 420));
    bytes
}

fn record(kind: u8, length: u16) -> Vec<u8> {
    let mut bytes = vec![kind, 3, 3];
    bytes.extend(length.to_be_bytes());
    bytes.resize(5 + usize::from(length), 0x5a);
    bytes
}

fn head(host: &str, n: usize) -> Vec<u8> {
    let host = host.replace([' ', ','], "-");
    format!("GET /{n} HTTP/1.1\r\nHost: {host}.example\r\nUser-Agent: traffic\r\nAccept: */*\r\n\r\n")
        .into_bytes()
}

impl Writer<'_> {
    /// The response. Returns when its last byte is at the client.
    fn response(&mut self, asked: f64, rtt: f64, beyond: f64, size: usize) -> f64 {
        let segments = size.div_ceil(SEGMENT).max(1);
        // The server thinks for two thirds of the time that is left.
        let (first, last) = (asked + rtt + beyond * 0.66, asked + rtt + beyond);
        for n in 0..segments {
            let share = if segments == 1 { 1.0 } else { n as f64 / (segments - 1) as f64 };
            let at = first + (last - first) * share;
            let length = if n + 1 == segments { size - n * SEGMENT } else { SEGMENT };
            let data = if self.service.tls {
                record(23, (length.max(20) - 5) as u16)
            } else {
                let mut data = if n == 0 {
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").into_bytes()
                } else {
                    Vec::new()
                };
                data.resize(length.max(data.len()), b'x');
                data
            };
            self.data(at, 1, &data);
            if n % 2 == 1 || n + 1 == segments {
                self.segment(at + 0.02, 0, Flags::ACK, &[]);
            }
        }
        last
    }

    fn data(&mut self, at: f64, from: usize, data: &[u8]) {
        self.segment(at, from, Flags::ACK | Flags::PSH, data);
        if from == 1
            && self.dice.below(TWICE) == 0
            && let Some(mut again) = self.out.last().cloned()
        {
            again.at += 0.4;
            self.out.push(again);
        }
        self.advance(from, data.len() as u32);
    }

    fn advance(&mut self, from: usize, bytes: u32) {
        if let Some(seq) = self.seqs.get_mut(from) {
            *seq = seq.wrapping_add(bytes);
        }
    }

    fn syn(&mut self, at: f64, ack: bool) {
        let options = SynOptions {
            mss: 1460,
            sack_permitted: true,
            timestamps: None,
            window_scale: Some(7),
            extra: &[],
        };
        let flags = if ack { Flags::SYN | Flags::ACK } else { Flags::SYN };
        self.emit(at, usize::from(ack), flags, options.to_buf().as_slice(), &[]);
    }

    fn segment(&mut self, at: f64, from: usize, flags: Flags, data: &[u8]) {
        self.emit(at, from, flags, &[], data);
    }

    /// A segment that leaves the client (`from` is 0) or arrives there at `at`.
    fn emit(&mut self, at: f64, from: usize, flags: Flags, options: &[u8], data: &[u8]) {
        let server = self.service.server();
        let (src, dst) = if from == 0 { (self.client, server) } else { (server, self.client) };
        let [client, peer] = self.seqs;
        let (seq, ack) = if from == 0 { (client, peer) } else { (peer, client) };
        let ack = if flags.contains(Flags::ACK) { ack } else { 0 };
        let header = Header {
            src_port: src.port(),
            dst_port: dst.port(),
            seq: SeqNum::new(seq),
            ack: SeqNum::new(ack),
            flags,
            window: 64_000,
            urgent: 0,
        };
        let mut tcp = vec![0; 60];
        let Ok(length) = header.emit(options, &mut tcp) else { return };
        tcp.truncate(length);
        tcp.extend_from_slice(data);
        fill_checksum(&mut tcp, src.ip(), dst.ip());
        let Some(frame) = frame(self.service.vlan, src, dst, &tcp) else { return };
        let at = if from == 0 { at + self.away } else { at - self.away };
        self.out.push(Captured::new(at, frame));
    }
}

/// An Ethernet frame.
fn frame(vlan: Option<u16>, src: SocketAddr, dst: SocketAddr, tcp: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if let Some(vlan) = vlan {
        bytes.extend([0x81, 0]);
        bytes.extend(vlan.to_be_bytes());
    }
    bytes.extend(if src.is_ipv4() { [8, 0] } else { [0x86, 0xdd] });
    let header = ip::Header {
        src: src.ip(),
        dst: dst.ip(),
        protocol: Protocol::Tcp,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        dont_fragment: true,
        identification: 0,
    };
    let start = bytes.len();
    bytes.resize(start + header.len(), 0);
    header.emit(tcp.len(), bytes.get_mut(start..)?).ok()?;
    bytes.extend_from_slice(tcp);
    Some(bytes)
}
