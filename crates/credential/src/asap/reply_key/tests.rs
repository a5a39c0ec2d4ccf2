use super::*;

#[test]
fn a_proof_is_for_one_server_number_and_status() {
    let key = ReplyKey::from_bytes(&[7; 16]);
    let server: SocketAddr = "192.0.2.53:443".parse().unwrap();
    let isn = SeqNum::new(0x0102_0304);
    let proof = key.proof(server, isn, Status::Accepted);
    assert!(key.verifies(server, isn, Status::Accepted, &proof));
    assert!(key.verifies("[::ffff:192.0.2.53]:443".parse().unwrap(), isn, Status::Accepted, &proof));

    assert!(!key.verifies("192.0.2.54:443".parse().unwrap(), isn, Status::Accepted, &proof));
    assert!(!key.verifies("192.0.2.53:444".parse().unwrap(), isn, Status::Accepted, &proof));
    assert!(!key.verifies(server, isn + 1, Status::Accepted, &proof));
    assert!(!key.verifies(server, isn, Status::Capable, &proof));
    assert!(!ReplyKey::from_bytes(&[8; 16]).verifies(server, isn, Status::Accepted, &proof));
    for byte in 0..8 {
        let mut forged = proof;
        forged[byte] ^= 1;
        assert!(!key.verifies(server, isn, Status::Accepted, &forged));
    }
}

#[test]
fn nothing_is_printed() {
    assert_eq!(alloc::format!("{:?}", ReplyKey::from_bytes(&[7; 16])), "ReplyKey(..)");
}
