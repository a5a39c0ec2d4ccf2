//! Compares a connection with a model of RFC 9293's rules (§3.10.7), for random sequences of segments, calls and
//! time. The fuzz target `model` does this with a fuzzer's choices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::targets::model;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_does_what_the_rules_say(bytes in proptest::collection::vec(any::<u8>(), 16..1_500)) {
        model::run(&bytes);
    }
}
