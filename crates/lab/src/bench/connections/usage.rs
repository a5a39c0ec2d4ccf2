//! What a process and the kernel use.

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeVal;
use serde_json::{Value, json};
use std::fs;

/// A snapshot of this process, and of its kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// CPU time of the process in user space, µs.
    pub user_us: f64,
    /// CPU time of the process in the kernel, µs.
    pub system_us: f64,
    /// Memory of the process that is resident, KiB.
    pub rss_kb: f64,
    /// Slab memory of the machine's kernel, KiB.
    pub slab_kb: f64,
    /// Memory of sockets' buffers in the kernel (`mem` of /proc/net/sockstat), KiB.
    pub sockets_kb: f64,
}

impl Usage {
    pub fn now() -> nix::Result<Self> {
        let used = getrusage(UsageWho::RUSAGE_SELF)?;
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Ok(Self {
            user_us: micros(used.user_time()),
            system_us: micros(used.system_time()),
            rss_kb: kilobytes(&read("/proc/self/status"), "VmRSS:"),
            slab_kb: kilobytes(&read("/proc/meminfo"), "Slab:"),
            sockets_kb: socket_pages(&read("/proc/self/net/sockstat")) * page_kb(),
        })
    }

    /// CPU time, µs.
    pub const fn cpu_us(&self) -> f64 {
        self.user_us + self.system_us
    }

    /// What was used between `earlier` and this.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user_us: self.user_us - earlier.user_us,
            system_us: self.system_us - earlier.system_us,
            rss_kb: self.rss_kb - earlier.rss_kb,
            slab_kb: self.slab_kb - earlier.slab_kb,
            sockets_kb: self.sockets_kb - earlier.sockets_kb,
        }
    }

    /// For the other process.
    pub fn json(&self) -> Value {
        json!({
            "user_us": self.user_us, "system_us": self.system_us, "rss_kb": self.rss_kb, "slab_kb": self.slab_kb,
            "sockets_kb": self.sockets_kb,
        })
    }

    /// From the other process.
    pub fn read(value: &Value) -> Option<Self> {
        let number = |name: &str| value.get(name)?.as_f64();
        Some(Self {
            user_us: number("user_us")?,
            system_us: number("system_us")?,
            rss_kb: number("rss_kb")?,
            slab_kb: number("slab_kb")?,
            sockets_kb: number("sockets_kb")?,
        })
    }
}

fn micros(time: TimeVal) -> f64 {
    time.tv_sec() as f64 * 1e6 + time.tv_usec() as f64
}

/// The number of a line like `Slab:  1234 kB`.
fn kilobytes(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// The sum of the `mem` of TCP and UDP in /proc/net/sockstat, in pages.
fn socket_pages(text: &str) -> f64 {
    let of = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "mem").skip(1);
        words.next()?.parse::<f64>().ok()
    };
    let lines = text.lines().filter(|line| line.starts_with("TCP:") || line.starts_with("UDP:"));
    lines.filter_map(of).sum()
}

/// The size of a page, KiB.
fn page_kb() -> f64 {
    kilobytes(&fs::read_to_string("/proc/self/smaps").unwrap_or_default(), "KernelPageSize:").max(4.0)
}

/// Raises the limit of open files as far as it goes, at most to `wanted`. Returns the limit.
pub fn raise_open_files(wanted: u64) -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    if soft >= wanted {
        return soft;
    }
    // The superuser may also raise the hard limit.
    for (soft, hard) in [(wanted, hard.max(wanted)), (hard.min(wanted), hard)] {
        if setrlimit(Resource::RLIMIT_NOFILE, soft, hard).is_ok() {
            return soft;
        }
    }
    soft
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(kilobytes("MemFree: 1 kB\nSlab:   204800 kB\n", "Slab:"), 204_800.0);
        let stat = "sockets: used 5\nTCP: inuse 3 orphan 0 tw 0 alloc 4 mem 17\nUDP: inuse 2 mem 5\nUDPLITE: inuse 0\n";
        assert_eq!(socket_pages(stat), 22.0);
        let now = Usage::now().unwrap();
        assert!(now.cpu_us() > 0.0 && now.rss_kb > 0.0 && now.slab_kb > 0.0, "{now:?}");
        assert_eq!(Usage::read(&now.json()), Some(now));
    }
}
