//! The link on a veth, in network namespaces that end with the test. Needs root.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use firstflight_wire::ip::{Packet, Protocol};
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::udp::Datagram;
use nix::sched::{CloneFlags, unshare};
use socket2::SockRef;

use super::maps::Duty;
use super::*;
use crate::Link;

const DEVICE: &str = "ffx0";
const PEER: &str = "ffx1";
const HOSTS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const CLIENTS: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Gives a device an address, which can be used at once.
fn give(address: &str, device: &str) {
    let bits = if address.contains(':') { "64" } else { "24" };
    let at_once = if address.contains(':') { "nodad" } else { "" };
    ip(&format!("address add {address}/{bits} dev {device} {at_once}"));
}

type Task = Box<dyn FnOnce() + Send>;

/// The other end of the cable: a thread in a namespace of its own, which runs what it is given.
struct Far(mpsc::Sender<Task>);

impl Far {
    fn start() -> (Self, nix::unistd::Pid) {
        let (tasks, given) = mpsc::channel::<Task>();
        let (ready, started) = mpsc::channel();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ready.send(nix::unistd::gettid()).unwrap();
            given.into_iter().for_each(|task| task());
        });
        (Self(tasks), started.recv().unwrap())
    }

    /// Runs `task` there, and waits for its result.
    fn run<R: Send + 'static>(&self, task: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, result) = mpsc::channel();
        self.0.send(Box::new(move || done.send(task()).unwrap())).unwrap();
        result.recv().unwrap()
    }

    /// Runs `task` there, and returns at once.
    fn begin(&self, task: impl FnOnce() + Send + 'static) {
        self.0.send(Box::new(task)).unwrap();
    }
}

/// Runs `test` in a namespace with one end of a cable, whose devices have this many queues.
fn on_a_cable(queues: u32, test: fn(Far)) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let body = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let (far, thread) = Far::start();
        let count = format!("numtxqueues {queues} numrxqueues {queues}");
        let namespace = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
        ip(&format!("link add {DEVICE} {count} type veth peer name {PEER} {count} netns {namespace}"));
        HOSTS.into_iter().for_each(|address| give(address, DEVICE));
        far.run(|| {
            CLIENTS.into_iter().for_each(|address| give(address, PEER));
            ip(&format!("link set {PEER} up"));
            ip("link set lo up");
        });
        ip(&format!("link set {DEVICE} up"));
        ip("link set lo up");
        test(far);
    };
    std::thread::spawn(body).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn block_on<F: Future<Output = ()>>(test: F) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

fn hold(transport: Transport, port: u16) -> Vec<PortHolder> {
    let index = XdpDevice::find(DEVICE).unwrap().index;
    let at = |host: &str| SocketAddr::new(host.parse().unwrap(), port);
    HOSTS.map(|host| PortHolder::new(at(host), transport, index).unwrap()).into()
}

fn config(mode: Mode) -> XdpConfig {
    XdpConfig::new(DEVICE, Allow::Any).mode(mode)
}

async fn receive(links: &mut [Xdp]) -> (usize, Vec<u8>) {
    let mut buf = vec![0; 1500];
    let (queue, len) = poll_fn(|cx| {
        for (queue, link) in links.iter_mut().enumerate() {
            if let std::task::Poll::Ready(got) = link.poll_recv(cx, &mut buf) {
                return std::task::Poll::Ready((queue, got.unwrap()));
            }
        }
        std::task::Poll::Pending
    })
    .await;
    buf.truncate(len);
    (queue, buf)
}

async fn send(link: &mut Xdp, packet: &[u8]) {
    poll_fn(|cx| link.poll_send(cx, packet)).await.unwrap();
    poll_fn(|cx| link.poll_flush(cx)).await.unwrap();
}

fn open(config: &XdpConfig, holders: Vec<PortHolder>) -> Vec<Xdp> {
    Xdp::attach(config, holders).unwrap().into_iter().map(|queue| queue.open().unwrap()).collect()
}

/// The answer to a datagram: addresses and ports change places.
fn answer(packet: &[u8]) -> Vec<u8> {
    let mut answer = packet.to_vec();
    let (at, addresses, len) = if packet[0] >> 4 == 4 { (20, 12, 4) } else { (40, 8, 16) };
    let swap = |bytes: &mut [u8], from: usize, len: usize| {
        let (a, b) = bytes[from..from + 2 * len].split_at_mut(len);
        a.swap_with_slice(b);
    };
    swap(&mut answer, addresses, len);
    swap(&mut answer, at, 2);
    answer
}

/// Datagrams and SYNs from a kernel arrive with right checksums, and answers find their way back, by the kernel's routes and
/// neighbours.
fn packets_go_both_ways(mode: Mode, far: &Far) {
    if mode != Mode::Driver {
        far.run(|| {
            let _ = Command::new("ethtool").args(["-K", PEER, "tso", "off", "gso", "off"]).output();
        });
    }
    block_on(async {
        let holders = hold(Transport::Udp, 81).into_iter().chain(hold(Transport::Tcp, 80)).collect();
        let mut links = open(&config(mode), holders);
        for (host, client) in HOSTS.into_iter().zip(CLIENTS) {
            let (host, client): (IpAddr, IpAddr) = (host.parse().unwrap(), client.parse().unwrap());
            let (sent, answered) = tokio::sync::oneshot::channel();
            far.begin(move || {
                let socket = UdpSocket::bind(SocketAddr::new(client, 0)).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                socket.send_to(b"question", SocketAddr::new(host, 81)).unwrap();
                let mut buf = [0; 100];
                let got = socket.recv_from(&mut buf).map(|(len, from)| (buf[..len].to_vec(), from));
                sent.send(got).unwrap();
            });
            let (queue, packet) = receive(&mut links).await;
            let parsed = Packet::parse(&packet).unwrap();
            assert_eq!((parsed.src, parsed.dst, parsed.protocol), (client, host, Protocol::Udp));
            let datagram = Datagram::parse_checked(parsed.payload, parsed.src, parsed.dst).unwrap();
            assert_eq!(datagram.payload, b"question");
            send(&mut links[queue], &answer(&packet)).await;
            // An address that the kernel has to resolve first is waited for by polling.
            let mut answered = answered;
            let got = loop {
                tokio::select! {
                    got = &mut answered => break got.unwrap().unwrap(),
                    _ = receive(&mut links) => {}
                }
            };
            assert_eq!(got, (b"question".to_vec(), SocketAddr::new(host, 81)));

            far.begin(move || {
                let _ = TcpStream::connect_timeout(&SocketAddr::new(host, 80), Duration::from_millis(1));
            });
            let (_, packet) = receive(&mut links).await;
            let parsed = Packet::parse(&packet).unwrap();
            let segment = Segment::parse_checked(parsed.payload, parsed.src, parsed.dst).unwrap();
            assert!(segment.flags.contains(Flags::SYN));
        }
        let counters = links[0].status().counters().unwrap();
        assert_eq!(counters, XdpCounters::default());
    });
}

#[test]
fn packets_go_both_ways_in_the_driver() {
    on_a_cable(1, |far| packets_go_both_ways(Mode::Driver, &far));
}

#[test]
fn packets_go_both_ways_in_generic_mode() {
    on_a_cable(1, |far| packets_go_both_ways(Mode::Generic, &far));
}

#[test]
fn packets_go_both_ways_by_a_packet_socket() {
    on_a_cable(1, |far| packets_go_both_ways(Mode::Packet, &far));
}

#[test]
fn packets_go_both_ways_on_four_queues() {
    on_a_cable(4, |far| {
        assert_eq!(XdpDevice::find(DEVICE).unwrap().queues, 4);
        // A veth does not say how it chooses a queue.
        block_on(async {
            let links = open(&config(Mode::Driver), hold(Transport::Tcp, 82));
            assert!(links.iter().all(|link| link.comes_here().is_none()));
        });
        packets_go_both_ways(Mode::Driver, &far);
    });
}

/// Packets that come so fast that the queue is never empty find room.
#[test]
fn slots_are_given_back_before_a_queue_is_empty() {
    on_a_cable(1, |far| {
        block_on(async {
            let mut links = open(&config(Mode::Driver), hold(Transport::Udp, 81));
            let to = SocketAddr::new(HOSTS[0].parse().unwrap(), 81);
            let send = |count: u32| {
                far.run(move || {
                    let socket = UdpSocket::bind(SocketAddr::new(CLIENTS[0].parse().unwrap(), 5000)).unwrap();
                    (0..count).for_each(|_| assert_eq!(socket.send_to(b"datagram", to).unwrap(), 8));
                });
            };
            send(100);
            // More than the ring has places.
            for _ in 0..100 {
                for _ in 0..50 {
                    receive(&mut links).await;
                }
                send(50);
                assert_eq!(links[0].status().counters().unwrap(), XdpCounters::default());
            }
        });
    });
}

/// The kernel is asked once for all hosts of a prefix, and follows a rule and a longer prefix that come later.
#[test]
fn hosts_of_a_prefix_have_one_way_until_the_routes_differ() {
    on_a_cable(1, |far| {
        let mac = |device: &str| XdpDevice::find(device).unwrap().mac;
        let router = far.run(move || mac(PEER));
        ip(&format!("route add 198.18.0.0/15 via {} dev {DEVICE}", CLIENTS[0]));
        block_on(async {
            let mut links = open(&config(Mode::Driver), hold(Transport::Udp, 81));
            let src: IpAddr = HOSTS[0].parse().unwrap();
            let mut ways = |hosts: std::ops::Range<u32>| {
                let way = |n: u32| links[0].way(src, IpAddr::from((0xc612_0000_u32 + n).to_be_bytes()));
                hosts.map(way).collect::<Vec<_>>()
            };
            ways(0..1);
            tokio::time::sleep(Duration::from_millis(200)).await;
            // The neighbour is resolved.
            assert_eq!(ways(0..1000), vec![Some(router); 1000]);
            ip("route add blackhole 198.18.1.0/24");
            ip("rule add to 198.18.2.0/24 table 77");
            ip("route add unreachable default table 77");
            tokio::time::sleep(Duration::from_millis(200)).await;
            for (hosts, way) in [(0..256, Some(router)), (256..768, None), (768..1000, Some(router))] {
                assert_eq!(ways(hosts.clone()), vec![way; hosts.len()], "{hosts:?}");
            }
        });
    });
}

/// As a process that has given up its privileges: the kernel finds next hops, and follows an address that goes and comes.
fn next_hops_without_privileges(family: usize, far: &Far) {
    let mac = far.run(|| XdpDevice::find(PEER).unwrap().mac);
    let (host, client): (IpAddr, IpAddr) = (HOSTS[family].parse().unwrap(), CLIENTS[family].parse().unwrap());
    block_on(async {
        let mut links = open(&config(Mode::Driver), hold(Transport::Udp, 81));
        privileges::reduce(0).unwrap();
        let denied = std::fs::read("/proc/thread-self/status").unwrap();
        assert!(String::from_utf8(denied).unwrap().contains("CapEff:\t0000000000000000"));
        assert_eq!(links[0].way(host, client), None);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while links[0].way(host, client) != Some(mac) {
            assert!(std::time::Instant::now() < deadline, "not resolved");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(links[0].attached().serves(host, 81, Transport::Udp));
        links[0].attached().address(host, false);
        assert!(!links[0].attached().serves(host, 81, Transport::Udp));
        assert!(!links[0].attached().has_other_queues());
    });
}

#[test]
fn next_hops_of_ipv4_are_found_without_privileges() {
    on_a_cable(1, |far| next_hops_without_privileges(0, &far));
}

#[test]
fn next_hops_of_ipv6_are_found_without_privileges() {
    on_a_cable(1, |far| next_hops_without_privileges(1, &far));
}

/// A device that is taken while the kernel has connections at a shared port: they go on there, new ones come by the device, and when they
/// are over the program does not look for them any more.
fn connections_of_the_kernel_go_on(family: usize, far: &Far) {
    let at = SocketAddr::new(HOSTS[family].parse().unwrap(), 80);
    let holder = share(at, &Allow::Any);
    let listener = holder.listener().unwrap().unwrap();
    listener.set_nonblocking(false).unwrap();
    let connect = move || TcpStream::connect_timeout(&at, Duration::from_secs(20)).unwrap();
    let mut client = far.run(connect);
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // One of this host's own does not count.
    let own = connect();
    block_on(async {
        let mut links = open(&config(Mode::Driver).hand_over(true), vec![holder]);
        client.write_all(b"hello").unwrap();
        let mut got = [0; 5];
        accepted.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
        far.begin(move || {
            let _ = TcpStream::connect_timeout(&at, Duration::from_millis(1));
        });
        let (_, packet) = receive(&mut links).await;
        let parsed = Packet::parse(&packet).unwrap();
        let segment = Segment::parse_checked(parsed.payload, parsed.src, parsed.dst).unwrap();
        assert!(segment.flags.contains(Flags::SYN));
        assert!(links[0].attached().has_duty(Duty::PassKnown));
        assert!(!links[0].attached().has_settled());
        assert!(links[0].attached().has_duty(Duty::PassKernels));
        // Without TIME-WAIT.
        SockRef::from(&accepted).set_linger(Some(Duration::ZERO)).unwrap();
        drop(accepted);
        // One look may miss a connection.
        assert!(!links[0].attached().has_settled());
        assert!(links[0].attached().has_settled());
        assert!(links[0].attached().has_duty(Duty::Take));
        assert!(links[0].status().pass_new() && links[0].attached().has_duty(Duty::PassNew));
    });
    drop(own);
}

#[test]
fn connections_of_the_kernel_in_ipv4_go_on() {
    on_a_cable(1, |far| connections_of_the_kernel_go_on(0, &far));
}

#[test]
fn connections_of_the_kernel_in_ipv6_go_on() {
    on_a_cable(1, |far| connections_of_the_kernel_go_on(1, &far));
}

fn share(at: SocketAddr, allow: &Allow) -> PortHolder {
    PortHolder::shared(at, XdpDevice::find(DEVICE).unwrap().index, allow).unwrap()
}

/// Until a process has the device, the kernel serves the port for it, to those that it allows.
#[test]
fn who_is_not_allowed_gets_no_connection_of_the_kernel() {
    on_a_cable(1, |far| {
        for (family, allowed, others) in [
            (
                0,
                ["192.0.2.2/32", "192.0.2.0/25", "128.0.0.0/1"],
                ["192.0.2.3", "192.0.2.128/25", "2001:db8::/32"],
            ),
            (
                1,
                ["2001:db8::2/128", "2001:db8::/67", "::/0"],
                ["2001:db8::3", "2001:db8:0:0:8000::/65", "0.0.0.0/0"],
            ),
        ] {
            let at = SocketAddr::new(HOSTS[family].parse().unwrap(), 80);
            let prefixes =
                |texts: &[&str]| Allow::Prefixes(texts.iter().map(|text| text.parse().unwrap()).collect());
            let connects =
                |ms: u64| move || TcpStream::connect_timeout(&at, Duration::from_millis(ms)).is_ok();
            for prefix in allowed {
                let _holder = share(at, &prefixes(&["198.51.100.0/24", "2001:db8:1::/48", prefix]));
                assert!(far.run(connects(20_000)), "{prefix}");
            }
            let _holder = share(at, &prefixes(&others));
            assert!(!far.run(connects(300)));
            // Programs of this host do not come by the device.
            assert!(connects(20_000)());
        }
    });
}

/// Two processes that share a port: the first has the device, the second waits for it.
fn one_waits() -> (Vec<XdpQueue>, Vec<LateQueue>, XdpStatus) {
    let at = SocketAddr::new(HOSTS[0].parse().unwrap(), 80);
    let config = config(Mode::Driver).hand_over(true);
    let shared = || vec![share(at, &Allow::Any)];
    let first = Xdp::attach(&config, shared()).unwrap();
    let (late, device) = LateQueue::prepare(config, shared()).unwrap();
    let status = device.begin(|| {}).unwrap();
    assert!(status.waits_for().is_some() && !status.is_attached() && status.waits_because().is_none());
    (first, late, status)
}

fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Until everything else of the second process is ready, the first has all connections.
#[test]
fn who_only_prepares_gets_no_connection() {
    on_a_cable(1, |_| {
        let at = SocketAddr::new(HOSTS[0].parse().unwrap(), 80);
        let config = config(Mode::Driver).hand_over(true);
        let holder = share(at, &Allow::Any);
        let first = holder.listener().unwrap().unwrap();
        let queues = Xdp::attach(&config, vec![holder]).unwrap();
        let holder = share(at, &Allow::Any);
        let second = holder.listener().unwrap().unwrap();
        let (late, device) = LateQueue::prepare(config, vec![holder]).unwrap();
        let comes_to = |listener: &std::net::TcpListener| {
            let client = TcpStream::connect_timeout(&at, Duration::from_secs(20)).unwrap();
            let (_, from) = listener.accept().unwrap();
            assert_eq!(from, client.local_addr().unwrap());
        };
        (0..20).for_each(|_| comes_to(&first));
        let status = device.begin(|| {}).unwrap();
        (0..20).for_each(|_| comes_to(&second));
        // Nothing was taken away by trying.
        assert!(status.waits_for().is_some() && queues[0].status().is_attached());
        drop(late);
    });
}

/// A connection of the kernel is over. Its client uses the port again: for a connection to the engine.
#[test]
fn a_port_that_is_used_again_is_the_engines() {
    on_a_cable(1, |far| {
        let at = SocketAddr::new(HOSTS[0].parse().unwrap(), 80);
        let holder = share(at, &Allow::Any);
        let listener = holder.listener().unwrap().unwrap();
        listener.set_nonblocking(false).unwrap();
        let connect = move |port: u16, ms: u64| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::new(CLIENTS[0].parse().unwrap(), port).into()).unwrap();
            let _ = socket.connect_timeout(&at.into(), Duration::from_millis(ms));
            socket.set_linger(Some(Duration::ZERO)).unwrap();
            socket
        };
        let _stays = far.run(move || connect(4000, 20_000));
        let ends = far.run(move || connect(4001, 20_000));
        let accepted: Vec<_> = (0..2).map(|_| listener.accept().unwrap()).collect();
        block_on(async {
            let mut links = open(&config(Mode::Driver).hand_over(true), vec![holder]);
            assert!(!links[0].attached().has_settled());
            drop((ends, accepted.into_iter().find(|(_, from)| from.port() == 4001)));
            // Until the kernel has it no more.
            while connections::peers(at).unwrap().0.len() > 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // One look may miss a connection.
            assert!(!links[0].attached().has_settled());
            assert!(!links[0].attached().has_settled());
            far.begin(move || drop(connect(4001, 1)));
            let (_, packet) = receive(&mut links).await;
            let parsed = Packet::parse(&packet).unwrap();
            let segment = Segment::parse_checked(parsed.payload, parsed.src, parsed.dst).unwrap();
            assert!(segment.src_port == 4001 && segment.flags.contains(Flags::SYN));
        });
    });
}

/// A connection of the kernel that comes by another device is none that the program passes.
#[test]
fn connections_by_another_device_are_not_waited_for() {
    on_a_cable(1, |far| {
        let namespace =
            far.run(|| format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid()));
        ip(&format!("link add ffy0 type veth peer name ffy1 netns {namespace}"));
        ip("address add 198.51.100.1/24 dev ffy0");
        ip("link set ffy0 up");
        far.run(|| {
            ip("address add 198.51.100.2/24 dev ffy1");
            ip("link set ffy1 up");
        });
        let at = SocketAddr::new(HOSTS[0].parse().unwrap(), 80);
        let holder = share(at, &Allow::Any);
        let connect = move || TcpStream::connect_timeout(&at, Duration::from_secs(20)).unwrap();
        let before = far.run(connect);
        block_on(async {
            let links = open(&config(Mode::Driver).hand_over(true), vec![holder]);
            assert!(!links[0].attached().has_settled());
            far.run(move || ip(&format!("route add {} via 198.51.100.1", HOSTS[0])));
            let _later = far.run(connect);
            assert!(!links[0].attached().has_settled());
            SockRef::from(&before).set_linger(Some(Duration::ZERO)).unwrap();
            far.run(move || ip(&format!("route del {}", HOSTS[0])));
            drop(before);
            until(|| links[0].attached().has_settled());
            assert!(links[0].attached().has_duty(Duty::Take));
        });
    });
}

/// It would serve with nobody to accept, and hold the port meanwhile.
#[test]
fn who_ends_while_it_waits_takes_no_device() {
    on_a_cable(1, |_| {
        let (first, late, status) = one_waits();
        assert!(status.pass_new());
        drop(first);
        // Nobody holds the port, and nobody takes the device.
        let at = SocketAddr::new(HOSTS[0].parse().unwrap(), 80);
        until(|| std::net::TcpListener::bind(at).is_ok());
        drop(Xdp::attach(&config(Mode::Driver), hold(Transport::Tcp, 80)).unwrap());
        assert!(!status.is_attached());
        drop(late);
    });
}

/// The second one serves by the kernel already.
#[test]
fn who_waits_goes_on_when_the_device_is_refused() {
    on_a_cable(1, |_| {
        let (first, late, status) = one_waits();
        ip(&format!("address del {}/24 dev {DEVICE}", HOSTS[0]));
        until(|| status.waits_because().is_some_and(|why| why.contains(HOSTS[0])));
        give(HOSTS[0], DEVICE);
        drop(first);
        until(|| status.is_attached());
        assert!(status.waits_because().is_none());
        drop(late);
    });
}

/// With other queues than engines, some would have no engine.
#[test]
fn who_waits_takes_no_device_that_has_changed() {
    on_a_cable(1, |_| {
        let (first, late, status) = one_waits();
        ip(&format!("link set {DEVICE} mtu 1400"));
        drop(first);
        until(|| status.waits_because().is_some_and(|why| why.contains("another MTU")));
        ip(&format!("link set {DEVICE} mtu 1500"));
        until(|| status.is_attached());
        drop(late);
    });
}

#[test]
fn packet_mode_shares_no_port() {
    on_a_cable(1, |_| {
        let holder = share(SocketAddr::new(HOSTS[0].parse().unwrap(), 80), &Allow::Any);
        let refused = Xdp::attach(&config(Mode::Packet).hand_over(true), vec![holder]);
        assert!(matches!(refused, Err(XdpError::NotShared)));
    });
}

/// Packets to a neighbour that does not answer do not push out one to a neighbour that does.
#[test]
fn a_packet_waits_for_its_neighbour_beside_many() {
    on_a_cable(1, |far| {
        block_on(async {
            let mut links = open(&config(Mode::Driver), hold(Transport::Udp, 81));
            let (host, client): (IpAddr, IpAddr) = (HOSTS[0].parse().unwrap(), CLIENTS[0].parse().unwrap());
            let socket = far.run(move || UdpSocket::bind(SocketAddr::new(client, 5000)).unwrap());
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            // No packet has come from there, so nothing is known of it.
            send(&mut links[0], &datagram(host, client)).await;
            for _ in 0..200 {
                send(&mut links[0], &datagram(host, "192.0.2.99".parse().unwrap())).await;
            }
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            let mut got = [0; 100];
            while socket.recv(&mut got).is_err() {
                assert!(std::time::Instant::now() < deadline, "lost");
                tokio::select! {
                    _ = receive(&mut links) => {}
                    () = tokio::time::sleep(Duration::from_millis(5)) => {}
                }
            }
            assert_eq!(&got[..8], b"question");
            assert!(links[0].status().counters().unwrap().unreachable > 100);
        });
    });
}

/// A datagram of IPv4 from port 81 to port 5000, without a checksum.
fn datagram(src: IpAddr, dst: IpAddr) -> Vec<u8> {
    let around = firstflight_wire::ip::Header {
        src,
        dst,
        protocol: Protocol::Udp,
        hop_limit: 64,
        ecn: firstflight_wire::ip::Ecn::NotEct,
        dont_fragment: true,
        identification: 0,
    };
    let mut packet = vec![0; around.len()];
    for half in [81_u16, 5000, 16, 0] {
        packet.extend(half.to_be_bytes());
    }
    packet.extend(b"question");
    let len = packet.len() - around.len();
    around.emit(len, &mut packet).unwrap();
    packet
}
