#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::config::Config;
use std::io;

fn service(settings: &str, former: Option<&Service>) -> Arc<Service> {
    let text = format!(
        "[[listener]]\nname = \"l\"\naddress = [\"127.0.0.1:1\"]\nmode = \"tcp\"\nservice = \"s\"\n\
         [[service]]\nname = \"s\"\n{settings}"
    );
    Arc::new(Service::new(&Config::parse(&text).unwrap().services[0], former).unwrap())
}

const THREE: &str = "backend = [\"127.0.0.1:11\", \"127.0.0.1:12\", \"127.0.0.1:13\"]\n";

fn label(lease: &Lease) -> &str {
    lease.backend().label.strip_prefix("127.0.0.1:").unwrap()
}

#[tokio::test]
async fn backends_take_turns() {
    let service = service(THREE, None);
    let chosen: Vec<_> = (0..6).map(|_| label(&service.choose(&[]).unwrap()).to_owned()).collect();
    assert_eq!(chosen, ["11", "12", "13", "11", "12", "13"]);
}

#[tokio::test]
async fn the_one_with_the_fewest_connections_is_next() {
    let service = service(&format!("{THREE}balance = \"least-connections\"\n"), None);
    let held: Vec<_> = (0..6).map(|_| service.choose(&[]).unwrap()).collect();
    assert!(service.backends().iter().all(|backend| backend.active() == 2));
    let freed = label(&held[4]).to_owned();
    drop(held.into_iter().nth(4));
    // All leases are dropped by now, so hold two of each again, but one.
    let mut held: Vec<_> = (0..6).map(|_| service.choose(&[]).unwrap()).collect();
    let at = held.iter().position(|lease| label(lease) == freed).unwrap();
    held.remove(at);
    assert_eq!(label(&service.choose(&[]).unwrap()), freed);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_pauses_and_comes_back() {
    let service = service(&format!("{THREE}[service.passive]\nfailures = 2\npause = \"10s\"\n"), None);
    let bad = Arc::clone(&service.backends()[1]);
    service.failed(&bad);
    bad.state.succeeded();
    service.failed(&bad);
    let chosen =
        |n: usize| (0..n).map(|_| label(&service.choose(&[]).unwrap()).to_owned()).collect::<Vec<_>>();
    assert!(chosen(3).contains(&"12".to_owned()), "two failures, but not in a row");
    service.failed(&bad);
    assert!(!chosen(6).contains(&"12".to_owned()), "it pauses");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(chosen(3).contains(&"12".to_owned()), "the pause is over");
}

#[tokio::test(start_paused = true)]
async fn if_all_pause_they_are_tried_and_if_all_are_down_none_is() {
    let service = service(&format!("{THREE}[service.passive]\nfailures = 1\n"), None);
    for backend in service.backends() {
        service.failed(backend);
    }
    assert!(service.choose(&[]).is_some());
    for backend in service.backends() {
        backend.state.set_up(false);
    }
    assert!(service.choose(&[]).is_none() && !service.is_available());
    assert!(matches!(service.connect(None).await, Err(DialError::NoBackend)));
}

#[tokio::test]
async fn a_connect_that_fails_goes_to_the_next_backend() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = listener.local_addr().unwrap();
    let settings = format!("backend = [\"unix:/nonexistent/socket\", \"{good}\"]\n");
    let service = service(&settings, None);
    for _ in 0..4 {
        let (_, lease) = service.connect(None).await.unwrap();
        assert_eq!(lease.backend().label, good.to_string());
    }
}

#[tokio::test]
async fn a_backend_at_which_a_request_failed_is_used_only_if_there_is_no_other() {
    let mut listeners = Vec::new();
    for _ in 0..2 {
        listeners.push(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let at = |n: usize| listeners[n].local_addr().unwrap();
    let service = service(&format!("backend = [\"{}\", \"{}\"]\n", at(0), at(1)), None);
    let [one, two] = service.backends() else { panic!("two backends") };
    for avoid in [vec![Arc::clone(one)], vec![Arc::clone(one), Arc::clone(two)]] {
        for _ in 0..4 {
            let opened = service.open(PoolOpen { avoid: &avoid, ..PoolOpen::default() }).await.unwrap();
            let used = opened.lease.backend();
            assert!(avoid.len() == 2 || Arc::ptr_eq(used, two), "{}", used.label);
        }
    }
}

#[tokio::test]
async fn a_reload_keeps_what_is_known_of_backends() {
    let former = service(THREE, None);
    let lease = former.choose(&[]).unwrap();
    let new = service("backend = [\"127.0.0.1:11\", \"127.0.0.1:14\"]\n", Some(&former));
    assert!(Arc::ptr_eq(lease.backend(), &new.backends()[0]));
    assert_eq!(new.backends()[0].active(), 1);
    assert_eq!(new.backends()[1].active(), 0);
}

#[tokio::test]
async fn checks_in_a_row_decide() {
    let settings = format!("{THREE}[service.health]\nfall = 2\nrise = 2\n");
    let service = service(&settings, None);
    let (state, health) = (&service.backends()[0].state, service.config.health.clone().unwrap());
    let results = [false, true, false, false, true, false, true, true];
    let changes: Vec<_> = results.into_iter().map(|good| state.checked(good, &health)).collect();
    assert_eq!(changes, [None, None, None, Some(false), None, None, None, Some(true)]);
}

#[tokio::test(start_paused = true)]
async fn without_checks_it_is_known_only_what_connections_told() {
    use health::HealthState::{Down, Unknown, Up};
    let service = service(&format!("{THREE}[service.passive]\nfailures = 2\npause = \"10s\"\n"), None);
    let one = &service.backends()[0];
    assert_eq!(service.known(one), Unknown, "nobody asked yet");
    one.state.succeeded();
    assert_eq!(service.known(one), Up);
    service.failed(one);
    assert_eq!(service.known(one), Unknown, "one failure");
    service.failed(one);
    assert_eq!(service.known(one), Down);
    for backend in &service.backends()[1..] {
        service.failed(backend);
        service.failed(backend);
    }
    assert!(!service.is_available(), "all failed");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(service.known(one), Unknown, "the pause is over");
    assert!(service.is_available());
    one.state.succeeded();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(service.known(one), Unknown, "that was long ago");
}

#[tokio::test(start_paused = true)]
async fn a_backend_is_up_when_its_first_check_says_so() {
    use health::HealthState::{Down, Unknown, Up};
    let service = service(&format!("{THREE}[service.health]\nfall = 1\nrise = 1\n"), None);
    let (one, health) = (&service.backends()[0], service.config.health.clone().unwrap());
    one.state.succeeded();
    assert_eq!(service.known(one), Unknown);
    one.state.checked(true, &health);
    assert_eq!(service.known(one), Up);
    one.state.checked(false, &health);
    assert_eq!(service.known(one), Down);
}

/// A dial, and what it says about the backend.
#[tokio::test]
async fn a_shortage_of_this_machine_is_no_failure_of_a_backend() {
    let error = |code: nix::errno::Errno| DialError::from(io::Error::from(code));
    use nix::errno::Errno::*;
    for code in [EMFILE, ENFILE, EADDRNOTAVAIL, ENOBUFS, ENOMEM] {
        assert!(error(code).is_own() && error(code).again().is_own(), "{code}");
    }
    for code in [ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ECONNRESET, EAGAIN] {
        assert!(!error(code).is_own(), "{code}");
    }
    assert!(DialError::Full.is_own());
}

/// A backend that accepts, and says nothing of TLS: every dial takes `connect_timeout`.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_backend_share_one_dial() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    let made = rcgen::generate_simple_self_signed(["app.internal".to_owned()]).unwrap();
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let settings = format!(
        "backend = [\"{}\"]\nprotocol = \"h2\"\nretries = 0\nconnect_timeout = \"2s\"\n\
         [service.tls]\nname = \"app.internal\"\nca = {ca:?}\n",
        listener.local_addr().unwrap()
    );
    let text = format!(
        "[[listener]]\nname = \"l\"\naddress = [\"127.0.0.1:1\"]\nmode = \"http\"\nservice = \"s\"\n\
         [[service]]\nname = \"s\"\n{settings}"
    );
    let service = Arc::new(Service::new(&Config::parse(&text).unwrap().services[0], None).unwrap());
    let begun = Instant::now();
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let service = Arc::clone(&service);
        all.spawn(
            async move { service.open(PoolOpen::default()).await.err().map(|error| error.to_string()) },
        );
    }
    while let Some(result) = all.join_next().await {
        assert!(result.unwrap().unwrap().contains("no answer within"));
    }
    // In virtual time: not twenty times as long.
    assert_eq!(begun.elapsed().as_secs(), 2);
    let mut dials = 0;
    while tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_ok() {
        dials += 1;
    }
    assert_eq!(dials, 1);
}
