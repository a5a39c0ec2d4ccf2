use super::*;

#[test]
fn a_failure_that_repeats_is_told_once() {
    let failed = |remote: &str, kind: io::ErrorKind| {
        let remote = remote.parse().unwrap();
        FailedAttempt { remote, outcome: Outcome::Undecided, error: kind.into(), may_have_run: false }
    };
    let (refused, late) = (io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut);
    let attempts = vec![
        failed("192.0.2.1:80", refused),
        failed("192.0.2.1:80", refused),
        failed("[2001:db8::1]:80", refused),
        failed("192.0.2.1:80", late),
    ];
    let text = ConnectAnyError { attempts }.to_string();
    let wanted = "192.0.2.1:80: connection refused; [2001:db8::1]:80: connection refused; \
                  192.0.2.1:80: timed out";
    assert_eq!(text, wanted);
}

#[test]
fn families_alternate_and_keep_their_order() {
    let all = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<SocketAddr>>();
    let given = all(&["[fd::1]:1", "[fd::2]:1", "[fd::1]:1", "[fd::3]:1", "1.1.1.1:1", "1.1.1.2:1"]);
    let wanted = all(&["[fd::1]:1", "1.1.1.1:1", "[fd::2]:1", "1.1.1.2:1", "[fd::3]:1"]);
    assert_eq!(interleave(&given), wanted);
    let v4_first = all(&["1.1.1.1:1", "[fd::1]:1", "[fd::2]:1"]);
    assert_eq!(interleave(&v4_first), v4_first);
    assert_eq!(interleave(&[]), []);
}
