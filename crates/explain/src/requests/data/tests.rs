use super::*;

fn record(kind: u8, length: u16) -> Vec<u8> {
    let mut bytes = vec![kind, 3, 3];
    bytes.extend(length.to_be_bytes());
    bytes.resize(5 + usize::from(length), 0xaa);
    bytes
}

#[test]
fn requests_are_told_apart() {
    assert_eq!(requests(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1);
    assert_eq!(requests(b"GET / HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\nGET /c HT"), 3);
    assert_eq!(requests(b"a body\r\n\r\nwith lines"), 0);
    assert_eq!(requests(b"the end of a body\r\n\r\nGET / HTTP/1.1"), 1);
    assert_eq!([requests(b""), requests(b"\r\n\r\n")], [0, 0]);
}

#[test]
fn the_first_bytes_tell_the_protocol() {
    assert_eq!(Protocol::of(b"POST /x HTTP/1.1").kind(), Kind::Http);
    assert_eq!(Protocol::of(&record(22, 300)).kind(), Kind::Tls);
    for other in [&b"SSH-2.0-x"[..], b"PRI * HTTP/2.0", b"", b"GETTING", &[22, 3]] {
        assert_eq!(Protocol::of(other).kind(), Kind::Other, "{other:?}");
    }
}

/// TLS 1.3: ClientHello; then ChangeCipherSpec, Finished and a request in one segment.
#[test]
fn the_finished_of_tls_1_3_is_no_request() {
    for length in [53, 69] {
        let mut records = Records::default();
        assert_eq!(records.read(&record(22, 517)), TlsData::default());
        let end = [record(20, 1), record(23, length)].concat();
        let found = records.read(&end);
        assert_eq!(found, TlsData { finished: true, ..TlsData::default() });
        assert!(records.read(&record(23, 53)).application, "the second one is data");
    }
    let mut records = Records::default();
    records.read(&record(22, 517));
    let found = records.read(&[record(20, 1), record(23, 53), record(23, 200)].concat());
    assert_eq!(found, TlsData { finished: true, application: true });
}

#[test]
fn tls_1_2_and_a_second_hello() {
    let mut records = Records::default();
    records.read(&record(22, 200));
    let end = [record(22, 70), record(20, 1), record(22, 40)].concat();
    assert_eq!(records.read(&end), TlsData::default());
    assert!(records.read(&record(23, 53)).application, "the handshake was over");
    let mut records = Records::default();
    records.read(&record(22, 200));
    // After a HelloRetryRequest.
    records.read(&[record(20, 1), record(22, 300)].concat());
    assert!(records.read(&record(23, 53)).finished);
}

#[test]
fn records_are_followed_across_segments_of_any_length() {
    let stream = [record(22, 300), record(20, 1), record(23, 53), record(23, 500), record(23, 40)].concat();
    for size in 1..40 {
        let mut records = Records::default();
        let all: Vec<TlsData> = stream.chunks(size).map(|part| records.read(part)).collect();
        assert_eq!(all.iter().filter(|found| found.finished).count(), 1, "{size}");
        assert!(all.iter().any(|found| found.application) && !records.lost);
    }
    let mut records = Records::default();
    records.read(&record(22, 30));
    assert!(records.read(b"not records").application && records.lost);
    assert!(records.read(b"anything").application);
}
