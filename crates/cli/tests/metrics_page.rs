//! Compares `docs/metrics.md` with the series of the programs: their names and types.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Notes the name and the type of each series that a program describes.
#[derive(Default)]
struct Described(Mutex<BTreeMap<String, &'static str>>);

impl Described {
    fn note(&self, key: &KeyName, kind: &'static str) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(key.as_str().to_owned(), kind);
    }
}

impl Recorder for Described {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(&key, "counter");
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(&key, "gauge");
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(&key, "histogram");
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR")))
        .expect("the file is readable")
}

/// The names of the series on the page, each at the beginning of a line of a list.
fn names() -> Vec<String> {
    let page = read("docs/metrics.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("- `"));
    let names = lines.filter_map(|line| Some(line.split_once("`: ")?.0.to_owned()));
    names.filter(|name| name.starts_with("firstflight_") || name.starts_with("process_")).collect()
}

#[test]
fn the_page_has_the_name_and_type_of_each_series_and_no_other() {
    let described = Described::default();
    metrics::with_local_recorder(&described, || {
        firstflight::metrics::describe();
        firstflight_tls::metrics::describe();
        firstflight_dns::metrics::describe();
        firstflight_dns::metrics::describe_relay();
        firstflight_verifier::metrics::describe();
        firstflight_daemon::process::describe();
    });
    let described = described.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    let names = names();
    // The page says that the names of counters end in `_total`, and that all others are gauges.
    let kind = |name: &str| if name.ends_with("_total") { "counter" } else { "gauge" };
    let page: BTreeMap<String, &str> = names.iter().map(|name| (name.clone(), kind(name))).collect();
    assert_eq!(page.len(), names.len(), "a series has two lines");
    assert_eq!(page, described);
}

/// A series that no `describe` names would be missing above.
#[test]
fn the_page_has_each_name_in_the_sources() {
    let names = names();
    let sources = [
        "firstflight/src/metrics.rs",
        "tls/src/metrics.rs",
        "dns/src/metrics.rs",
        "verifier/src/metrics.rs",
        "daemon/src/process.rs",
    ];
    for path in sources {
        let source = read(&format!("crates/{path}"));
        for name in source.split("\"firstflight_").skip(1) {
            let name = format!("firstflight_{}", name.split('"').next().unwrap_or_default());
            assert!(names.contains(&name), "docs/metrics.md has no line for {name}");
        }
    }
}
