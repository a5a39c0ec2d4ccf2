//! Each row does the work that its figures describe. No test asserts a time.

use super::server::{Accepting, CLIENTS, Credential};
use super::signatures::Signatures;
use super::{BATCH, Row, SEED, VerifiedBefore, openssl};

#[test]
fn signatures_are_good_and_as_many_as_said() {
    let mut signatures = Signatures::new(SEED).unwrap();
    for row in Row::ALL.into_iter().filter(|row| !matches!(row, Row::Accept(..))) {
        assert_eq!(signatures.step(row).unwrap(), BATCH as u64, "{row:?}");
    }
    assert_eq!(signatures.signatures(VerifiedBefore::Cached), BATCH as u32);
    assert_eq!(signatures.signatures(VerifiedBefore::New), 2 * BATCH as u32);
}

/// A round checks that every request was accepted, executed and answered, and its signatures.
#[test]
fn a_server_accepts_every_request() {
    let mut accepting = Accepting::new(SEED).unwrap();
    let all = [
        Credential::Certificate(VerifiedBefore::Cached),
        Credential::Certificate(VerifiedBefore::New),
        Credential::Cookie,
    ];
    for credential in all {
        assert_eq!(accepting.round(credential, BATCH).unwrap().0, CLIENTS as u64, "{credential:?}");
    }
}

#[test]
fn openssls_line_is_read() {
    let three = "+DTP:1024:private:rsa:1\n+R1:1163:1024:0.10\n+F2:1:1024:11630.000000:206288.888889\n";
    assert_eq!(openssl::read(three), Some((11_630.0, 206_288.888_889)));
    // Later versions also print encryption rates.
    let more = "+F2:1:1024:11630.0:206288.0:190000.0:11000.0\n";
    assert_eq!(openssl::read(more), Some((11_630.0, 206_288.0)));
    for wrong in ["", "+F2:1:2048:1.0:2.0", "+F2:1:1024:0.0:2.0", "+F2:1:1024:fast"] {
        assert_eq!(openssl::read(wrong), None, "{wrong}");
    }
}
