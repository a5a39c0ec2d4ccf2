//! What Prometheus gets to know of the process itself, beside what its service counts.
//!
//! | name | labels | what |
//! |---|---|---|
//! | `firstflight_build_info` | `version`, `commit` | gauge: 1; which program this is |
//! | `process_cpu_seconds_total` | | counter: processor time, user and system, whole seconds |
//! | `process_open_fds` | | gauge: open file descriptors |
//! | `process_max_fds` | | gauge: their limit |
//! | `process_resident_memory_bytes` | | gauge: resident memory |
//! | `process_virtual_memory_bytes` | | gauge: address space |
//! | `process_start_time_seconds` | | gauge: Unix time of the start |
//! | `process_threads` | | gauge: threads |
//!
//! The names that begin with `process_` are those of Prometheus' own client libraries. They are there on Linux only.

use metrics::{Unit, describe_gauge, gauge};
use std::sync::OnceLock;

const BUILD_INFO: &str = "firstflight_build_info";

/// Which program this process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// Its version, as `0.1.0`.
    pub version: &'static str,
    /// The commit that it was built from; empty if that is not known.
    pub commit: &'static str,
}

static BUILD: OnceLock<Build> = OnceLock::new();

/// Names the program. Only the first call counts. Without one there is no `firstflight_build_info`.
pub fn set_build(build: Build) {
    let _ = BUILD.set(build);
}

/// Describes the series to the recorder. Call it once.
pub fn describe() {
    describe_gauge!(BUILD_INFO, Unit::Count, "1: which program this is");
    #[cfg(target_os = "linux")]
    linux::describe();
}

/// Gives the recorder the present values.
pub fn publish() {
    if let Some(build) = BUILD.get() {
        gauge!(BUILD_INFO, "version" => build.version, "commit" => build.commit).set(1.0);
    }
    #[cfg(target_os = "linux")]
    linux::publish();
}

#[cfg(target_os = "linux")]
mod linux {
    use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
    use procfs::WithCurrentSystemInfo;
    use procfs::process::{LimitValue, Process};

    const CPU: &str = "process_cpu_seconds_total";
    const OPEN: &str = "process_open_fds";
    const MAX: &str = "process_max_fds";
    const RESIDENT: &str = "process_resident_memory_bytes";
    const VIRTUAL: &str = "process_virtual_memory_bytes";
    const START: &str = "process_start_time_seconds";
    const THREADS: &str = "process_threads";

    pub(super) fn describe() {
        describe_counter!(CPU, Unit::Seconds, "Processor time, user and system, whole seconds");
        describe_gauge!(OPEN, Unit::Count, "Open file descriptors");
        describe_gauge!(MAX, Unit::Count, "Limit of open file descriptors");
        describe_gauge!(RESIDENT, Unit::Bytes, "Resident memory");
        describe_gauge!(VIRTUAL, Unit::Bytes, "Address space");
        describe_gauge!(START, Unit::Seconds, "Unix time of the start");
        describe_gauge!(THREADS, Unit::Count, "Threads");
    }

    /// What /proc does not show is left out.
    pub(super) fn publish() {
        let Ok(process) = Process::myself() else { return };
        if let Ok(stat) = process.stat() {
            let ticks = procfs::ticks_per_second().max(1);
            counter!(CPU).absolute((stat.utime + stat.stime) / ticks);
            gauge!(RESIDENT).set(stat.rss_bytes().get() as f64);
            gauge!(VIRTUAL).set(stat.vsize as f64);
            gauge!(THREADS).set(stat.num_threads as f64);
            if let Ok(boot) = procfs::boot_time_secs() {
                gauge!(START).set(boot as f64 + stat.starttime as f64 / ticks as f64);
            }
        }
        if let Ok(count) = process.fd_count() {
            gauge!(OPEN).set(count as f64);
        }
        if let Ok(limits) = process.limits() {
            gauge!(MAX).set(match limits.max_open_files.soft_limit {
                LimitValue::Value(most) => most as f64,
                LimitValue::Unlimited => f64::INFINITY,
            });
        }
    }
}

#[cfg(test)]
mod tests;
