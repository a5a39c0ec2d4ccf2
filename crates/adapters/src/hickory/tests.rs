use super::*;

/// A message with this opcode, and its length in front.
fn message(opcode: u8, response: bool) -> Vec<u8> {
    let flags = opcode << 3 | u8::from(response) << 7 | 1;
    [&[0, 13, 7, 7, flags, 0][..], &[0; 9]].concat()
}

#[test]
fn only_queries_may_run_twice() {
    let query = message(0, false);
    assert!(are_queries(&query) && are_queries(&query.repeat(2)));
    for other in [
        // A notify and an update.
        message(4, false),
        message(5, false),
        message(0, true),
        [query.clone(), message(5, false)].concat(),
        // A part, something behind it, and no message.
        query[..14].to_vec(),
        [&query[..], &[0]].concat(),
        vec![0, 3, 7, 7, 1],
        Vec::new(),
    ] {
        assert!(!are_queries(&other), "{other:?}");
    }
}

#[test]
fn a_client_hello_may_run_twice() {
    let hello = [&[22, 3, 1, 0, 9, 1][..], &[0; 8]].concat();
    assert!(is_client_hello(&hello));
    // Early data behind it, another record, and an update of DNS that begins alike.
    assert!(!is_client_hello(&[&hello[..], &[23, 3, 3]].concat()));
    assert!(!is_client_hello(&[&[23], &hello[1..]].concat()));
    let update = [&[22, 3, 7, 7, 5 << 3, 1][..], &[0; 5631]].concat();
    assert!(!is_client_hello(&update) && !are_queries(&update));
}
