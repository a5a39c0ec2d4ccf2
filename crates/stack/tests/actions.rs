//! Two stacks and random actions on everything between them. The fuzz target `actions` does this with a fuzzer's
//! choices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::targets::actions;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_connections_end_and_streams_are_whole(bytes in proptest::collection::vec(any::<u8>(), 30..1_500)) {
        actions::run(&bytes);
    }
}
