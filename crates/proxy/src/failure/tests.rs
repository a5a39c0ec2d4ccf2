use super::*;
use firstflight::ConnectAnyError;

fn refused(kind: io::ErrorKind) -> Failure {
    let attempt = firstflight::FailedAttempt {
        remote: "192.0.2.1:80".parse().unwrap(),
        outcome: firstflight::credential::Outcome::Undecided,
        error: kind.into(),
        may_have_run: false,
    };
    let error = ConnectAnyError { attempts: vec![attempt] };
    Failure::Connect(ClientError::Connect { at_most_once: false, error })
}

#[test]
fn each_failure_is_told_as_what_it_is() {
    let told = |failure: &Failure| (failure.status().as_u16(), failure.error_type(), failure.code());
    for (kind, expected) in [
        (io::ErrorKind::ConnectionRefused, (502, "connection_refused", Code::Refused)),
        (io::ErrorKind::TimedOut, (504, "connection_timeout", Code::TimedOut)),
        (io::ErrorKind::HostUnreachable, (502, "destination_ip_unroutable", Code::HostUnreachable)),
        (io::ErrorKind::NetworkUnreachable, (502, "destination_ip_unroutable", Code::NetworkUnreachable)),
        (io::ErrorKind::BrokenPipe, (502, "destination_unavailable", Code::Failure)),
    ] {
        assert_eq!(told(&refused(kind)), expected);
    }
    let none = ClientError::Connect { at_most_once: true, error: ConnectAnyError { attempts: vec![] } };
    assert_eq!(told(&Failure::Connect(none)).0, 502);
    let forbidden = Failure::Forbidden(Forbidden::Loopback);
    assert_eq!(told(&forbidden), (403, "destination_ip_prohibited", Code::NotAllowed));
    assert!(forbidden.to_string().contains("own machine"));
}
