use std::fs;
use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::task::Waker;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};

use super::*;

/// Runs `test` within a runtime, if the user is root. Otherwise prints why not.
fn as_root<F: Future<Output = ()>>(test: F) {
    if !unistd::geteuid().is_root() {
        eprintln!("skipped: making a TUN device needs root");
        return;
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: there is no /dev/net/tun");
        return;
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// A name for each test of each process, so that parallel runs do not conflict.
fn config(letter: char, host: &[(IpAddr, u8)]) -> TunConfig {
    TunConfig {
        name: format!("ff{letter}{}", std::process::id()),
        host: host.to_vec(),
        mtu: 1400,
        queue: 600,
        offload: true,
    }
}

/// Addresses from documentation and benchmarking ranges, the third byte different in each test.
fn v4(test: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(198, 18, test, host).into()
}

fn v6(test: u16, host: u16) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0xff, test, 0, 0, 0, 0, host).into()
}

/// The next whole UDP packet received. Skips the kernel's own packets.
async fn next_udp(tun: &mut Tun) -> Vec<u8> {
    let mut buf = vec![0; tun.mtu()];
    loop {
        let receive = poll_fn(|cx| tun.poll_recv(cx, &mut buf));
        let length = tokio::time::timeout(Duration::from_secs(10), receive)
            .await
            .expect("no packet within 10 s")
            .unwrap();
        let protocol = if buf[0] >> 4 == 4 { buf[9] } else { buf[6] };
        if protocol == 17 {
            return buf[..length].to_vec();
        }
    }
}

/// Swaps the addresses and ports of a UDP packet. Its checksums stay right, because they are sums.
fn turn_around(packet: &mut [u8]) {
    let (source, length, udp) =
        if packet[0] >> 4 == 4 { (12, 4, usize::from(packet[0] & 15) * 4) } else { (8, 16, 40) };
    let (sources, destinations) = packet[source..source + 2 * length].split_at_mut(length);
    sources.swap_with_slice(destinations);
    let (source_port, destination_port) = packet[udp..udp + 4].split_at_mut(2);
    source_port.swap_with_slice(destination_port);
}

async fn datagram_there_and_back(tun: &mut Tun, host: IpAddr, peer: IpAddr) {
    let socket = UdpSocket::bind(SocketAddr::new(host, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let destination = SocketAddr::new(peer, 4242);
    socket.send_to(b"through the tunnel", destination).unwrap();
    let mut packet = next_udp(tun).await;
    assert!(packet.ends_with(b"through the tunnel"));
    turn_around(&mut packet);
    poll_fn(|cx| tun.poll_send(cx, &packet)).await.unwrap();
    poll_fn(|cx| tun.poll_flush(cx)).await.unwrap();
    let mut buf = [0; 100];
    let (length, from) = socket.recv_from(&mut buf).unwrap_or_else(|e| panic!("{host}: {e}"));
    assert_eq!(&buf[..length], b"through the tunnel");
    assert_eq!(from, destination);
}

#[test]
fn packets_pass_both_ways_at_once_after_creation() {
    as_root(async {
        let (host4, second4, host6) = (v4(1, 1), v4(11, 1), v6(1, 1));
        let host = [(host4, 24), (second4, 24), (host6, 64)];
        for offload in [true, false] {
            let mut tun = Tun::create(config('b', &host).offload(offload)).unwrap();
            datagram_there_and_back(&mut tun, host4, v4(1, 2)).await;
        }
        let mut tun = Tun::create(config('a', &host)).unwrap();
        // The fourth field must not have 0x40, tentative, which means that duplicate address detection is
        // running.
        let hex = format!("{:032x}", u128::from_be_bytes(v6_octets(host6)));
        let table = fs::read_to_string("/proc/net/if_inet6").unwrap();
        let line = table.lines().find(|line| line.starts_with(&hex)).unwrap();
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(fields[5], tun.name());
        assert_eq!(fields[2], "40", "prefix of 64 bits");
        assert_eq!(u32::from_str_radix(fields[4], 16).unwrap() & 0x40, 0, "{line}");

        datagram_there_and_back(&mut tun, host4, v4(1, 2)).await;
        datagram_there_and_back(&mut tun, second4, v4(11, 2)).await;
        datagram_there_and_back(&mut tun, host6, v6(1, 2)).await;
    });
}

/// A runtime asks the system for news between two tasks, not within one.
#[test]
fn a_link_that_looks_receives_what_the_runtime_does_not_know_of() {
    as_root(async {
        let host = v4(12, 1);
        for offload in [true, false] {
            let mut tun = Tun::create(config('l', &[(host, 24)]).offload(offload)).unwrap();
            let mut buf = vec![0; tun.mtu()];
            let mut receive =
                |tun: &mut Tun| match tun.poll_recv(&mut Context::from_waker(Waker::noop()), &mut buf) {
                    Poll::Ready(len) => buf[..len.unwrap()].to_vec(),
                    Poll::Pending => Vec::new(),
                };
            while !receive(&mut tun).is_empty() {}
            let socket = UdpSocket::bind(SocketAddr::new(host, 0)).unwrap();
            socket.send_to(b"news", SocketAddr::new(v4(12, 2), 4242)).unwrap();
            assert!(receive(&mut tun).is_empty(), "this test is about what the runtime does not know");
            tun.look();
            let packets: Vec<_> =
                std::iter::from_fn(|| Some(receive(&mut tun)).filter(|packet| !packet.is_empty())).collect();
            assert!(packets.iter().any(|packet| packet.ends_with(b"news")), "{packets:?}");
            datagram_there_and_back(&mut tun, host, v4(12, 2)).await;
        }
    });
}

fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(_) => panic!("not IPv6"),
    }
}

#[test]
fn device_has_its_mtu_and_vanishes_when_dropped() {
    as_root(async {
        let tun = Tun::create(config('b', &[(v4(2, 1), 24)])).unwrap();
        let name = tun.name().to_owned();
        assert_eq!(tun.device.mtu().unwrap(), 1400);
        assert_eq!(tun.device.tx_queue_len().unwrap(), 600);
        assert!(tun.device.is_running().unwrap());
        let netmask = getifaddrs()
            .unwrap()
            .filter(|interface| interface.interface_name == name)
            .find_map(|interface| interface.netmask?.as_sockaddr_in().map(|mask| mask.ip()));
        assert_eq!(netmask, Some(Ipv4Addr::new(255, 255, 255, 0)));
        drop(tun);
        assert!(if_nametoindex(name.as_str()).is_err());
    });
}

#[test]
fn the_queue_has_the_configured_length() {
    as_root(async {
        let (host, peer) = (v4(6, 1), SocketAddr::new(v4(6, 2), 4242));
        let tun = Tun::create(TunConfig { queue: 3000, ..config('g', &[(host, 24)]) }).unwrap();
        let dropped = format!("/sys/class/net/{}/statistics/tx_dropped", tun.name());
        let socket = UdpSocket::bind(SocketAddr::new(host, 0)).unwrap();
        // The test does not read, and the kernel may send a few packets of its own.
        for _ in 0..2900 {
            socket.send_to(b"x", peer).unwrap();
        }
        assert_eq!(fs::read_to_string(dropped).unwrap().trim(), "0");
    });
}

/// Disciplines of 256 queues took 100 MB of the kernel's memory, and so much time that other servers' answers were late.
#[test]
fn a_device_has_no_queueing_discipline() {
    as_root(async {
        let one = Tun::create(config('q', &[])).unwrap();
        let several = Tun::create_queues(&config('r', &[]), 2).unwrap();
        for name in [one.name(), &config('r', &[]).name] {
            let Ok(shown) = std::process::Command::new("ip").args(["link", "show", name]).output() else {
                eprintln!("skipped: there is no ip, of iproute2");
                return;
            };
            let shown = String::from_utf8(shown.stdout).unwrap();
            assert!(shown.contains("qdisc noqueue"), "{shown}");
            assert!(shown.contains("qlen 600"), "{shown}");
        }
        drop(several);
    });
}

#[test]
fn name_and_address_in_use_are_told() {
    as_root(async {
        let first = Tun::create(config('c', &[(v4(3, 1), 24)])).unwrap();
        let same_name = Tun::create(config('c', &[(v4(3, 9), 32)])).unwrap_err();
        assert!(matches!(same_name, TunError::NameTaken(name) if name == first.name()));
        let other = config('d', &[(v4(3, 1), 24)]);
        let Err(TunError::AddressInUse { address, device }) = Tun::create(other) else {
            panic!("the address was accepted twice");
        };
        assert_eq!((address, device.as_str()), (v4(3, 1), first.name()));
        let twice = config('d', &[(v4(3, 2), 24), (v4(3, 2), 24)]);
        assert!(matches!(Tun::create(twice), Err(TunError::AddressInUse { .. })));
        let loopback = TunConfig { name: "lo".to_owned(), ..TunConfig::default() };
        assert!(matches!(Tun::create(loopback), Err(TunError::NameTaken(_))));
    });
}

#[test]
fn short_buffer_is_the_callers_fault() {
    as_root(async {
        let mut tun = Tun::create(config('e', &[])).unwrap();
        let mut buf = [0; 1399];
        let error = poll_fn(|cx| tun.poll_recv(cx, &mut buf)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn senseless_configurations_are_refused() {
    let refused = |change: fn(&mut TunConfig)| {
        let mut config = TunConfig::default();
        change(&mut config);
        Tun::create(config).unwrap_err()
    };
    let names = ["", "sixteen-bytes-xx", "a/b", "a b", "tun%d", "..", "a\0"];
    for name in names {
        let config = TunConfig { name: name.to_owned(), ..TunConfig::default() };
        let error = Tun::create(config).unwrap_err();
        assert!(matches!(error, TunError::NameInvalid(_)), "{name:?}");
    }
    for (address, prefix) in [
        (v4(4, 1), 33),
        (v6(4, 1), 129),
        (Ipv4Addr::UNSPECIFIED.into(), 24),
        (Ipv4Addr::BROADCAST.into(), 24),
        ("ff02::1".parse().unwrap(), 64),
    ] {
        let config = TunConfig { host: vec![(address, prefix)], ..TunConfig::default() };
        let error = Tun::create(config).unwrap_err();
        assert!(matches!(error, TunError::AddressInvalid { .. }), "{address}/{prefix}");
    }
    assert!(matches!(refused(|c| c.mtu = 67), TunError::MtuTooSmall { minimum: 68, .. }));
    assert!(matches!(
        refused(|c| (c.mtu, c.host) = (1279, vec![(v6(4, 1), 64)])),
        TunError::MtuTooSmall { minimum: 1280, .. }
    ));
    assert!(matches!(refused(|_| ()), TunError::NoRuntime));
}

/// Each answer of the kernel leads to the right advice. A test cannot provoke these answers everywhere.
#[test]
fn system_errors_become_advice() {
    let create = |errno: Errno| TunError::from_creation("tun0", errno.into()).to_string();
    assert!(create(Errno::EPERM).contains("CAP_NET_ADMIN"));
    assert!(create(Errno::EACCES).contains("/dev/net/tun"));
    assert!(create(Errno::ENOENT).contains("modprobe tun"));
    assert!(create(Errno::ENODEV).contains("container"));
    assert!(create(Errno::EBUSY).contains("\"tun0\" exists"));
    let add = |address: IpAddr, errno: Errno| TunError::from_address(address, errno.into());
    let v6_off = add(v6(5, 1), Errno::EACCES).to_string();
    assert!(v6_off.contains("disable_ipv6"));
    assert!(matches!(add(v4(5, 1), Errno::EACCES), TunError::Permission));
    let other = TunError::from_creation("tun0", Errno::EMFILE.into());
    assert!(matches!(other, TunError::System { .. }));
}

#[test]
fn the_right_to_make_a_device_is_known_without_making_one() {
    let status =
        |digits: &str| format!("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{digits}\nCapBnd:\t0\n");
    assert_eq!(may_administer(&status("000001ffffffffff")), Some(true));
    assert_eq!(may_administer(&status("0000000000001000")), Some(true));
    assert_eq!(may_administer(&status("000001ffffffefff")), Some(false));
    assert_eq!(may_administer(&status("0000000000000000")), Some(false));
    assert_eq!((may_administer("Name:\tx\n"), may_administer(&status("?"))), (None, None));
    as_root(async { Tun::check_permission().unwrap() });
}

/// A new network namespace. The thread that is in it keeps it until the sender of the pair is dropped.
fn room() -> (fs::File, std::sync::mpsc::Sender<()>, std::thread::JoinHandle<bool>) {
    let (file_to, file) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        file_to.send(fs::File::open("/proc/thread-self/ns/net").unwrap()).unwrap();
        let _ = ended.recv();
        if_nametoindex("wire0").is_ok()
    });
    (file.recv().unwrap(), end, thread)
}

#[test]
fn a_device_is_made_in_another_namespace_and_goes_with_it() {
    as_root(async {
        let (namespace, end, thread) = room();
        let device = TunDevice::create("wire0", 1400, Some(namespace.as_fd())).unwrap();
        assert!(if_nametoindex("wire0").is_err());
        assert_eq!(device.recv(&mut [0; 1400]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // The device is down.
        assert_eq!(errno(&device.send(&[0x45; 40]).unwrap_err()), Some(Errno::EIO));
        let again = TunDevice::create("wire0", 1400, Some(namespace.as_fd())).unwrap_err();
        assert!(matches!(again, TunError::NameTaken(name) if name == "wire0"));
        drop((namespace, end));
        assert!(thread.join().unwrap(), "no device in the namespace");
        let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, 10_000u16).unwrap(), 1, "not told within 10 s");
        assert!(fds[0].revents().unwrap().contains(PollFlags::POLLERR));
        // The kernel reports it a moment before it removes the device.
        let mut gone = device.recv(&mut [0; 1400]).unwrap_err();
        for _ in 0..10_000 {
            if gone.kind() != io::ErrorKind::WouldBlock {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            gone = device.recv(&mut [0; 1400]).unwrap_err();
        }
        assert_eq!(errno(&gone), Some(Errno::EBADFD));
    });
}

#[test]
fn a_device_in_this_namespace_has_its_name_and_vanishes_when_dropped() {
    as_root(async {
        let name = config('f', &[]).name;
        let device = TunDevice::create(&name, 1400, None).unwrap();
        assert!(if_nametoindex(name.as_str()).is_ok());
        assert!(matches!(TunDevice::create(&name, 1400, None), Err(TunError::NameTaken(_))));
        drop(device);
        assert!(if_nametoindex(name.as_str()).is_err());
        assert!(matches!(TunDevice::create("a/b", 1400, None), Err(TunError::NameInvalid(_))));
    });
}
