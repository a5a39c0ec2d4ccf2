//! Fetches from a site on an emulated path.

use super::Args;
use super::ask::Ask;
use super::fetch::{Errand, fetch};
use super::report::FetchStart;
use crate::network::engine_config;
use clap::Parser as _;
use firstflight::credential::{FastOpenPolicy, KeyRing, PendingLimit, Reason, Scheme};
use firstflight::link::{PathConfig, real_time_pair};
use firstflight::{Client, ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn errand(site: &GetSite, upload: &Upload, more: &[&str]) -> Errand {
    let path = upload.0.to_str().unwrap();
    let words = [&["get", "http://10.0.0.2/sink", "--timeout", "600", "--upload", path], more].concat();
    let args = Command::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).args;
    Errand {
        client: Client::builder().engine(site.client.clone()).build().unwrap(),
        tls: None,
        ask: Ask::default(),
        replay_safe: args.replay_safe,
        told: Arc::default(),
        silence: Arc::default(),
        args: Arc::new(args),
    }
}

/// A file that is deleted when this is dropped.
struct Upload(PathBuf);

impl Upload {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("firstflight-get-{}-{name}", std::process::id()));
        std::fs::write(&path, "order").unwrap();
        Self(path)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A client engine with a cookie, and a server that wants no early requests other than GET.
struct GetSite {
    client: Endpoint,
    listener: Listener,
    _server: Endpoint,
}

const AT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 80);

impl GetSite {
    /// The server's packets need a while: what comes in a SYN is early until then.
    async fn new() -> Self {
        let slow = PathConfig::with_delay(Duration::from_millis(100));
        let (near, far) = real_time_pair(PathConfig::default(), slow, 1).unwrap();
        let client = Endpoint::new(engine_config(vec!["10.0.0.1".parse().unwrap()]).unwrap(), near);
        let server = Endpoint::new(engine_config(vec![AT.ip()]).unwrap(), far);
        let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
        let mut listen = ListenConfig::new(AT);
        listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
        let listener = server.listen(listen).unwrap();
        let fast = ConnectConfig::default().fast_open(true);
        let (ours, theirs) = tokio::join!(client.connect(AT, FirstFlight::empty(), &fast), listener.accept());
        assert_eq!(ours.unwrap().outcome().reason(), Some(Reason::NoCredential));
        drop(theirs);
        Self { client, listener, _server: server }
    }

    /// Answers the next `count` uploads: 425 where one may be a copy (RFC 8470).
    async fn serve(&self, count: usize) {
        for _ in 0..count {
            let mut stream = self.listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"order") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            let status = if stream.is_early() { "425 Too Early" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    }
}

/// RFC 8470 §5.2.
#[tokio::test]
async fn a_request_that_came_too_early_is_sent_again_after_a_handshake() {
    let site = GetSite::new().await;
    let file = Upload::new("retry");
    let errand = errand(&site, &file, &["--replay-safe"]);
    let target = &errand.args.targets().unwrap()[0];
    let (report, ()) = tokio::join!(fetch(&errand, target, FetchStart::now()), site.serve(2));
    assert_eq!((report.status, report.error.as_deref()), (Some(200), None));
    assert!(report.retried_after_425);
    assert_eq!((report.outcome, report.reason), ("handshake", Some("not-requested")));
    assert_eq!(report.remote, Some(AT));
}

#[tokio::test]
async fn an_upload_rides_in_no_syn_unless_it_may_run_twice() {
    let site = GetSite::new().await;
    let file = Upload::new("held");
    let errand = errand(&site, &file, &[]);
    let target = &errand.args.targets().unwrap()[0];
    let (report, ()) = tokio::join!(fetch(&errand, target, FetchStart::now()), site.serve(1));
    assert_eq!((report.status, report.retried_after_425), (Some(200), false));
    assert_eq!(report.reason, Some("not-replay-safe"));
}
