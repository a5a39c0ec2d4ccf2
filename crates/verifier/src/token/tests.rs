use super::*;

const NOW: u32 = 1_767_225_600;
const CLIENT: [u8; 32] = [9; 32];

fn id(number: u16) -> VantageId {
    VantageId::new(number).unwrap()
}

fn group() -> Vec<GroupMember> {
    let member = |number: u8| GroupMember {
        id: id(number.into()),
        name: format!("v{number}"),
        keys: vec![TokenKey::new(1, [number; 32]), TokenKey::new(2, [number + 100; 32])],
    };
    vec![member(1), member(2), member(3)]
}

fn address() -> IpAddr {
    "192.0.2.1".parse().unwrap()
}

/// The tokens of all members, changed by `change`.
fn tokens(change: impl Fn(&mut Token)) -> Tokens {
    let mut all = Tokens::NONE;
    for member in group() {
        let mut token = member.keys[0].token(member.id, NOW, address(), &CLIENT);
        change(&mut token);
        assert!(all.push(token));
    }
    all
}

#[test]
fn all_tokens_are_demanded_and_the_one_that_fails_is_named() {
    let checked = |tokens: &Tokens| check(&group(), tokens, address(), &CLIENT, NOW);
    assert_eq!(checked(&tokens(|_| {})), Ok(()));
    assert_eq!(checked(&Tokens::NONE), Err((Reason::TokenMissing, id(1))));
    let mut two = Tokens::NONE;
    tokens(|_| {}).iter().filter(|token| token.vantage != id(2)).for_each(|token| assert!(two.push(*token)));
    assert_eq!(checked(&two), Err((Reason::TokenMissing, id(2))));
    let lying = tokens(|token| token.mac[3] ^= u8::from(token.vantage == id(3)));
    assert_eq!(checked(&lying), Err((Reason::TokenWrong, id(3))));
    let dated = tokens(|token| token.time += u32::from(token.vantage == id(2)));
    assert_eq!(checked(&dated), Err((Reason::TokenWrong, id(2))));
    let renumbered = tokens(|token| token.key = 2);
    assert_eq!(checked(&renumbered), Err((Reason::TokenWrong, id(1))));
    // Without a group no token is expected.
    let unexpected = check(&[], &tokens(|_| {}), address(), &CLIENT, NOW);
    assert_eq!(unexpected, Err((Reason::TokenUnknown, id(1))));
}

#[test]
fn a_token_is_for_one_client_at_one_address_for_a_minute() {
    let good = tokens(|_| {});
    for (after, result) in [(0, Ok(())), (60, Ok(())), (61, Err((Reason::TokenExpired, id(1))))] {
        assert_eq!(check(&group(), &good, address(), &CLIENT, NOW + after), result, "{after} s");
    }
    assert_eq!(check(&group(), &good, address(), &CLIENT, NOW - 5), Ok(()));
    let early = check(&group(), &good, address(), &CLIENT, NOW - 6);
    assert_eq!(early, Err((Reason::TokenExpired, id(1))));
    let elsewhere = check(&group(), &good, "192.0.2.2".parse().unwrap(), &CLIENT, NOW);
    assert_eq!(elsewhere, Err((Reason::TokenWrong, id(1))));
    let of_another = check(&group(), &good, address(), &[8; 32], NOW);
    assert_eq!(of_another, Err((Reason::TokenWrong, id(1))));
}

#[test]
fn a_key_may_be_replaced() {
    let member = &group()[0];
    let token = member.keys[1].token(member.id, NOW, address(), &CLIENT);
    let mut tokens = Tokens::NONE;
    assert!(tokens.push(token));
    assert_eq!(check(&group()[..1], &tokens, address(), &CLIENT, NOW), Ok(()));
}
