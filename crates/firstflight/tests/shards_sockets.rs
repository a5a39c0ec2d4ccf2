//! Shards on threads of their own: over UDP sockets that share a port, and over the queues of a TUN device. The test with
//! a device needs root and is skipped otherwise.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use firstflight::credential::{FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use firstflight::link::SharedUdp;
use firstflight::link::{Tun, TunConfig};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Sharding, Workers};
use nix::sched::{CloneFlags, unshare};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A limit for a machine under load.
const LONG: Duration = Duration::from_secs(120);

/// The threads that served connections.
type Threads = Arc<Mutex<HashSet<ThreadId>>>;

/// Answers requests of five bytes with the same bytes, each shard on its own thread.
fn serve(listener: Listener, workers: &Workers) -> Threads {
    let threads = Threads::default();
    for (index, listener) in listener.split().into_iter().enumerate() {
        let threads = Arc::clone(&threads);
        workers.spawn(index, async move {
            while let Ok(mut stream) = listener.accept().await {
                threads.lock().unwrap().insert(thread::current().id());
                tokio::spawn(async move {
                    let mut request = [0; 5];
                    stream.read_exact(&mut request).await?;
                    stream.write_all(&request).await?;
                    stream.shutdown().await
                });
            }
        });
    }
    threads
}

fn fast_open(local: SocketAddr) -> ListenConfig {
    let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
    let pending = Arc::new(PendingLimit::with_clients(1024, 1024));
    ListenConfig::new(local).fast_open(Some(FastOpenPolicy::new(Arc::new(keys), pending)))
}

fn config(address: &str) -> firstflight::Config {
    firstflight::config(vec![address.parse().unwrap()]).unwrap()
}

/// Each socket gets a part of the datagrams, and each shard has a part of the connections: all combinations work.
#[tokio::test]
async fn shards_share_a_udp_port() {
    let shared = |at: &str| SharedUdp::reserve(at.parse().unwrap()).unwrap();
    let (workers, others) = (Workers::start(2).unwrap(), Workers::start(2).unwrap());
    let (at_server, at_client) = (shared("127.0.0.1:0"), shared("127.0.0.2:0"));
    let start = |workers, at: SharedUdp| {
        let address = at.local_addr().ip().to_string();
        Endpoint::sharded_over_udp(&config(&address), &Sharding::new(workers), at, 2).unwrap()
    };
    let (server, client) = (start(&workers, at_server), start(&others, at_client));
    let service = SocketAddr::new(at_server.local_addr().ip(), 80);
    let threads = serve(server.listen(fast_open(service)).unwrap(), &workers);
    let connect = ConnectConfig::default().fast_open(true).encapsulation(Some(at_server.local_addr().port()));
    let connect = Arc::new(connect);
    for n in 0..64_u8 {
        let (client, connect) = (client.clone(), Arc::clone(&connect));
        // From the threads of the client's shards, and so by each shard.
        let visit = others.spawn(usize::from(n), async move {
            let request = [n; 5];
            let first = FirstFlight::safely_replayable(&request);
            let mut stream = client.connect(service, first, &connect).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            assert_eq!(answer, request);
            io::Result::Ok(())
        });
        tokio::time::timeout(LONG, visit).await.unwrap().unwrap().unwrap();
    }
    // How many were accepted early depends on the load of the machine: `tests/shards.rs` counts them in virtual time.
    assert_eq!(threads.lock().unwrap().len(), 2, "both shards serve");
    let opens: Vec<_> = client.counters_by_shard().iter().map(|shard| shard.active_opens).collect();
    assert_eq!(opens, [32, 32], "each connect is on the shard of its thread");
    assert!(client.counters().handed_over > 0, "the kernel cannot know the owners of all flows");
    client.shutdown(LONG).await;
    server.shutdown(LONG).await;
    assert!(SharedUdp::reserve(at_server.local_addr()).is_ok(), "the port is free again");
}

#[tokio::test]
async fn a_port_of_another_socket_is_not_shared() {
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let refused = SharedUdp::reserve(other.local_addr().unwrap()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    let shared = SharedUdp::reserve("127.0.0.1:0".parse().unwrap()).unwrap();
    let _link = shared.link().unwrap();
    let refused = SharedUdp::reserve(shared.local_addr()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "another group has it");
}

/// Runs `test` on a thread in a network namespace of its own, if the user is root. Otherwise prints why not.
fn in_namespace(test: fn()) {
    if !nix::unistd::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: a TUN device needs root and /dev/net/tun");
        return;
    }
    thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        test();
    })
    .join()
    .unwrap();
}

/// The kernel's TCP visits an endpoint with a shard for each queue of a TUN device.
#[test]
fn shards_have_the_queues_of_a_tun_device() {
    in_namespace(|| {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.is_ok_and(|status| status.success()));
        let workers = Workers::start(2).unwrap();
        let device =
            TunConfig::default().name("ffshards0".to_owned()).host(vec![("10.9.0.1".parse().unwrap(), 24)]);
        let queues = Tun::create_queues(&device, 2).unwrap();
        let links = queues.into_iter().map(|queue| {
            let mut queue = Some(queue);
            move || queue.take().ok_or(io::ErrorKind::NotConnected)?.open().map_err(io::Error::other)
        });
        let sharding = Sharding::new(&workers);
        let server = Endpoint::sharded(&config("10.9.0.2"), &sharding, links.collect()).unwrap();
        let service: SocketAddr = "10.9.0.2:80".parse().unwrap();
        let threads = serve(server.listen(fast_open(service)).unwrap(), &workers);
        for n in 0..64_u8 {
            let mut stream = TcpStream::connect_timeout(&service, LONG).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(&[n; 5]).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, [n; 5]);
        }
        assert_eq!(threads.lock().unwrap().len(), 2, "both shards serve");
        let by_shard = server.counters_by_shard();
        assert!(by_shard.iter().all(|shard| shard.passive_opens > 8), "{by_shard:?}");
        let all = server.counters();
        assert_eq!((all.passive_opens, all.resets_sent), (64, 0));
        let outside = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        outside.block_on(server.shutdown(LONG));
        let gone = Command::new("ip").args(["link", "show", "ffshards0"]).output().unwrap();
        assert!(!gone.status.success(), "the device is gone");
    });
}
