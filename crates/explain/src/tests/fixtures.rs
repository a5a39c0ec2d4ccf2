//! Packets and captures for tests.

use super::conversation::{Conversation, ConversationSide};
use super::verdict::{ConnectionVerdict, judge};
use firstflight_wire::asap::{
    AsapOption, BLOCK_LEN, Block, CertificateBody, CertificateFlags, Hint, Reply, RequestCertificate, Status,
    VerifierId,
};
use firstflight_wire::icmp::{self, IcmpErrorKind};
use firstflight_wire::ip::{self, Ecn, Protocol};
use firstflight_wire::tcp::{
    Cookie, FastOpen, FastOpenForm, Flags, Header, OptionBytes, Segment, SynOptions, fill_checksum,
};
use firstflight_wire::{Instant, SeqNum, encapsulation, udp};
use std::net::SocketAddr;
use std::time::Duration;

/// The client's initial sequence number. Its data wraps around zero.
pub(crate) const CLIENT_ISN: SeqNum = SeqNum::new(u32::MAX - 2);
/// The server's initial sequence number.
pub(crate) const SERVER_ISN: SeqNum = SeqNum::new(9000);
/// The end that is the client in the scenes.
pub(crate) const CLIENT: ConversationSide = ConversationSide::Low;
pub(crate) const COOKIE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
pub(crate) const FRESH: [u8; 8] = [9; 8];

/// A cookie request.
pub(crate) fn request() -> Vec<u8> {
    OptionBytes::from(&FastOpen::Request(FastOpenForm::Standard)).as_slice().to_vec()
}

/// A cookie in one of the forms.
pub(crate) fn cookie_in(form: FastOpenForm, cookie: &[u8]) -> Vec<u8> {
    OptionBytes::from(&FastOpen::Cookie(form, Cookie::new(cookie).unwrap())).as_slice().to_vec()
}

/// A cookie in the standard form.
pub(crate) fn cookie(cookie: &[u8]) -> Vec<u8> {
    cookie_in(FastOpenForm::Standard, cookie)
}

/// A segment as bytes, client's or server's.
pub(crate) fn segment(
    from: ConversationSide,
    flags: Flags,
    seq: SeqNum,
    ack: SeqNum,
    option: &[u8],
    data: &[u8],
) -> Vec<u8> {
    let (src_port, dst_port) = if from == CLIENT { (40000, 80) } else { (80, 40000) };
    let header = Header { src_port, dst_port, seq, ack, flags, window: 1000, urgent: 0 };
    let options = SynOptions {
        mss: 1460,
        sack_permitted: true,
        timestamps: None,
        window_scale: Some(7),
        extra: option,
    };
    let options = options.to_buf();
    let options = if flags.contains(Flags::SYN) { options.as_slice() } else { &[] };
    let mut bytes = vec![0; 60];
    let length = header.emit(options, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes.extend_from_slice(data);
    bytes
}

/// A TCP segment in an IP packet, checksums filled in.
pub(crate) fn packet(src: SocketAddr, dst: SocketAddr, segment: &[u8]) -> Vec<u8> {
    let mut segment = with_ports(src, dst, segment);
    fill_checksum(&mut segment, src.ip(), dst.ip());
    in_ip(src, dst, Protocol::Tcp, &segment)
}

/// A TCP segment in UDP, between these source and destination ports.
pub(crate) fn datagram(src: SocketAddr, dst: SocketAddr, (from, to): (u16, u16), segment: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; udp::HEADER + encapsulation::HEADER];
    let header = udp::Header { src_port: from, dst_port: to };
    header.emit(encapsulation::HEADER + segment.len(), &mut bytes).unwrap();
    encapsulation::emit_segment_header(&mut bytes[udp::HEADER..]).unwrap();
    bytes.extend(with_ports(src, dst, segment));
    udp::fill_checksum(&mut bytes, src.ip(), dst.ip());
    in_ip(src, dst, Protocol::Udp, &bytes)
}

fn with_ports(src: SocketAddr, dst: SocketAddr, segment: &[u8]) -> Vec<u8> {
    let ports = [src, dst].map(|end| end.port().to_be_bytes()).concat();
    [&ports, &segment[4..]].concat()
}

fn in_ip(src: SocketAddr, dst: SocketAddr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let header = ip::Header {
        src: src.ip(),
        dst: dst.ip(),
        protocol,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        dont_fragment: true,
        identification: 0,
    };
    let mut bytes = vec![0; header.len()];
    header.emit(payload.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

/// An ICMP error to the sender of a packet.
pub(crate) fn icmp_error(kind: IcmpErrorKind, src: SocketAddr, dst: SocketAddr, about: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 1280];
    let length = icmp::emit_error(kind, src.ip(), dst.ip(), about, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

pub(crate) fn syn(option: &[u8], data: &[u8]) -> Vec<u8> {
    segment(CLIENT, Flags::SYN, CLIENT_ISN, SeqNum::new(0), option, data)
}

/// Acknowledges `acked` bytes of the SYN's data.
pub(crate) fn syn_ack(acked: u32, option: &[u8], data: &[u8]) -> Vec<u8> {
    let ack = CLIENT_ISN + 1 + acked;
    segment(CLIENT.other(), Flags::SYN | Flags::ACK, SERVER_ISN, ack, option, data)
}

pub(crate) fn ack() -> Vec<u8> {
    segment(CLIENT, Flags::ACK, CLIENT_ISN + 1, SERVER_ISN + 1, &[], &[])
}

pub(crate) fn reply() -> Vec<u8> {
    segment(CLIENT.other(), Flags::ACK | Flags::PSH, SERVER_ISN + 1, CLIENT_ISN + 1, &[], b"HTTP/1.1 200 OK")
}

pub(crate) fn rst(from: ConversationSide) -> Vec<u8> {
    let seq = if from == CLIENT { CLIENT_ISN + 1 } else { SeqNum::new(0) };
    segment(from, Flags::RST | Flags::ACK, seq, CLIENT_ISN + 1, &[], &[])
}

/// The packets of a connection, in order.
#[derive(Default)]
pub(crate) struct Scene {
    packets: Vec<(Instant, ConversationSide, Vec<u8>)>,
    icmp: Option<IcmpErrorKind>,
}

impl Scene {
    /// Adds a segment of the client, milliseconds after the beginning.
    pub(crate) fn client(mut self, ms: u64, segment: Vec<u8>) -> Self {
        self.packets.push((Instant::from_millis(1_000_000 + ms), CLIENT, segment));
        self
    }

    /// Adds a segment of the server.
    pub(crate) fn server(mut self, ms: u64, segment: Vec<u8>) -> Self {
        self.packets.push((Instant::from_millis(1_000_000 + ms), CLIENT.other(), segment));
        self
    }

    /// Adds a router's error about the first SYN.
    pub(crate) fn icmp(mut self, kind: IcmpErrorKind) -> Self {
        self.icmp = Some(kind);
        self
    }

    /// The verdict. Checks that it stays the same if packets are captured twice or out of order.
    pub(crate) fn verdict(&self) -> ConnectionVerdict {
        let verdict = self.judge(self.packets.clone());
        let mut twice = self.packets.clone();
        let copies = self.packets.iter().cloned();
        twice.extend(copies.map(|(at, from, segment)| (at + Duration::from_millis(1), from, segment)));
        twice.sort_by_key(|(at, ..)| *at);
        assert_eq!(self.judge(twice.clone()), verdict, "every packet captured twice");
        for mut packets in [self.packets.clone(), twice] {
            packets.sort_by_key(|(at, ..)| (at.as_millis() / 500, std::cmp::Reverse(*at)));
            assert_eq!(self.judge(packets), verdict, "captured out of order");
        }
        verdict
    }

    fn judge(&self, packets: Vec<(Instant, ConversationSide, Vec<u8>)>) -> ConnectionVerdict {
        let mut conversation: Option<Conversation> = None;
        for (at, from, bytes) in &packets {
            let segment = Segment::parse(bytes).unwrap();
            match &mut conversation {
                Some(conversation) => {
                    assert!(conversation.owns(*at, *from, &segment), "{segment:?}");
                    conversation.handle_segment(*at, *from, &segment);
                }
                None => conversation = Some(Conversation::new(*at, *from, &segment)),
            }
            if let (Some(kind), Some(conversation)) = (self.icmp, &mut conversation) {
                conversation.handle_icmp(CLIENT, CLIENT_ISN, kind);
            }
        }
        judge(&conversation.unwrap(), false).unwrap()
    }
}

/// A block of a pcapng file, little-endian; `body` is a multiple of 4 bytes.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

/// The first block of a pcapng file.
pub(crate) fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255])
}

/// The description of an interface, with `options` as they are in the file.
pub(crate) fn interface(link: u16, options: &[u8]) -> Vec<u8> {
    block(1, &[&link.to_le_bytes()[..], &[0; 6], options].concat())
}

/// A packet of the first interface. `original` bytes were sent.
pub(crate) fn enhanced(stamp: u64, packet: &[u8], original: usize) -> Vec<u8> {
    let (high, low) = ((stamp >> 32) as u32, stamp as u32);
    let [captured, original] = [packet.len(), original].map(|length| u32::try_from(length).unwrap());
    let head = [0, high, low, captured, original].map(u32::to_le_bytes).concat();
    let padding = vec![0; packet.len().next_multiple_of(4) - packet.len()];
    block(6, &[head, packet.to_vec(), padding].concat())
}

/// A pcapng file of raw IP packets of two devices, in microseconds: each packet with its device.
pub(crate) fn two_devices(packets: &[(u32, Instant, Vec<u8>)]) -> Vec<u8> {
    let mut file = [section(), interface(101, &[]), interface(101, &[])].concat();
    for (device, at, packet) in packets {
        let mut block = enhanced(at.as_nanos() / 1000, packet, packet.len());
        // After the block's type and length.
        block[8..12].copy_from_slice(&device.to_le_bytes());
        file.extend(block);
    }
    file
}

/// A pcapng file of raw IP packets, in nanoseconds.
pub(crate) fn pcapng(packets: &[(Instant, Vec<u8>)]) -> Vec<u8> {
    let nanoseconds = [9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let mut file = [section(), interface(101, &nanoseconds)].concat();
    for (at, packet) in packets {
        file.extend(enhanced(at.as_nanos(), packet, packet.len()));
    }
    file
}

/// A frame of Linux' `any` device, version 2: the device's number, and whether the packet left by it.
pub(crate) fn sll2(device: u32, out: bool, packet: &[u8]) -> Vec<u8> {
    let family: u16 = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    let direction = if out { 4 } else { 0 };
    [&family.to_be_bytes()[..], &[0; 2], &device.to_be_bytes(), &[0, 1, direction, 6], &[0; 8], packet]
        .concat()
}

/// Like `sll2`, for version 1, which has the sender's link-layer address instead.
pub(crate) fn sll(sender: u8, out: bool, packet: &[u8]) -> Vec<u8> {
    let family: u16 = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    let direction = if out { 4 } else { 0 };
    [&[0, direction, 0, 1, 0, 6, 2, 0, 0, 0, 0, sender, 0, 0][..], &family.to_be_bytes(), packet].concat()
}

/// A classic pcap file with this link type, in microseconds.
pub(crate) fn pcap(big: bool, link: u32, frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let word = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let mut file = [0xa1b2_c3d4, 0, 0, 0, 65_535, link].map(word).concat();
    for (micros, frame) in frames {
        let length = u32::try_from(frame.len()).unwrap();
        file.extend([micros / 1_000_000, micros % 1_000_000, length, length].map(word).concat());
        file.extend(frame);
    }
    file
}

/// The two ends that [`packet`] and [`visit`] use.
pub(crate) fn ends(v6: bool, port: u16) -> (SocketAddr, SocketAddr) {
    let [client, server] = if v6 { ["fd09::1", "fd09::2"] } else { ["10.9.0.1", "10.9.0.2"] };
    (SocketAddr::new(client.parse().unwrap(), port), SocketAddr::new(server.parse().unwrap(), 80))
}

/// The packets of a visit that lasts 100 ms: SYN, SYN-ACK, ACK, response.
pub(crate) fn visit(
    v6: bool,
    port: u16,
    start_ms: u64,
    syn: Vec<u8>,
    syn_ack: Vec<u8>,
) -> Vec<(Instant, Vec<u8>)> {
    visit_between(ends(v6, port), start_ms, syn, syn_ack)
}

/// Like `visit`, between these ends.
pub(crate) fn visit_between(
    ends: (SocketAddr, SocketAddr),
    start_ms: u64,
    syn: Vec<u8>,
    syn_ack: Vec<u8>,
) -> Vec<(Instant, Vec<u8>)> {
    visit_by(ends, start_ms, syn, syn_ack, |src, dst, _, bytes| packet(src, dst, bytes))
}

/// Like `visit`, in UDP between the client's UDP port and the server's port 4433.
pub(crate) fn visit_in_udp(
    udp_port: u16,
    port: u16,
    start_ms: u64,
    syn: Vec<u8>,
    syn_ack: Vec<u8>,
) -> Vec<(Instant, Vec<u8>)> {
    visit_by(ends(false, port), start_ms, syn, syn_ack, |src, dst, from_client, bytes| {
        let ports = if from_client { (udp_port, 4433) } else { (4433, udp_port) };
        datagram(src, dst, ports, bytes)
    })
}

fn visit_by(
    (client, server): (SocketAddr, SocketAddr),
    start_ms: u64,
    syn: Vec<u8>,
    syn_ack: Vec<u8>,
    wrap: impl Fn(SocketAddr, SocketAddr, bool, &[u8]) -> Vec<u8>,
) -> Vec<(Instant, Vec<u8>)> {
    let all = [(0, true, syn), (50, false, syn_ack), (50, true, ack()), (100, false, reply())];
    let packets = all.into_iter().map(|(ms, from_client, bytes)| {
        let (src, dst) = if from_client { (client, server) } else { (server, client) };
        (Instant::from_millis(start_ms + ms), wrap(src, dst, from_client, &bytes))
    });
    packets.collect()
}

/// When the certificates in these tests begin, Unix seconds.
pub(crate) const VALID_FROM: u32 = 1_767_225_600;
pub(crate) const VERIFIER: VerifierId = VerifierId([0x2b, 0xec, 0x55, 0x19]);
/// First two bytes of the requests' ids.
pub(crate) const TAG: [u8; 2] = [0xaa, 0xbb];
/// Length of [`credential`], bytes.
pub(crate) const BLOCK: u32 = BLOCK_LEN as u32;

/// A credential block. Its request was made `age_ms` milliseconds after the certificate's beginning.
pub(crate) fn credential(age_ms: i64) -> Vec<u8> {
    let flags = CertificateFlags::new(3, true, false).unwrap();
    let certificate = CertificateBody::new(VERIFIER, [7; 32], VALID_FROM, 1800, flags, [8; 64]).unwrap();
    let request = RequestCertificate {
        address_tag: [0; 2],
        identity_tag: [0; 4],
        requested_ms: (u64::from(VALID_FROM) * 1000).checked_add_signed(age_ms).unwrap(),
        request_id: [TAG[0], TAG[1], 3, 4, 5, 6, 7, 8],
        signature: [9; 64],
    };
    Block { certificate, request }.to_bytes().to_vec()
}

/// The ASAP option of a SYN that probes.
pub(crate) fn probe() -> Vec<u8> {
    OptionBytes::from(AsapOption::Probe { long_reply: true }).as_slice().to_vec()
}

/// The ASAP option of a SYN with a block.
pub(crate) fn asap_option() -> Vec<u8> {
    OptionBytes::from(AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 }).as_slice().to_vec()
}

/// The ASAP option of a SYN-ACK.
pub(crate) fn replied(status: Status, tag: [u8; 2], hint: Hint) -> Vec<u8> {
    OptionBytes::from(Reply { status, tag, hint }).as_slice().to_vec()
}
