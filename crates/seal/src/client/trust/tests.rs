use super::*;
use crate::fixtures::name;

#[test]
fn by_default_only_authenticated_keys() {
    use KeySource as From;
    let all = [
        From::Configuration,
        From::EncryptedDns,
        From::Validated(AnsweredBy::TrustedPath),
        From::Validated(AnsweredBy::Other),
        From::PlainDns,
    ];
    assert_eq!(all.map(|from| Trust::default().allows(from)), [true, true, true, false, false]);
    assert!(all.iter().all(|&from| Trust::Any.allows(from)));
}

#[test]
fn a_block_is_signed_for_the_public_name_of_a_hidden_one() {
    let (a, p) = (name("a.example"), name("p.example"));
    assert_eq!(NamePolicy::Visible.block_name(&a, &p), Some(&a));
    assert_eq!(NamePolicy::Hidden.block_name(&a, &p), Some(&p));
    assert_eq!(NamePolicy::Hidden.block_name(&p, &p), None);
}
