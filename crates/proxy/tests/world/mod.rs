//! A network namespace with servers, a resolver and a proxy.
#![allow(clippy::unwrap_used, dead_code, reason = "tests; each uses a part of it")]

use firstflight::record::Names;
use firstflight::{Client, ClientBuilder};
use firstflight_proxy::{Event, Proxy, ProxyBuilder};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{RData, Record, RecordType};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

/// A public address, on this machine. The proxies of the tests are allowed to reach it.
pub(crate) const PUBLIC: [u8; 4] = [198, 51, 100, 1];
pub(crate) const OTHER: [u8; 4] = [198, 51, 100, 2];
/// A server that answers nothing: its packets vanish.
pub(crate) const SILENT: [u8; 4] = [203, 0, 113, 9];
/// A private one, on this machine.
pub(crate) const PRIVATE: [u8; 4] = [10, 1, 2, 3];

/// Runs `test` in a namespace of its own, in which Fast Open is on and the addresses above are this machine's.
pub(crate) fn in_world<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making a network namespace needs root");
        return;
    }
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        if !ip(&["link", "set", "lo", "up"]) {
            eprintln!("skipped: there is no ip command");
            return;
        }
        for address in [PUBLIC, OTHER, PRIVATE] {
            assert!(ip(&["addr", "add", &format!("{}/32", IpAddr::from(address)), "dev", "lo"]));
        }
        // Nobody at its other end answers.
        assert!(ip(&["link", "add", "void", "type", "veth", "peer", "name", "beyond"]));
        assert!(ip(&["link", "set", "void", "up", "arp", "off"]) && ip(&["link", "set", "beyond", "up"]));
        assert!(ip(&["route", "add", &format!("{}/32", IpAddr::from(SILENT)), "dev", "void"]));
        std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test()).await.unwrap() });
    });
    thread.join().unwrap();
}

/// Runs `ip` in the namespace.
pub(crate) fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).status().is_ok_and(|status| status.success())
}

/// A resolver whose answers can change.
#[derive(Clone, Default)]
pub(crate) struct Zone(Arc<Mutex<HashMap<String, Vec<IpAddr>>>>);

impl Zone {
    pub(crate) fn set(&self, name: &str, addresses: &[IpAddr]) {
        self.0.lock().unwrap().insert(format!("{name}."), addresses.to_vec());
    }

    fn answer(&self, query: &[u8]) -> Vec<u8> {
        let query = Message::from_vec(query).unwrap();
        let mut answer = query.clone();
        answer.metadata.message_type = MessageType::Response;
        answer.metadata.recursion_available = true;
        let asked = query.queries[0].clone();
        match self.0.lock().unwrap().get(&asked.name().to_string().to_ascii_lowercase()) {
            None => answer.metadata.response_code = ResponseCode::NXDomain,
            Some(addresses) => {
                for ip in addresses {
                    let data = match (ip, asked.query_type()) {
                        (IpAddr::V4(ip), RecordType::A) => RData::A(A(*ip)),
                        (IpAddr::V6(ip), RecordType::AAAA) => RData::AAAA(AAAA(*ip)),
                        _ => continue,
                    };
                    answer.add_answer(Record::from_rdata(asked.name().clone(), 0, data));
                }
            }
        }
        answer.to_vec().unwrap()
    }

    /// Answers at an address of this machine.
    pub(crate) async fn serve(&self) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (at, zone) = (socket.local_addr().unwrap(), self.clone());
        tokio::spawn(async move {
            let mut query = [0; 1500];
            loop {
                let (len, from) = socket.recv_from(&mut query).await.unwrap();
                socket.send_to(&zone.answer(&query[..len]), from).await.unwrap();
            }
        });
        at
    }
}

/// A proxy, its resolver, and what it said.
pub(crate) struct World {
    pub(crate) at: SocketAddr,
    pub(crate) status: String,
    pub(crate) zone: Zone,
    pub(crate) events: UnboundedReceiver<Event>,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) ended: tokio::task::JoinHandle<()>,
}

impl World {
    pub(crate) async fn new(settings: impl FnOnce(ProxyBuilder) -> ProxyBuilder) -> Self {
        Self::with(|client| client, settings).await
    }

    pub(crate) async fn with(
        client: impl FnOnce(ClientBuilder) -> ClientBuilder,
        settings: impl FnOnce(ProxyBuilder) -> ProxyBuilder,
    ) -> Self {
        let zone = Zone::default();
        let names = Names::at(zone.serve().await).unwrap();
        let network = firstflight::credential::NetworkId([1; 16]);
        let client = client(Client::builder().network(network).resolver(names)).build().unwrap();
        let (tell, events) = unbounded_channel();
        let builder = Proxy::builder(client).listen("127.0.0.1:0".parse().unwrap());
        let builder = builder.allow_net("198.51.100.0/24".parse().unwrap());
        let builder = settings(builder).on_event(move |event| drop(tell.send(event.clone())));
        let proxy = builder.bind().await.unwrap();
        let (at, status) = (proxy.local_addrs()[0], proxy.status_url());
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(proxy.run(async { drop(stopped.await) }));
        Self { at, status, zone, events, stop: Some(stop), ended }
    }

    pub(crate) async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.at).await.unwrap()
    }

    /// Sends a request, and reads until the proxy closes.
    pub(crate) async fn ask(&self, request: &str) -> String {
        let mut tcp = self.dial().await;
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A reset ends it, too.
        let _ = tcp.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Asks for a tunnel. Returns the connection and the head of the answer.
    pub(crate) async fn tunnel(&self, server: &str) -> (TcpStream, String) {
        let mut tcp = self.dial().await;
        let request = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
        tcp.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut tcp).await;
        (tcp, head)
    }

    /// A tunnel to which the proxy said yes.
    pub(crate) async fn open(&self, server: &str) -> TcpStream {
        let (tcp, head) = self.tunnel(server).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        tcp
    }

    /// The next event of a connect.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            let event = self.events.recv().await.unwrap();
            if !matches!(event, Event::Closed { .. }) {
                return event;
            }
        }
    }
}

/// Reads a head, byte by byte.
pub(crate) async fn head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match tcp.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// A server that returns each first message with `echo ` in front, and then what comes, until its client closes. Tells
/// how many bytes of each connection were early.
pub(crate) async fn echo(ip: [u8; 4]) -> (SocketAddr, UnboundedReceiver<u32>) {
    let server = firstflight::Server::builder().address(SocketAddr::from((ip, 0))).tcp_only().bind().unwrap();
    let at = server.local_addrs()[0];
    let (tell, told) = unbounded_channel();
    tokio::spawn(async move {
        loop {
            let mut stream = server.accept().await.unwrap();
            let _ = tell.send(stream.early_bytes());
            tokio::spawn(async move {
                let _ = stream.write_all(b"echo ").await;
                let (mut read, mut write) = tokio::io::split(&mut stream);
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    (at, told)
}

/// A ClientHello with a body of `len` bytes.
pub(crate) fn hello(len: usize) -> Vec<u8> {
    let [_, _, high, low] = (len as u32 + 4).to_be_bytes();
    let [_, a, b, c] = (len as u32).to_be_bytes();
    [&[22, 3, 1, high, low, 1, a, b, c], &vec![7; len][..]].concat()
}

/// Reads `len` bytes.
pub(crate) async fn read(tcp: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    tcp.read_exact(&mut bytes).await.unwrap();
    bytes
}
