use super::*;

fn info(state: u8, options: u8, bits: u8) -> TcpInfo {
    let mut bytes = [0; TCP_INFO_LEN];
    (bytes[0], bytes[5], bytes[7]) = (state, options, bits);
    bytes[68..72].copy_from_slice(&20_000u32.to_ne_bytes());
    bytes[72..76].copy_from_slice(&5_000u32.to_ne_bytes());
    bytes[100..104].copy_from_slice(&2u32.to_ne_bytes());
    TcpInfo::parse(&bytes)
}

#[test]
fn the_fields_are_where_linux_has_them() {
    let info = info(1, SYN_DATA | 1, if cfg!(target_endian = "little") { 3 << 1 } else { 3 << 5 });
    assert_eq!(info.client_fail, ClientFail::SynRetransmitted);
    assert!(info.syn_data && info.confirmed && info.timestamps);
    assert_eq!((info.srtt, info.rttvar), (Duration::from_millis(20), Duration::from_millis(5)));
    assert_eq!(info.retransmissions, 2);
}

#[test]
fn a_handshake_is_complete_after_syn_sent_and_syn_recv() {
    assert!(!info(SYN_SENT, 0, 0).confirmed && !info(SYN_RECV, SYN_DATA, 0).confirmed);
    assert!(info(1, 0, 0).confirmed && info(8, 0, 0).confirmed);
    let closed = info(CLOSE, SYN_DATA, 0);
    assert!(closed.closed && !closed.confirmed, "it may have been reset before");
}

#[test]
fn each_answer_of_the_kernel_has_its_reason() {
    let all = ConnectFacts::Given { given: 100, taken: 100 };
    let of = |client_fail, syn_data| {
        let info = TcpInfo { client_fail, syn_data, ..info(1, 0, 0) };
        all.outcome(&info)
    };
    assert_eq!(of(ClientFail::None, true), Outcome::Accepted);
    assert_eq!(of(ClientFail::SynRetransmitted, true), Outcome::Accepted);
    assert_eq!(of(ClientFail::NoCookie, false), Outcome::Handshake(Reason::NoCredential));
    assert_eq!(of(ClientFail::DataNotAcked, false), Outcome::Handshake(Reason::DataNotAcknowledged));
    assert_eq!(of(ClientFail::SynRetransmitted, false), Outcome::Handshake(Reason::SynTimedOut));
    assert_eq!(of(ClientFail::None, false), Outcome::Handshake(Reason::SystemDisabled));
    let accepted = TcpInfo { syn_data: true, ..info(1, 0, 0) };
    assert_eq!(ConnectFacts::Given { given: 100, taken: 60 }.outcome(&accepted), Outcome::AcceptedPart);
    let plain = ConnectFacts::Plain(Reason::FailureMemory);
    assert_eq!(plain.outcome(&accepted), Outcome::Handshake(Reason::FailureMemory));
}
