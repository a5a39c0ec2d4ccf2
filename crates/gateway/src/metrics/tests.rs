#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn the_page_has_every_series() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gateway.md")).unwrap();
    let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("- `firstflight_gateway_")).collect();
    let gauges = [CONNECTIONS, UP, ACTIVE, RELOADED, RELOADED_AT];
    let counters = [ACCEPTED, REFUSED, REQUESTS, EARLY, BYTES, FAILURES, RETRIES, RELOADS, LOST];
    let all = gauges.map(|name| (name, "gauge")).into_iter();
    let all = all.chain(counters.map(|name| (name, "counter"))).chain([(SECONDS, "histogram")]);
    let expected: Vec<_> = all
        .map(|(name, kind)| format!("{}` ({kind}): ", name.strip_prefix("firstflight_gateway_").unwrap()))
        .collect();
    for row in &expected {
        assert!(rows.iter().any(|found| found.starts_with(row.as_str())), "no entry {row}");
    }
    assert_eq!(rows.len(), expected.len(), "an entry of a series that there is not");
}
