#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

/// A gateway whose UDP engine has ended for good must not go on as if nothing had happened.
#[tokio::test]
async fn a_listener_whose_engine_has_stopped_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.toml");
    let text = "[[listener]]\nname = \"a\"\naddress = [\"127.0.0.1:0\"]\nmode = \"tcp\"\nservice = \"b\"\n\
                [[service]]\nname = \"b\"\nbackend = [\"127.0.0.1:9\"]\n";
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(Config::read(&file).unwrap(), Vec::new()).await.unwrap();
    let endpoints: Vec<_> = gateway.listening.values().flat_map(|one| one.endpoints.clone()).collect();
    assert!(!gateway.has_failed());
    for endpoint in &endpoints {
        endpoint.shutdown(Duration::ZERO).await;
    }
    assert_eq!(gateway.has_failed(), !endpoints.is_empty());
    assert!(!endpoints.is_empty(), "the listener has no UDP port");
}

/// Sends `request` to a service for trials, and returns what comes until the end.
async fn asked(request: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "[[listener]]\nname = \"a\"\naddress = [\"127.0.0.1:0\"]\nudp_port = 0\nmode = \"http\"\nservice = \"b\"\n\
         [[service]]\nname = \"b\"\nroot = {:?}\ntrial = true\n",
        directory.path()
    );
    let gateway = Gateway::start(Config::parse(&text).unwrap(), Vec::new()).await.unwrap();
    let mut client = tokio::net::TcpStream::connect(gateway.addresses("a")[0]).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_service_for_trials_gives_bodies_back_and_counts_them() {
    let echoed = asked("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").await;
    assert!(echoed.starts_with("HTTP/1.1 200 OK\r\n") && echoed.ends_with("\r\n\r\nabc"), "{echoed}");
    assert!(echoed.contains("content-length: 3\r\n"), "{echoed}");
    let chunked =
        asked("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n");
    assert!(chunked.await.contains("\r\n1\r\na\r\n0\r\n"));
    let expects = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\na";
    let expects = asked(expects).await;
    assert!(expects.contains("HTTP/1.1 200 OK\r\n") && expects.ends_with("\r\n\r\na"), "{expects}");
    let counted = asked("PUT /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").await;
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert!(counted.ends_with(&format!("\r\n\r\n{{\"bytes\":3,\"sha256\":\"{hash}\"}}\n")), "{counted}");
    let empty = asked("PUT /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert!(empty.contains("{\"bytes\":0,"), "{empty}");
    let other = asked("POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert!(other.starts_with("HTTP/1.1 405 "), "{other}");
}

/// A configuration of TCP listeners at one backend.
fn listeners(names: &[&str], service: &str, backend: SocketAddr, health: &str) -> Config {
    let listener = |name: &&str| {
        format!(
            "[[listener]]\nname = {name:?}\naddress = [\"127.0.0.1:0\"]\nudp_port = 0\nmode = \"tcp\"\nservice = {service:?}\n"
        )
    };
    let listeners: String = names.iter().map(listener).collect();
    let service = format!("[[service]]\nname = {service:?}\nbackend = [\"{backend}\"]\n{health}");
    Config::parse(&format!("{listeners}{service}")).unwrap()
}

/// What a reload takes out still asks the store, so the memory of first flights must not be closed before.
#[tokio::test]
async fn the_end_waits_for_listeners_that_a_reload_took_out() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let backend = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = backend.local_addr().unwrap();
    let mut gateway = Gateway::start(listeners(&["a", "b"], "s", at, ""), Vec::new()).await.unwrap();
    let mut client = tokio::net::TcpStream::connect(gateway.addresses("a")[0]).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (mut far, _) = backend.accept().await.unwrap();
    gateway.reload(listeners(&["b"], "s", at, "")).await.unwrap();
    let mut end = Box::pin(gateway.end());
    assert!(
        tokio::time::timeout(Duration::from_millis(300), &mut end).await.is_err(),
        "its connection was cut"
    );
    far.write_all(b"y").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'y');
    drop((client, far));
    end.await;
}

#[tokio::test]
async fn nothing_is_known_of_a_backend_that_a_reload_took_out() {
    let backend = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = backend.local_addr().unwrap();
    let health = "[service.health]\ninterval = \"50ms\"\nrise = 1\n";
    let mut gateway = Gateway::start(listeners(&["a"], "earlier", at, health), Vec::new()).await.unwrap();
    let up = |gateway: &Gateway, service: &str| {
        publish(&gateway.shown);
        let shown = metrics::recorder().unwrap().render();
        let series = format!("firstflight_gateway_backend_up{{service=\"{service}\",backend=\"{at}\"}} ");
        shown.lines().find_map(|line| line.strip_prefix(&series).map(str::to_owned))
    };
    while up(&gateway, "earlier").as_deref() != Some("1") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    gateway.reload(listeners(&["a"], "later", at, health)).await.unwrap();
    assert_eq!(up(&gateway, "earlier").as_deref(), Some("NaN"));
}
