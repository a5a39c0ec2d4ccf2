//! What the program says about packets, by the kernel itself (`BPF_PROG_TEST_RUN`), and that a packet socket's screen says the same.
//! Needs root, but no device.

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use super::frame::SynOpening;
use super::maps::{ConnectionOwner, Duty, Maps};
use super::program::{Dropped, assemble};
use super::screen::{FrameFate, Screen};
use super::{Allow, Transport, sys};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

struct Bench {
    program: OwnedFd,
    maps: Maps,
    screen: Screen,
    served: RefCell<HashSet<(SocketAddr, Transport)>>,
}

const REASONS: [Dropped; Dropped::COUNT] = [
    Dropped::Options,
    Dropped::Fragment,
    Dropped::Source,
    Dropped::NotAllowed,
    Dropped::NoSocket,
    Dropped::Flood,
];
/// SYNs of a kind that may wait.
const SYNS: u64 = 3;

impl Bench {
    /// The program for port 80 of two addresses in TCP, and port 81 in UDP. `None` without privileges.
    fn new(allow: Option<&[&str]>) -> Option<Self> {
        Self::that_passes(allow, false)
    }

    /// `pass`: the program can pass the kernel's connections.
    fn that_passes(allow: Option<&[&str]>, pass: bool) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: loading a program needs root");
            return None;
        }
        let maps = Maps::create(1, SYNS, pass).unwrap();
        let tcp = ["192.0.2.1:80", "[2001:db8::1]:80"].map(|at| (at.parse().unwrap(), Transport::Tcp));
        let udp = ["192.0.2.1:81", "[2001:db8::1]:81"].map(|at| (at.parse().unwrap(), Transport::Udp));
        let served: Vec<(SocketAddr, Transport)> = tcp.into_iter().chain(udp).collect();
        for (number, (at, transport)) in (0..).zip(&served) {
            maps.serve(number, *at, *transport).unwrap();
        }
        for prefix in allow.unwrap_or_default() {
            maps.allow(prefix.parse().unwrap()).unwrap();
        }
        let code = assemble(MAC, &maps, allow.is_none()).unwrap();
        let program = sys::load(&code, "test").unwrap_or_else(|(error, log)| panic!("{error}: {log}"));
        let allow = allow.map_or(Allow::Any, |prefixes| {
            Allow::Prefixes(prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect())
        });
        let served = RefCell::new(served.into_iter().collect());
        Some(Self { program, maps, screen: Screen { mac: MAC, allow }, served })
    }

    fn counts(&self) -> Vec<u64> {
        REASONS.map(|why| self.maps.dropped(why)).to_vec()
    }

    /// What the program says, and what this process says about the packet of a packet socket.
    fn fate(&self, frame: &[u8]) -> FrameFate {
        // No flood.
        self.maps.let_open(0, self.maps.opened(0).map(|count| count + SYNS));
        let fate = self.fate_by_program(frame);
        let served = self.served.borrow();
        let serves = |host, port, transport| served.contains(&(SocketAddr::new(host, port), transport));
        assert_eq!(self.screen.fate(frame, serves), fate, "{frame:02x?}");
        fate
    }

    /// A packet that is taken is dropped here, because the test has no sockets.
    fn fate_by_program(&self, frame: &[u8]) -> FrameFate {
        let before = self.counts();
        let action = sys::test_run(self.program.as_fd(), frame).unwrap();
        let after = self.counts();
        let changed: Vec<_> =
            REASONS.into_iter().zip(before.iter().zip(&after)).filter(|(_, (a, b))| a != b).collect();
        match (action, changed.as_slice()) {
            (2, []) => FrameFate::Passed,
            (1, [(Dropped::NoSocket, _)]) => FrameFate::Taken,
            (1, [(why, _)]) => FrameFate::Dropped(*why),
            other => panic!("{other:?}"),
        }
    }
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&MAC[..], &PEER, &kind, packet].concat()
}

/// A packet with these ports, and twenty more bytes.
fn packet(protocol: u8, from: &str, to: &str) -> Vec<u8> {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut transport = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    transport.extend([0; 20]);
    ip(protocol, from, to, &transport)
}

fn ip(protocol: u8, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            let mut packet = vec![0x45, 0, 0, 20 + payload.len() as u8, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            packet.extend(from.ip().octets());
            packet.extend(to.ip().octets());
            [&packet, payload].concat()
        }
        (SocketAddr::V6(from), SocketAddr::V6(to)) => {
            let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, protocol, 64];
            packet.extend(from.ip().octets());
            packet.extend(to.ip().octets());
            [&packet, payload].concat()
        }
        _ => panic!("two families"),
    }
}

const CLIENTS: [&str; 2] = ["198.51.100.7:5000", "[2001:db8:1::7]:5000"];
const SERVERS: [&str; 2] = ["192.0.2.1:80", "[2001:db8::1]:80"];

#[test]
fn only_the_served_ports_are_taken() {
    let Some(bench) = Bench::new(None) else { return };
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        assert_eq!(bench.fate(&frame(&packet(6, client, server))), FrameFate::Taken);
        assert_eq!(bench.fate(&frame(&packet(17, client, server))), FrameFate::Passed, "UDP of the TCP port");
        let udp = server.replace(":80", ":81").replace("::1]:80", "::1]:81");
        assert_eq!(bench.fate(&frame(&packet(17, client, &udp))), FrameFate::Taken);
        assert_eq!(bench.fate(&frame(&packet(6, client, &udp))), FrameFate::Passed);
        let other_port = server.replace(":80", ":22");
        assert_eq!(bench.fate(&frame(&packet(6, client, &other_port))), FrameFate::Passed);
        let other_host = server.replace("2.1:", "2.9:").replace("::1]", "::9]");
        assert_eq!(bench.fate(&frame(&packet(6, client, &other_host))), FrameFate::Passed);
        assert_eq!(bench.fate(&frame(&packet(132, client, server))), FrameFate::Passed, "SCTP");
    }
}

#[test]
fn frames_for_other_stations_and_vlans_pass() {
    let Some(bench) = Bench::new(None) else { return };
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        let good = frame(&packet(6, client, server));
        for byte in 0..6 {
            let mut other = good.clone();
            other[byte] ^= 4;
            assert_eq!(bench.fate(&other), FrameFate::Passed);
        }
        let mut tagged = good.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(bench.fate(&tagged), FrameFate::Passed);
        let mut arp = good.clone();
        arp[13] = 6;
        assert_eq!(bench.fate(&arp), FrameFate::Passed);
    }
}

/// Nothing is read beyond the end of a frame, and the kernel gets what is too short.
#[test]
fn short_frames_pass() {
    let Some(bench) = Bench::new(None) else { return };
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        let packet = packet(6, client, server);
        let ports = 14 + packet.len() - 20;
        let good = frame(&packet);
        for len in 14..good.len() {
            let expected = if len < ports { FrameFate::Passed } else { FrameFate::Taken };
            assert_eq!(bench.fate(&good[..len]), expected, "{len} bytes");
        }
    }
}

#[test]
fn options_and_first_fragments_of_a_served_port_are_dropped() {
    let Some(bench) = Bench::new(None) else { return };
    let good = packet(6, CLIENTS[0], SERVERS[0]);
    let mut options = good.clone();
    options[0] = 0x46;
    for words in 6..=15 {
        options[0] = 0x40 | words;
        options.splice(20..20, [1, 1, 1, 1]);
        assert_eq!(bench.fate(&frame(&options)), FrameFate::Dropped(Dropped::Options));
        // The same to another port is the kernel's.
        let mut other = options.clone();
        other[4 * usize::from(words) + 3] = 22;
        assert_eq!(bench.fate(&frame(&other)), FrameFate::Passed);
    }
    let mut first = good.clone();
    first[6] = 0x20;
    assert_eq!(bench.fate(&frame(&first)), FrameFate::Dropped(Dropped::Fragment));
    // Later fragments have no ports. The kernel gets them, and drops what it cannot complete.
    let mut later = good.clone();
    later[7] = 5;
    assert_eq!(bench.fate(&frame(&later)), FrameFate::Passed);
    // The same to another port is the kernel's.
    let other = packet(6, CLIENTS[0], "192.0.2.1:22");
    let mut first = other.clone();
    first[6] = 0x20;
    assert_eq!(bench.fate(&frame(&first)), FrameFate::Passed);
    // Behind an extension header of IPv6, the port is not looked for: the holder drops the packet.
    let mut extended = packet(6, CLIENTS[1], SERVERS[1]);
    extended[6] = 0;
    extended.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(bench.fate(&frame(&extended)), FrameFate::Passed);
}

#[test]
fn sources_that_are_no_hosts_or_our_own_are_dropped() {
    let Some(bench) = Bench::new(None) else { return };
    let sources = ["0.1.2.3", "127.0.0.1", "224.0.0.1", "239.1.1.1", "255.255.255.255", "192.0.2.1"];
    for source in sources {
        let bad = packet(6, &format!("{source}:80"), SERVERS[0]);
        assert_eq!(bench.fate(&frame(&bad)), FrameFate::Dropped(Dropped::Source), "{source}");
    }
    // From another port of our own address: the kernel's programs do not come this way.
    for source in ["::", "::1", "ff02::1", "2001:db8::1"] {
        let bad = packet(6, &format!("[{source}]:80"), SERVERS[1]);
        assert_eq!(bench.fate(&frame(&bad)), FrameFate::Dropped(Dropped::Source), "{source}");
    }
    for source in ["1.0.0.1", "126.255.255.255", "128.0.0.1", "223.255.255.255"] {
        assert_eq!(bench.fate(&frame(&packet(6, &format!("{source}:80"), SERVERS[0]))), FrameFate::Taken);
    }
    assert_eq!(bench.fate(&frame(&packet(6, "[::2]:80", SERVERS[1]))), FrameFate::Taken);
}

#[test]
fn only_allowed_sources_are_taken() {
    let Some(bench) = Bench::new(Some(&["198.51.100.0/24", "10.0.0.0/8", "2001:db8:1::/48"])) else { return };
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        assert_eq!(bench.fate(&frame(&packet(6, client, server))), FrameFate::Taken);
    }
    for (client, server) in ["198.51.101.7:5000", "[2001:db8:2::7]:5000"].into_iter().zip(SERVERS) {
        let fate = bench.fate(&frame(&packet(6, client, server)));
        assert_eq!(fate, FrameFate::Dropped(Dropped::NotAllowed), "{client}");
    }
    // Other ports of the host are none of this program's business.
    assert_eq!(bench.fate(&frame(&packet(6, "203.0.113.1:9", "192.0.2.1:22"))), FrameFate::Passed);
}

/// An ICMP message from a router about a packet between these ports.
fn report(ty: u8, router: &str, host: &str, from: &str, to: &str, protocol: u8) -> Vec<u8> {
    let quoted = packet(protocol, from, to);
    let message = [&[ty, 0, 0, 0, 0, 0, 5, 220], &quoted[..]].concat();
    let (router, host): (SocketAddr, SocketAddr) =
        (format!("{router}:0").parse().unwrap(), format!("{host}:0").parse().unwrap());
    ip(if router.is_ipv4() { 1 } else { 58 }, router, host, &message)
}

#[test]
fn icmp_errors_about_our_packets_are_taken_and_others_pass() {
    let Some(bench) = Bench::new(Some(&["198.51.100.0/24", "2001:db8:1::/48"])) else { return };
    let (server, client) = (SERVERS[0], CLIENTS[0]);
    let v4 = |ty, from, to, protocol| frame(&report(ty, "203.0.113.1", "192.0.2.1", from, to, protocol));
    for ty in 0..=20 {
        let expected = if [3, 11].contains(&ty) { FrameFate::Taken } else { FrameFate::Passed };
        assert_eq!(bench.fate(&v4(ty, server, client, 6)), expected, "type {ty}");
    }
    assert_eq!(bench.fate(&v4(3, "192.0.2.1:22", client, 6)), FrameFate::Passed, "about another port");
    assert_eq!(bench.fate(&v4(3, "192.0.2.1:81", client, 17)), FrameFate::Taken, "about our UDP");
    assert_eq!(bench.fate(&v4(3, server, "203.0.113.9:1", 6)), FrameFate::Passed, "about no client of ours");
    let elsewhere = report(3, "203.0.113.1", "192.0.2.9", server, client, 6);
    assert_eq!(bench.fate(&frame(&elsewhere)), FrameFate::Passed, "not to the host that it is about");

    let (server, client) = (SERVERS[1], CLIENTS[1]);
    let v6 =
        |ty, from, to, protocol| frame(&report(ty, "[2001:db8:9::1]", "[2001:db8::1]", from, to, protocol));
    for ty in [0, 1, 2, 3, 4, 5, 128, 135, 136] {
        let expected = if (1..=4).contains(&ty) { FrameFate::Taken } else { FrameFate::Passed };
        assert_eq!(bench.fate(&v6(ty, server, client, 6)), expected, "type {ty}");
    }
    assert_eq!(bench.fate(&v6(2, "[2001:db8::1]:22", client, 6)), FrameFate::Passed);
    assert_eq!(bench.fate(&v6(2, "[2001:db8::1]:81", client, 17)), FrameFate::Taken);
}

/// An address that goes is not served, and is no source that is served here either. Nothing else changes.
#[test]
fn what_is_not_served_any_more_is_the_kernels() {
    let Some(bench) = Bench::new(None) else { return };
    for (number, ((client, server), other)) in
        (0..).zip(CLIENTS.into_iter().zip(SERVERS).zip(SERVERS.into_iter().rev()))
    {
        let [mine, theirs] = [(client, server), (CLIENTS[1 - number as usize], other)]
            .map(|(client, server)| frame(&packet(6, client, server)));
        let ours = frame(&packet(6, server, &server.replace(":80", ":22")));
        let own = frame(&packet(6, server, server));
        let at = (server.parse().unwrap(), Transport::Tcp);
        bench.maps.set_present(number, false);
        bench.served.borrow_mut().remove(&at);
        assert_eq!(bench.fate(&mine), FrameFate::Passed);
        assert_eq!(bench.fate(&own), FrameFate::Passed);
        assert_eq!(bench.fate(&theirs), FrameFate::Taken);
        bench.maps.set_present(number, true);
        bench.served.borrow_mut().insert(at);
        assert_eq!(bench.fate(&mine), FrameFate::Taken);
        assert_eq!(bench.fate(&own), FrameFate::Dropped(Dropped::Source));
        assert_eq!(bench.fate(&ours), FrameFate::Passed);
    }
}

/// What the program says about packets between a client's ports and a server.
struct Between<'a> {
    bench: &'a Bench,
    client: &'static str,
    server: &'static str,
}

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

impl Between<'_> {
    fn from(&self, port: u16) -> String {
        self.client.replace(":5000", &format!(":{port}"))
    }

    fn segment(&self, port: u16, flags: u8) -> FrameFate {
        let mut packet = packet(6, &self.from(port), self.server);
        let at = if self.client.starts_with('[') { 40 } else { 20 };
        packet[at + 12..at + 14].copy_from_slice(&[0x50, flags]);
        self.bench.maps.let_open(0, self.bench.maps.opened(0).map(|count| count + SYNS));
        self.bench.fate_by_program(&frame(&packet))
    }

    fn error(&self, port: u16) -> FrameFate {
        let host = |at: &str| at.rsplit_once(':').unwrap().0.to_owned();
        let too_big = if self.client.starts_with('[') { 2 } else { 3 };
        let (from, to) = (host(self.client), host(self.server));
        self.bench.fate_by_program(&frame(&report(too_big, &from, &to, self.server, &self.from(port), 6)))
    }

    /// Of a connection that begins, goes on, and has an error.
    fn all(&self, port: u16) -> [FrameFate; 3] {
        [self.segment(port, SYN), self.segment(port, ACK), self.error(port)]
    }

    fn own(&self, port: u16, owner: ConnectionOwner) {
        self.bench.maps.own(self.server.parse().unwrap(), self.from(port).parse().unwrap(), owner).unwrap();
    }

    fn has(&self, duty: Duty) {
        self.bench.maps.set_duty(duty);
        assert!(self.bench.maps.has_duty(duty));
    }
}

/// Runs the test for IPv4 and IPv6.
fn between(test: fn(&Between<'_>)) {
    let Some(bench) = Bench::that_passes(None, true) else { return };
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        bench.maps.set_duty(Duty::Take);
        test(&Between { bench: &bench, client, server });
    }
}

const PASSED: [FrameFate; 3] = [FrameFate::Passed; 3];
const TAKEN: [FrameFate; 3] = [FrameFate::Taken; 3];

/// With two processes at a port, connections go where they began: SYNs by the program's duty, the rest by what it remembers.
#[test]
fn connections_of_the_kernel_are_passed() {
    between(|it| {
        // At the start, until it is known what the kernel has.
        it.has(Duty::PassAll);
        assert_eq!([it.segment(1, SYN), it.segment(2, ACK), it.error(2)], PASSED);
        it.own(3, ConnectionOwner::Kernel);
        it.has(Duty::PassKnown);
        assert_eq!([it.all(1), it.all(3)], [PASSED; 2]);
        assert_eq!([it.all(2), it.all(4)], [TAKEN; 2]);
        // The kernel has been asked again: whose SYN was passed in the beginning, and has no connection, is not the kernel's.
        it.has(Duty::PassKernels);
        assert_eq!([it.all(3), it.all(1)], [PASSED, TAKEN]);
        it.bench.maps.forget_passed().unwrap();
        // At the end.
        it.has(Duty::PassNew);
        assert_eq!(it.all(5), PASSED);
        assert_eq!([it.segment(4, ACK), it.error(4)], [FrameFate::Taken; 2]);
        assert_eq!([it.segment(5, ACK), it.segment(3, ACK), it.error(3)], PASSED);
        assert_eq!(it.segment(1, ACK), FrameFate::Taken);
        let datagram = frame(&packet(17, it.client, &it.server.replace(":80", ":81")));
        assert_eq!(it.bench.fate_by_program(&datagram), FrameFate::Taken);
        it.has(Duty::Take);
        assert_eq!([it.segment(1, ACK), it.segment(5, ACK), it.segment(6, SYN)], TAKEN);
        assert_eq!([it.error(5), it.error(3)], [FrameFate::Taken; 2]);
        // Later, at the next end: clients have used the ports again since, for connections that were taken.
        it.has(Duty::PassNew);
        assert_eq!(it.all(7), PASSED);
        assert_eq!([it.segment(1, ACK), it.segment(3, ACK), it.segment(5, ACK)], TAKEN);
        assert_eq!([it.error(5), it.error(3)], [FrameFate::Taken; 2]);
    });
}

/// Anybody can send a SYN in another host's name: it moves no connection from one process to the other.
#[test]
fn a_forged_syn_moves_no_connection() {
    between(|it| {
        it.own(1, ConnectionOwner::Engine);
        it.has(Duty::PassNew);
        assert_eq!([it.all(1), it.all(1)], [TAKEN; 2]);
        assert_eq!(it.all(2), PASSED);
        let passed = |port| {
            let remote = it.from(port).parse().unwrap();
            it.bench.maps.has_passed(it.server.parse().unwrap(), remote).unwrap()
        };
        assert!(passed(2) && !passed(1) && !passed(3));
        // One that began meanwhile, by a SYN cookie.
        assert_eq!(it.segment(3, ACK), FrameFate::Taken);
        it.own(3, ConnectionOwner::Engine);
        it.bench.maps.change_duty(Duty::PassNew, Duty::PassOthers);
        assert_eq!([it.all(1), it.all(3)], [TAKEN; 2]);
        // However many SYNs come, they push out nothing: nothing of them is remembered.
        assert_eq!([it.all(4), it.all(2)], [PASSED; 2]);
        assert_eq!([it.segment(5, ACK), it.error(5)], [FrameFate::Passed; 2]);
        // It is over, and its client uses the port again.
        it.bench.maps.disown(it.server.parse().unwrap(), it.from(1).parse().unwrap()).unwrap();
        assert_eq!(it.all(1), PASSED);
        // Another process has taken over, and is replaced itself.
        it.has(Duty::Take);
        it.has(Duty::PassOthers);
        assert_eq!(it.all(3), PASSED);
    });
}

/// Frames with some bytes changed, and cut somewhere: program and screen agree.
#[test]
fn changed_frames_have_one_fate() {
    let Some(bench) = Bench::new(Some(&["198.51.100.0/24", "2001:db8:1::/48"])) else { return };
    let mut good = Vec::new();
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        let host = server.replace("]:80", "]").replace("1:80", "1");
        good.push(packet(6, client, server));
        good.push(report(3, client.rsplit_once(':').unwrap().0, &host, server, client, 6));
    }
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let mut taken = 0;
    for n in 0..20_000 {
        let mut frame = frame(&good[n % good.len()]);
        for _ in 0..random(4) {
            let at = random(frame.len());
            // Few values, which mean something: versions, protocols, fragments, lengths.
            frame[at] = [0, 1, 3, 6, 11, 17, 58, 0x20, 0x45, 0x46, 0x60, 80, 81, 127, 224, 255][random(16)];
        }
        frame.truncate(frame.len() - random(2) * random(44));
        taken += usize::from(bench.fate(&frame) == FrameFate::Taken);
    }
    assert!((2_000..19_000).contains(&taken), "{taken} of them were taken");
}

/// A TCP segment with these flags and options, and some data.
fn segment(client: &str, server: &str, flags: u8, options: usize, data: usize) -> Vec<u8> {
    let (from, to): (SocketAddr, SocketAddr) = (client.parse().unwrap(), server.parse().unwrap());
    let mut tcp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    tcp.extend([0; 8]);
    tcp.extend([(((20 + options) / 4) << 4) as u8, flags]);
    tcp.extend(vec![1; 6 + options + data]);
    frame(&ip(6, from, to, &tcp))
}

/// A flood of SYNs leaves room for first flights, and both for the packets of connections.
#[test]
fn as_many_syns_of_a_kind_are_taken_as_may_wait() {
    let Some(bench) = Bench::new(None) else { return };
    let mut taken = [0; 2];
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        let kinds = [(0, 12, 0), (1, 12, 1)];
        for (kind, options, data) in kinds {
            let syn = segment(client, server, 0x02, options, data);
            assert_eq!(SynOpening::of(&syn[14..]).map(|kind| kind as usize), Some(kind));
            for _ in 0..3 {
                assert_eq!(bench.fate_by_program(&syn), FrameFate::Taken);
            }
            assert_eq!(bench.fate_by_program(&syn), FrameFate::Dropped(Dropped::Flood));
            taken[kind] += 3;
            assert_eq!(bench.maps.opened(0), taken);
        }
        for (flags, data) in [(0x12, 0), (0x10, 0), (0x18, 5), (0x11, 0), (0x04, 0)] {
            let other = segment(client, server, flags, 12, data);
            assert_eq!(SynOpening::of(&other[14..]), None);
            assert_eq!(bench.fate_by_program(&other), FrameFate::Taken, "{flags:#x}");
        }
        // The process has handled them.
        bench.maps.let_open(0, taken.map(|count| count + SYNS));
    }
}
