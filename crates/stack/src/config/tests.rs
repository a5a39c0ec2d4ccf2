use super::*;

#[test]
fn a_response_policy_is_a_word_or_a_factor() {
    assert_eq!("immediately".parse(), Ok(ResponsePolicy::Immediately));
    assert_eq!("after-handshake".parse(), Ok(ResponsePolicy::AfterHandshake));
    assert_eq!("3x".parse(), Ok(ResponsePolicy::Times(3)));
    for wrong in ["", "x", "3", "0x", "-1x", "later", "3 x"] {
        assert_eq!(wrong.parse::<ResponsePolicy>(), Err(UnknownResponsePolicy), "{wrong}");
    }
}

#[test]
fn stacks_share_limits_and_leave_room_for_chance() {
    let limits = |most| Limits { connections_per_client: Some(most), ..Limits::default() };
    let of_one = |most, count| limits(most).share(count).connections_per_client;
    assert_eq!(of_one(512, 1), Some(512));
    assert_eq!(of_one(512, 2), Some(256 + 48));
    assert_eq!(of_one(512, 64), Some(8 + 6));
    assert_eq!(of_one(4, 2), Some(4), "not more than the whole");
    let shared = limits(512).share(64);
    assert_eq!((shared.connections, shared.credentials), (1 << 14, Limits::default().credentials));
}
