#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use metrics_exporter_prometheus::PrometheusBuilder;

#[cfg(target_os = "linux")]
#[test]
fn the_process_and_its_build_are_told() {
    let recorder = PrometheusBuilder::new().build_recorder();
    set_build(Build { version: "1.2.3", commit: "abc" });
    set_build(Build { version: "9", commit: "" });
    metrics::with_local_recorder(&recorder, || {
        describe();
        publish();
    });
    let text = recorder.handle().render();
    let build = format!("{BUILD_INFO}{{version=\"1.2.3\",commit=\"abc\"}} 1\n");
    assert!(text.contains(&build), "{text}");
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).parse::<f64>().unwrap()
    };
    assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds"));
    assert!(value("process_resident_memory_bytes") > 1e5 && value("process_threads") >= 1.0);
    // After the year 2020.
    assert!(value("process_start_time_seconds") > 1.5e9);
    assert!(text.contains("# TYPE process_cpu_seconds_total counter"), "{text}");
}
