//! The share of the cookies in the server's CPU time; in the paper AES took less than 0.3 %.

use super::server::Server;
use super::site::LoadSite;
use super::{Kind, LoadError, Mode, Row};
use crate::figure::Figure;
use firstflight_credential::{CookieKey, Flow, KeyRing, Scheme};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Functions of the kernel that make and check cookies. It uses them for other things, too.
const FUNCTIONS: [&str; 2] = ["siphash", "aes"];
/// Parts of the names of functions in which a processor waits for work.
const IDLE: [&str; 4] = ["safe_halt", "idle", "mwait", "default_enter"];
/// Cookies of a measurement.
const COUNT: u32 = 200_000;
/// How much longer than a measurement samples are taken.
const LONGER: u32 = 4;
/// Samples a second.
const FREQUENCY: &str = "4999";

/// What was measured.
#[derive(Debug)]
pub struct Cookies {
    /// Checking a cookie with our functions, ns: Linux' (SipHash) and the paper's (AES).
    pub check_ns: [f64; 2],
    /// These as a share of the CPU time of `serve-tun` for a transaction.
    pub of_ours: Option<[f64; 2]>,
    /// The samples of the server in [`FUNCTIONS`], for the kernel's TCP, or why there are none.
    pub of_kernel: Result<Samples, String>,
}

/// What `perf` saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Samples {
    cookies: u64,
    all: u64,
}

impl Samples {
    fn share(self) -> f64 {
        self.cookies as f64 / self.all as f64
    }
}

impl Cookies {
    pub fn measure(
        site: &LoadSite,
        lab: &Path,
        servers: &[Server],
        rows: &[Row],
        time: Duration,
    ) -> Result<Self, LoadError> {
        let check_ns = [Scheme::Linux, Scheme::Paper].map(check);
        let ours =
            |row: &&Row| row.kind == Kind::ServeTun && row.fast_open && matches!(row.mode, Mode::Open(_));
        let last = rows.iter().rfind(ours);
        let of_ours = last.map(|row| {
            let cpu = Figure::new(row.samples.iter().map(|sample| sample.process_us / sample.seen.answered));
            check_ns.map(|ns| ns / (cpu.median() * 1e3))
        });
        let by_kernel = |server: &&Server| server.fast_open && server.kind.is_kernel();
        let server = servers.iter().rfind(by_kernel);
        let rate = rows.iter().filter_map(|row| match row.mode {
            Mode::Open(rate) => Some(rate),
            Mode::Closed(_) | Mode::Flooded(_) => None,
        });
        let of_kernel = match (server, rate.max()) {
            (Some(server), Some(rate)) => perf(site, lab, server, rate, time)?,
            _ => Err("no server on the kernel's TCP was measured".to_owned()),
        };
        Ok(Self { check_ns, of_ours, of_kernel })
    }

    pub fn json(&self) -> Value {
        let [siphash, aes] = self.check_ns;
        json!({
            "check_ns": { "siphash": siphash, "aes": aes },
            "share_of_serve_tun": self.of_ours.map(|[siphash, aes]| json!({ "siphash": siphash, "aes": aes })),
            "share_of_kernel": self.of_kernel.as_ref().ok().map(|samples| samples.share()),
            "kernel_samples": self.of_kernel.as_ref().ok().map(|samples| samples.all),
            "why_not": self.of_kernel.as_ref().err(),
        })
    }

    pub fn text(&self) -> String {
        let [siphash, aes] = self.check_ns;
        let mut text =
            format!("Cookies: our functions check one in {siphash:.0} ns (SipHash) or {aes:.0} ns (AES)");
        if let Some([siphash, aes]) = self.of_ours.map(|shares| shares.map(|share| share * 100.0)) {
            text += &format!(", {siphash:.2} % or {aes:.2} % of serve-tun's CPU time for a transaction");
        }
        text += &match &self.of_kernel {
            Ok(samples) => format!(
                ". The kernel: {} of {} samples of the server (perf), {:.2} %, are in functions named siphash or aes; it uses \
                 SipHash, for sequence numbers and ports, too, so this is an upper limit",
                samples.cookies,
                samples.all,
                samples.share() * 100.0
            ),
            Err(why) => format!(". The kernel's share is not known: {why}"),
        };
        text + ". In the paper AES took less than 0.3 %."
    }
}

/// CPU time for checking a cookie, ns.
fn check(scheme: Scheme) -> f64 {
    let keys = KeyRing::new(scheme, CookieKey::from_bytes([7; 16]));
    let flow = |n: u32| Flow {
        client: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | n)),
        server: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let cookie = keys.grant(&flow(0));
    let cpu = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from);
    let start = cpu();
    for n in 0..COUNT {
        black_box(keys.check(&flow(n), black_box(&cookie)));
    }
    cpu().saturating_sub(start).as_secs_f64() * 1e9 / f64::from(COUNT)
}

/// The samples of the server's processor while it is asked at `rate`.
fn perf(
    site: &LoadSite,
    lab: &Path,
    server: &Server,
    rate: u32,
    time: Duration,
) -> Result<Result<Samples, String>, LoadError> {
    let Some((_, core)) = site.cores else { return Ok(Err("there is one processor".to_owned())) };
    let data = site.root.0.join("perf.data");
    // A third of a per cent is to be seen.
    let time = time * LONGER;
    let mut record = Command::new("perf");
    record
        .args(["record", "-q", "-e", "cpu-clock", "-F", FREQUENCY, "-C", &core.to_string(), "-o"])
        .arg(&data);
    record.args(["--", "sleep", &time.as_secs_f64().to_string()]);
    let recording = record.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(recording) = recording else { return Ok(Err("there is no perf".to_owned())) };
    let mut recording = super::site::Program(recording);
    server.ask(site, lab, Mode::Open(rate), time)?;
    let recorded = recording.0.wait().is_ok_and(|status| status.success());
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "-q", "-F", "sample,comm,sym", "-i"]).arg(&data);
    let report = report.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = report.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    Ok(match (recorded, samples(&text, &threads(server.pid()))) {
        (true, Some(samples)) => Ok(samples),
        _ => Err("perf cannot take samples on this machine".to_owned()),
    })
}

/// The names of a process' threads.
fn threads(pid: u32) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

/// The samples in a report, of `threads` and of the kernel's work while the processor was idle.
fn samples(report: &str, threads: &BTreeSet<String>) -> Option<Samples> {
    let mut samples = Samples { cookies: 0, all: 0 };
    // 12  nginx            [k] tcp_ack
    for line in report.lines() {
        let Some((count, rest)) = line.trim_start().split_once(' ') else { continue };
        let parts = [" [k] ", " [.] "].iter().find_map(|kind| rest.split_once(kind));
        let (Ok(count), Some((thread, symbol))) = (count.parse::<u64>(), parts) else { continue };
        let (thread, symbol) = (thread.trim(), symbol.split_whitespace().next().unwrap_or_default());
        let idle = IDLE.iter().any(|name| symbol.contains(name));
        if !threads.contains(thread) && (thread != "swapper" || idle) {
            continue;
        }
        samples.all += count;
        if FUNCTIONS.iter().any(|function| symbol.contains(function)) {
            samples.cookies += count;
        }
    }
    (samples.all > 0).then_some(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_perf_is_read() {
        let report = "\n    45  swapper          [k] pv_native_safe_halt\n    40  nginx            [k] tcp_ack\n     2  nginx    \
                      [k] siphash_2u64     -      -\n     9  swapper          [k] ip_rcv\n     5  opt cgu.07       [.] \
                      llvm::aes_pass    -      -\n";
        let threads = BTreeSet::from(["nginx".to_owned()]);
        assert_eq!(samples(report, &threads), Some(Samples { cookies: 2, all: 51 }));
        assert_eq!(samples("perf: no samples\n", &threads), None);
        assert!(!super::threads(std::process::id()).is_empty());
    }

    #[test]
    fn a_cookie_takes_time() {
        assert!(check(Scheme::Paper) > 0.0);
    }
}
