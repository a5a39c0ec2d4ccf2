use super::*;
use firstflight_wire::ip::{Ecn, Header as IpHeader};
use firstflight_wire::udp;
use std::future::poll_fn;
use tokio::net::UdpSocket;

/// The bytes that the encapsulation puts in front of a segment.
const SEGMENT: [u8; 4] = [8, 0, 0, 0];

fn v4() -> UdpLink {
    UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn ip(link: &UdpLink) -> IpAddr {
    link.local_ips().next().unwrap()
}

fn packet(from: SocketAddr, to: SocketAddr, ecn: Ecn, payload: &[u8]) -> Vec<u8> {
    let header = IpHeader {
        src: from.ip(),
        dst: to.ip(),
        protocol: Protocol::Udp,
        hop_limit: 64,
        ecn,
        dont_fragment: true,
        identification: 7,
    };
    let mut out = vec![0; 48 + payload.len()];
    let at = header.emit(8 + payload.len(), &mut out).unwrap();
    let ports = udp::Header { src_port: from.port(), dst_port: to.port() };
    ports.emit(payload.len(), &mut out[at..]).unwrap();
    out.truncate(at + 8);
    out.extend_from_slice(payload);
    out
}

async fn send(link: &mut UdpLink, packets: &[Vec<u8>]) {
    for packet in packets {
        poll_fn(|cx| link.poll_send(cx, packet)).await.unwrap();
    }
    poll_fn(|cx| link.poll_flush(cx)).await.unwrap();
}

async fn receive(link: &mut UdpLink) -> Vec<u8> {
    let mut buf = vec![0; MTU];
    let len = poll_fn(|cx| link.poll_recv(cx, &mut buf)).await.unwrap();
    buf.truncate(len);
    buf
}

/// A segment's datagram of this length, with these flags and this byte in it.
fn segment(len: usize, flags: u8, byte: u8) -> Vec<u8> {
    let mut bytes = SEGMENT.to_vec();
    bytes.resize(len, byte);
    bytes[4 + 12] = 5 << 4;
    bytes[4 + 13] = flags;
    bytes
}

#[tokio::test]
async fn packets_arrive_as_they_were_sent_with_their_ecn_mark() {
    for local in ["127.0.0.1:0", "[::1]:0"] {
        let local: SocketAddr = local.parse().unwrap();
        let (mut a, mut b) = (UdpLink::bind(local).unwrap(), UdpLink::bind(local).unwrap());
        let (from, to) = (SocketAddr::new(ip(&a), a.port()), SocketAddr::new(ip(&b), b.port()));
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            let sent = packet(from, to, ecn, b"some bytes");
            send(&mut a, std::slice::from_ref(&sent)).await;
            let got = receive(&mut b).await;
            let packet = Packet::parse(&got).unwrap();
            assert_eq!((packet.src, packet.dst, packet.ecn), (from.ip(), to.ip(), ecn));
            let datagram = Datagram::parse(packet.payload).unwrap();
            assert_eq!((datagram.src_port, datagram.dst_port), (from.port(), to.port()));
            assert_eq!(datagram.payload, b"some bytes");
        }
    }
}

/// Offloads do not change the datagrams, nor the order within a connection.
#[tokio::test]
async fn datagrams_of_all_lengths_are_told_apart() {
    let (mut a, mut b) = (v4(), v4());
    let (from, to) = (SocketAddr::new(ip(&a), a.port()), SocketAddr::new(ip(&b), b.port()));
    let lens = [1200, 1200, 1200, 700, 1200, 24, 24, 24, 1200, 1200, 4, 0, 30, 1472, 24];
    let mut payloads: Vec<Vec<u8>> = lens.iter().enumerate().map(|(n, len)| vec![n as u8; *len]).collect();
    // More datagrams than one call takes, with SYNs among them.
    payloads.extend((0..70).map(|n| segment(1200, 0x10, n)));
    payloads.extend((0..3).map(|n| segment(1200, 0x02, n)));
    payloads.extend((0..3).map(|n| segment(1200, 0x10, n)));
    let packets: Vec<_> = payloads.iter().map(|p| packet(from, to, Ecn::NotEct, p)).collect();
    send(&mut a, &packets).await;
    let mut got = Vec::new();
    for _ in &payloads {
        let packet = receive(&mut b).await;
        let ip = Packet::parse(&packet).unwrap();
        got.push(Datagram::parse(ip.payload).unwrap().payload.to_vec());
    }
    // SYNs leave first. Among them, and among the others, the order stays.
    let is_syn =
        |payload: &Vec<u8>| payload.len() == 1200 && payload.get(..4) == Some(&SEGMENT) && payload[17] == 2;
    let apart = |all: Vec<Vec<u8>>| all.into_iter().partition::<Vec<_>, _>(is_syn);
    assert!(apart(got) == apart(payloads), "datagrams differ");
}

/// A runtime asks the system for news between two tasks, not within one.
#[tokio::test]
async fn a_link_that_looks_receives_what_the_runtime_does_not_know_of() {
    let mut link = v4();
    let to = SocketAddr::new(ip(&link), link.port());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut buf = vec![0; MTU];
    let mut receive_all = |link: &mut UdpLink| {
        let mut count = 0;
        while link.poll_recv(&mut Context::from_waker(std::task::Waker::noop()), &mut buf).is_ready() {
            count += 1;
        }
        count
    };
    for _ in 0..2 {
        assert_eq!(receive_all(&mut link), 0);
        // More than one call takes.
        (0..40).for_each(|_| assert_eq!(socket.send_to(b"news", to).unwrap(), 4));
        assert_eq!(receive_all(&mut link), 0, "this test is about what the runtime does not know");
        link.look();
        assert_eq!(receive_all(&mut link), 40);
    }
    socket.send_to(b"news", to).unwrap();
    assert!(receive(&mut link).await.ends_with(b"news"));
}

/// A socket that was used before becomes a link, at the same port.
#[tokio::test]
async fn a_bound_socket_becomes_a_link() {
    for local in ["127.0.0.1:0", "[::1]:0"] {
        let socket = std::net::UdpSocket::bind(local).unwrap();
        let at = socket.local_addr().unwrap();
        let mut b = UdpLink::bind(local.parse().unwrap()).unwrap();
        let to = SocketAddr::new(ip(&b), b.port());
        socket.send_to(b"before", to).unwrap();
        receive(&mut b).await;
        let mut a = UdpLink::adopt(socket).unwrap();
        assert_eq!((ip(&a), a.port()), (at.ip(), at.port()));
        send(&mut a, &[packet(at, to, Ecn::NotEct, b"after")]).await;
        let got = receive(&mut b).await;
        assert_eq!(Packet::parse(&got).unwrap().src, at.ip());
        send(&mut b, &[packet(to, at, Ecn::NotEct, b"back")]).await;
        assert!(receive(&mut a).await.ends_with(b"back"));
    }
    // It would receive packets of both families.
    let both = std::net::UdpSocket::bind("[::]:0").unwrap();
    assert_eq!(UdpLink::adopt(both).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn an_answer_leaves_from_the_address_that_was_asked() {
    let mut server = UdpLink::bind_all(0).unwrap();
    for asked in ["127.0.0.1", "127.0.0.2", "127.9.9.9", "::1"] {
        let asked: IpAddr = asked.parse().unwrap();
        let to = SocketAddr::new(asked, server.port());
        let mut client = UdpLink::towards(to).unwrap();
        let from = SocketAddr::new(ip(&client), client.port());
        send(&mut client, &[packet(from, to, Ecn::NotEct, b"ask")]).await;
        let got = receive(&mut server).await;
        assert_eq!(Packet::parse(&got).unwrap().dst, asked);
        send(&mut server, &[packet(to, from, Ecn::NotEct, b"answer")]).await;
        let got = receive(&mut client).await;
        assert_eq!(Packet::parse(&got).unwrap().src, asked);
    }
}

/// An address with a closed port.
fn nobody(local: &str) -> SocketAddr {
    let closed = UdpLink::bind(local.parse().unwrap()).unwrap();
    SocketAddr::new(ip(&closed), closed.port())
}

/// This also holds if the kernel reports an error about an earlier packet at the next call.
#[tokio::test]
async fn a_closed_port_at_the_other_end_does_not_end_the_link() {
    for heeds in [false, true] {
        let (mut a, mut b) = (v4(), v4());
        if heeds {
            a = a.heed_icmp().unwrap();
        }
        let (from, to) = (SocketAddr::new(ip(&a), a.port()), SocketAddr::new(ip(&b), b.port()));
        let nobody = nobody("127.0.0.1:0");
        for _ in 0..3 {
            send(&mut a, &[packet(from, nobody, Ecn::NotEct, b"lost")]).await;
        }
        send(&mut a, &[packet(from, to, Ecn::NotEct, b"there")]).await;
        assert!(receive(&mut b).await.ends_with(b"there"));
        send(&mut b, &[packet(to, from, Ecn::NotEct, b"back")]).await;
        // Errors may come first.
        while !receive(&mut a).await.ends_with(b"back") {}
    }
}

/// Each error arrives as the ICMP packet that the remote host sent, and the link continues.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_closed_port_is_told_as_an_icmp_packet() {
    use firstflight_wire::icmp::{self, IcmpErrorKind};
    for (local, all) in [("127.0.0.1:0", false), ("[::1]:0", false), ("127.0.0.1:0", true), ("[::1]:0", true)]
    {
        let nobody = nobody(local);
        let mut link = UdpLink::towards(nobody).unwrap();
        let own = ip(&link);
        if all {
            link = UdpLink::bind_all(0).unwrap().heed_icmp().unwrap();
        }
        let from = SocketAddr::new(own, link.port());
        let sent = segment(300, 0x02, 7);
        for _ in 0..3 {
            send(&mut link, &[packet(from, nobody, Ecn::NotEct, &sent)]).await;
            let got = receive(&mut link).await;
            let ip = Packet::parse(&got).unwrap();
            assert_eq!((ip.src, ip.dst), (nobody.ip(), own));
            let error = match ip.protocol {
                Protocol::Icmp => icmp::parse_v4(ip.payload).unwrap(),
                _ => icmp::parse_v6(ip.payload, ip.src, ip.dst).unwrap(),
            };
            assert_eq!(error.kind, IcmpErrorKind::PortUnreachable);
            assert_eq!((error.src, error.dst, error.protocol), (own, nobody.ip(), Protocol::Udp));
            assert_eq!(error.quoted[..4], [from.port().to_be_bytes(), nobody.port().to_be_bytes()].concat());
            assert_eq!(error.quoted[8..], sent);
        }
    }
}

/// One link for both families, which shares its sockets with another protocol.
#[tokio::test]
async fn a_client_has_both_families_on_one_port() {
    let remotes = ["192.0.2.1:4433", "[2001:db8::1]:4433"].map(|at| at.parse().unwrap());
    for known in [&remotes[..0], &remotes[..1], &remotes[1..], &remotes[..]] {
        let mut client = UdpLink::client(known).unwrap();
        assert_eq!(client.local_ips().filter(IpAddr::is_unspecified).count(), 2);
        let channel = client.channel(*b"XY");
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let mut server = UdpLink::bind(local.parse().unwrap()).unwrap();
            let to = SocketAddr::new(ip(&server), server.port());
            let from = SocketAddr::new(to.ip(), client.port());
            send(&mut client, &[packet(from, to, Ecn::NotEct, b"from one port")]).await;
            let got = receive(&mut server).await;
            let packet = Packet::parse(&got).unwrap();
            assert_eq!(Datagram::parse(packet.payload).unwrap().src_port, client.port());
            channel.send_to(b"XY and more", to).await.unwrap();
            assert!(receive(&mut server).await.ends_with(b"XY and more"));
        }
    }
}

#[tokio::test]
async fn what_is_not_the_sockets_own_is_refused() {
    let mut a = v4();
    let (from, to) = (SocketAddr::new(ip(&a), a.port()), "127.0.0.1:9".parse().unwrap());
    let good = packet(from, to, Ecn::NotEct, b"x");
    let mut tcp = good.clone();
    // The header's checksum follows the protocol's change.
    tcp[9] = 6;
    let sum = u16::from_be_bytes([tcp[10], tcp[11]]) + 11;
    tcp[10..12].copy_from_slice(&sum.to_be_bytes());
    assert!(Packet::parse(&tcp).is_ok());
    let other_port = packet(SocketAddr::new(ip(&a), a.port() ^ 1), to, Ecn::NotEct, b"x");
    let (v6, to_v6): (SocketAddr, _) =
        (SocketAddr::new("::1".parse().unwrap(), a.port()), "[::1]:9".parse().unwrap());
    let other_family = packet(v6, to_v6, Ecn::NotEct, b"x");
    for wrong in [&tcp, &other_port, &other_family, &good[..20].to_vec(), &Vec::new()] {
        let error = poll_fn(|cx| a.poll_send(cx, wrong)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let error = poll_fn(|cx| a.poll_recv(cx, &mut [0; MTU - 1])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn addresses_that_cannot_be_had_are_errors() {
    let taken = v4();
    let again = UdpLink::bind(SocketAddr::new(ip(&taken), taken.port()));
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    let elsewhere = UdpLink::bind("192.0.2.77:0".parse().unwrap());
    assert_eq!(elsewhere.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    let all = UdpLink::bind_all(0).unwrap();
    assert!(UdpLink::bind_all(all.port()).is_err());
    assert!(all.local_ips().all(|ip| ip.is_unspecified()));
}

/// Receive offload uses room in the control messages of a datagram, and must leave enough for the others.
#[tokio::test]
async fn datagrams_that_come_together_keep_their_address_and_ecn_mark() {
    for asked in ["127.0.0.2", "::1"] {
        let mut server = UdpLink::bind_all(0).unwrap();
        let to = SocketAddr::new(asked.parse().unwrap(), server.port());
        let mut client = UdpLink::towards(to).unwrap();
        let from = SocketAddr::new(ip(&client), client.port());
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            let sent: Vec<_> = (0..20).map(|n| packet(from, to, ecn, &segment(1200, 0x10, n))).collect();
            send(&mut client, &sent).await;
            for _ in &sent {
                let got = receive(&mut server).await;
                let packet = Packet::parse(&got).unwrap();
                assert_eq!((packet.src, packet.dst, packet.ecn), (from.ip(), to.ip(), ecn));
            }
        }
    }
}

/// Whether a second datagram like this one would join the first one's batch.
fn joins(socket: &mut Socket, datagram: &[u8]) -> bool {
    let target = Target { destination: socket.local, src: socket.local.ip(), ecn: Ecn::NotEct };
    let mut outboxes = std::mem::take(&mut socket.outbox);
    outboxes.push(target, datagram);
    let joins = !outboxes.full(&target, datagram, &socket.state);
    socket.outbox = outboxes.emptied();
    joins
}

/// An address of this host is removed while connections still use it. Only their segments are refused.
#[tokio::test]
async fn what_the_kernel_refuses_costs_only_itself() {
    let (mut a, mut b) = (UdpLink::bind_all(0).unwrap(), UdpLink::bind("[::1]:0".parse().unwrap()).unwrap());
    let (port, to) = (a.port(), SocketAddr::new(ip(&b), b.port()));
    let socket = a.v6.as_ref().unwrap();
    let offload = socket.outbox.segments(&socket.state);
    let gone = SocketAddr::new("2001:db8::5".parse().unwrap(), port);
    let refused = packet(gone, to, Ecn::NotEct, &segment(1200, 0x10, 0));
    let from = SocketAddr::new(to.ip(), port);
    for count in [1, 3] {
        send(&mut a, &vec![refused.clone(); count]).await;
        let syn = segment(1200, 0x02, 0);
        assert!(!joins(a.v6.as_mut().unwrap(), &syn), "first flights go alone after a refusal");
        let sent: Vec<_> = (0..3).map(|n| packet(from, to, Ecn::Ect0, &segment(1200, 0x10, n))).collect();
        send(&mut a, &sent).await;
        for expected in &sent {
            let got = receive(&mut b).await;
            let (got, sent) = (Packet::parse(&got).unwrap(), Packet::parse(expected).unwrap());
            assert_eq!((got.src, got.ecn), (from.ip(), Ecn::Ect0));
            assert_eq!(got.payload[8..], sent.payload[8..]);
        }
        let socket = a.v6.as_ref().unwrap();
        assert_eq!(socket.outbox.segments(&socket.state), offload);
        assert_eq!(joins(a.v6.as_mut().unwrap(), &syn), offload > 1);
    }
}

#[test]
fn only_what_can_be_answered_is_taken() {
    let any: IpAddr = Ipv6Addr::UNSPECIFIED.into();
    let taken = |src: &str, dst: &str, local: IpAddr| {
        let mut inbox = Inbox::new();
        inbox.put(src.parse().unwrap(), Some(dst.parse().unwrap()), b"datagram");
        inbox.next(SocketAddr::new(local, 4433), None, &mut [0; MTU]).is_some()
    };
    assert!(taken("[2001:db8::1]:5", "2001:db8::2", any));
    assert!(taken("192.0.2.1:5", "192.0.2.2", Ipv4Addr::UNSPECIFIED.into()));
    assert!(!taken("192.0.2.1:5", "255.255.255.255", Ipv4Addr::UNSPECIFIED.into()), "to everybody");
    assert!(!taken("192.0.2.1:5", "224.0.0.1", Ipv4Addr::UNSPECIFIED.into()), "to a group");
    assert!(!taken("[2001:db8::1]:5", "ff02::1", any), "to a group");
    assert!(!taken("192.0.2.1:0", "192.0.2.2", Ipv4Addr::UNSPECIFIED.into()), "from no port");
    // A link-local address is ambiguous without the link, which only the socket's own address can name.
    assert!(!taken("[fe80::1]:5", "fe80::2", any));
    assert!(taken("[fe80::1]:5", "fe80::2", "fe80::2".parse().unwrap()));
}

mod gathering {
    use super::*;
    use crate::udp::outbox::Outbox;

    fn target(port: u16) -> Target {
        let destination = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
        Target { destination, src: "127.0.0.1".parse().unwrap(), ecn: Ecn::NotEct }
    }

    #[test]
    fn equal_lengths_for_one_target_gather_and_a_shorter_one_is_the_last() {
        let mut outbox = Outbox::default();
        let data = segment(1200, 0x10, 1);
        assert!(outbox.takes(&target(1), &data, 64));
        outbox.push(target(1), &data);
        assert!(!outbox.takes(&target(2), &data, 64), "another place");
        let marked = Target { ecn: Ecn::Ect0, ..target(1) };
        assert!(!outbox.takes(&marked, &data, 64), "another mark");
        assert!(!outbox.takes(&target(1), &segment(1201, 0x10, 1), 64), "longer");
        assert!(!outbox.takes(&target(1), &[], 64));
        assert!(!outbox.takes(&target(1), &data, 1), "no offload");
        assert!(outbox.takes(&target(1), &data, 64));
        outbox.push(target(1), &data);
        assert!(!outbox.takes(&target(1), &data, 2), "the offload's limit");
        outbox.push(target(1), &segment(1199, 0x10, 1));
        assert!(!outbox.takes(&target(1), &segment(24, 0x10, 1), 64), "the last one was shorter");
    }

    #[test]
    fn one_call_is_bounded() {
        let mut outbox = Outbox::default();
        let data = segment(1472, 0x10, 1);
        let mut count = 0;
        while outbox.takes(&target(1), &data, 64) {
            outbox.push(target(1), &data);
            count += 1;
        }
        assert_eq!(count, MAX / 1472);
    }

    /// Once a batch went out as a whole, first flights join batches, too.
    #[tokio::test]
    async fn syns_join_when_a_batch_was_seen_to_work() {
        let bind = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (socket, to) = (Watched::new(bind()).unwrap(), bind());
        let state = offloads(&socket).unwrap();
        let at = target(to.local_addr().unwrap().port());
        let (data, syn) = (segment(1200, 0x10, 1), segment(1200, 0x02, 2));
        let mut outbox = Outboxes::default();
        if outbox.segments(&state) == 1 {
            return; // There are no batches here.
        }
        outbox.push(at, &syn);
        assert!(outbox.full(&at, &syn, &state), "nothing is known yet");
        assert!(!outbox.full(&at, &data, &state), "other segments have a batch of their own");
        outbox.push(at, &data);
        assert!(!outbox.full(&at, &data, &state));
        outbox.push(at, &data);
        while !outbox.is_empty() {
            outbox.send(&state, UdpSockRef::from(socket.get())).unwrap();
        }
        outbox.push(at, &syn);
        assert!(!outbox.full(&at, &syn, &state), "the batch was seen to work");
    }

    /// SYNs leave first.
    #[tokio::test]
    async fn what_opens_connections_leaves_before_the_rest() {
        let (mut a, mut b) = (v4(), v4());
        let (from, to) = (SocketAddr::new(ip(&a), a.port()), SocketAddr::new(ip(&b), b.port()));
        let sent: Vec<_> = [0x10, 0x02]
            .iter()
            .enumerate()
            .map(|(n, flags)| packet(from, to, Ecn::NotEct, &segment(100 + n, *flags, n as u8)))
            .collect();
        poll_fn(|cx| {
            for packet in &sent {
                assert!(a.poll_send(cx, packet).is_ready());
            }
            a.poll_flush(cx)
        })
        .await
        .unwrap();
        let lens = [receive(&mut b).await.len(), receive(&mut b).await.len()];
        assert_eq!(lens, [28 + 101, 28 + 100]);
    }

    const MAX: usize = 64_000;
}

#[tokio::test]
async fn another_protocol_uses_the_socket_beside_the_link() {
    for local in ["127.0.0.1:0", "[::1]:0"] {
        let mut link = UdpLink::bind(local.parse().unwrap()).unwrap();
        let at = SocketAddr::new(ip(&link), link.port());
        let mut channel = link.channel([0xff, 0x56]);
        let peer = UdpSocket::bind(SocketAddr::new(ip(&link), 0)).await.unwrap();
        channel.send_to(b"\xff\x56a question", peer.local_addr().unwrap()).await.unwrap();
        let mut buf = [0; 64];
        let (len, from) = peer.recv_from(&mut buf).await.unwrap();
        assert_eq!((&buf[..len], from), (&b"\xff\x56a question"[..], at));
        peer.send_to(b"\xff\x56an answer", at).await.unwrap();
        peer.send_to(b"\xff", at).await.unwrap();
        peer.send_to(b"\xff\x55neither", at).await.unwrap();
        // All other datagrams are the link's packets, in order.
        assert_eq!(
            Datagram::parse(Packet::parse(&receive(&mut link).await).unwrap().payload).unwrap().payload,
            b"\xff"
        );
        receive(&mut link).await;
        let (answer, from) = channel.recv_from().await.unwrap();
        assert_eq!((&*answer, from), (&b"\xff\x56an answer"[..], peer.local_addr().unwrap()));
        // Without the channel all of them are the link's.
        drop(channel);
        peer.send_to(b"\xff\x56late", at).await.unwrap();
        receive(&mut link).await;
    }
}

#[tokio::test]
async fn datagrams_that_nobody_takes_do_not_pile_up() {
    let mut link = v4();
    let mut channel = link.channel([1, 2]);
    let diversion = link.v4.as_ref().unwrap().diversion.clone().unwrap();
    let from: SocketAddr = "192.0.2.1:53".parse().unwrap();
    for _ in 0..1000 {
        assert!(diversion.takes(&[1, 2, 3], from));
    }
    // Longer datagrams are not kept.
    assert!(diversion.takes(&[[1, 2].as_slice(), &[0; MTU]].concat(), from));
    drop((link, diversion));
    let mut waiting = 0;
    while channel.recv_from().await.is_ok() {
        waiting += 1;
    }
    assert_eq!(waiting, 16);
}

/// The event loop wakes the thread for what it watches. The kernel reports room for sending whenever the other end has
/// taken a datagram.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn room_is_not_watched_while_no_send_waits() {
    use std::os::fd::AsRawFd;
    const EPOLLOUT: u32 = 4;
    let link = v4();
    let socket = format!("tfd: {:>8} events: ", link.v4.as_ref().unwrap().io.get().as_raw_fd());
    let watched: Vec<u32> = std::fs::read_dir("/proc/self/fdinfo")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| line.strip_prefix(&socket)?.split_whitespace().next().map(str::to_owned))
        .map(|events| u32::from_str_radix(&events, 16).unwrap())
        .collect();
    assert!(!watched.is_empty() && watched.iter().all(|events| events & EPOLLOUT == 0), "{watched:x?}");
}

/// After a send that found no room, the socket waits until there is some.
#[tokio::test]
async fn a_refused_send_goes_on_when_there_is_room() {
    let mut link = v4();
    let room = &mut link.v4.as_mut().unwrap().room;
    for _ in 0..3 {
        room.is_missing().unwrap();
        poll_fn(|cx| room.poll(cx)).await.unwrap();
        // From now on nothing waits.
        assert!(room.poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready());
    }
}

/// A link that has read all datagrams does not ask the system again before the event loop reports the next one. None
/// is forgotten, whenever it comes.
#[tokio::test]
async fn a_datagram_that_comes_after_the_last_one_was_read_is_found() {
    let (mut a, mut b) = (v4(), v4());
    let (from, to) = (SocketAddr::new(ip(&a), a.port()), SocketAddr::new(ip(&b), b.port()));
    for n in 0..200_u8 {
        let packet = packet(from, to, Ecn::NotEct, &segment(100, 0x10, n));
        let burst = 1 + usize::from(n % 11);
        send(&mut a, &vec![packet.clone(); burst]).await;
        if n % 3 == 0 {
            // The event loop has reported them.
            tokio::task::yield_now().await;
        }
        for _ in 0..burst - 1 {
            assert_eq!(receive(&mut b).await.pop(), Some(n));
        }
        // One is left, and one comes behind it.
        send(&mut a, std::slice::from_ref(&packet)).await;
        for _ in 0..2 {
            assert_eq!(receive(&mut b).await.pop(), Some(n));
        }
        let pending = poll_fn(|cx| Poll::Ready(b.poll_recv(cx, &mut [0; MTU]).is_pending())).await;
        assert!(pending);
    }
}
