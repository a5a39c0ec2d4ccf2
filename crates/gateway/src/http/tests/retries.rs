//! When a request is sent again, and when not.

use super::*;
use std::time::Duration;

/// Nothing of these ever had an effect twice.
const METHODS: [&str; 5] = ["GET", "DELETE", "PUT", "POST", "PATCH"];

fn request(method: &str) -> String {
    format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
}

/// Nobody connects for a moment.
async fn nobody_comes(backend: &Backend, why: &str) {
    let next = tokio::time::timeout(Duration::from_millis(100), backend.accept()).await;
    assert!(next.is_err(), "it was sent again: {why}");
}

/// A client of a gateway whose connection to the backend was used once and is kept.
async fn kept(service: &str) -> (TcpStream, TcpStream, Backend, TestSite) {
    let (mut client, backend, place) = pair("", service).await;
    send(&mut client, &request("GET")).await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    send(&mut far, OK).await;
    head(&mut client).await;
    exactly(&mut client, 2).await;
    (client, far, backend, place)
}

#[tokio::test]
async fn an_idempotent_request_on_a_kept_connection_that_ended_goes_again_once() {
    for method in ["GET", "DELETE", "PUT"] {
        for settings in ["", "retries = 0"] {
            let (mut client, mut far, backend, _place) = kept(settings).await;
            send(&mut client, &request(method)).await;
            head(&mut far).await;
            drop(far);
            let mut far = backend.accept().await;
            head(&mut far).await;
            drop(far);
            assert!(head(&mut client).await.contains(" 502 "), "{method}");
            nobody_comes(&backend, method).await;
        }
    }
    for method in ["POST", "PATCH"] {
        let (mut client, mut far, backend, _place) = kept("").await;
        send(&mut client, &request(method)).await;
        head(&mut far).await;
        drop(far);
        assert!(head(&mut client).await.contains(" 502 "), "{method}");
        nobody_comes(&backend, method).await;
    }
}

#[tokio::test]
async fn a_request_on_a_new_connection_that_ended_is_not_sent_again() {
    for method in METHODS {
        let (mut client, backend, _place) = pair("", "").await;
        send(&mut client, &request(method)).await;
        head(&mut backend.accept().await).await;
        assert!(head(&mut client).await.contains(" 502 "), "{method}");
        nobody_comes(&backend, method).await;
    }
}

#[tokio::test]
async fn a_backend_that_answered_wrongly_has_executed_the_request() {
    let lines = "X: 1\r\n".repeat(250);
    let long = "x".repeat(40_000);
    let answers = [
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\n{lines}\r\n"),
        &format!("HTTP/1.1 200 OK\r\nX: {long}\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "H",
    ];
    for answer in answers {
        for method in METHODS {
            // On a kept connection, where silence would be no answer.
            let settings = "[service.passive]\nfailures = 2\npause = \"1h\"";
            let (mut client, mut far, backend, place) = kept(settings).await;
            send(&mut client, &request(method)).await;
            head(&mut far).await;
            send(&mut far, answer).await;
            drop(far);
            let why = format!("{method} {:?}", answer.get(..40).unwrap_or(answer));
            assert!(head(&mut client).await.contains(" 502 "), "{why}");
            nobody_comes(&backend, &why).await;
            // It is one failure, and two make a pause.
            let site = place.site.load_full();
            let service = site.default_service().unwrap();
            let at = &service.backends()[0];
            assert!(!at.state.is_paused(tokio::time::Instant::now()), "{why}");
            service.failed(at);
            assert!(at.state.is_paused(tokio::time::Instant::now()), "{why}");
        }
    }
}
