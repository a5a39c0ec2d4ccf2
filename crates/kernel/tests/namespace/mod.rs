//! A network namespace for a test.

use std::process::Command;
use std::time::Duration;

/// Runs `test` in a new namespace whose setting of Fast Open is `setting`.
pub(crate) fn in_namespace<F: Future<Output = ()>>(setting: &str, test: impl FnOnce() -> F + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making a network namespace needs root");
        return;
    }
    let setting = setting.to_owned();
    // The thread is in the namespace, and so is what it starts. The namespace ends with it.
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        if !up.is_ok_and(|status| status.success()) {
            eprintln!("skipped: there is no ip command");
            return;
        }
        std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", setting).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test()).await.unwrap() });
    });
    thread.join().unwrap();
}

/// Loads rules of nftables into the thread's namespace. False if there is no `nft`.
#[allow(dead_code, reason = "not of every test")]
pub(crate) fn nft(rules: &str) -> bool {
    Command::new("nft").arg(rules).status().is_ok_and(|status| status.success())
}

/// Adds a table of IPv4 with this rule at `hook`: `input` or `output`. False if there is no `nft`.
#[allow(dead_code, reason = "not of every test")]
pub(crate) fn filter(hook: &str, rule: &str) -> bool {
    nft(&format!(
        "add table ip t; add chain ip t c {{ type filter hook {hook} priority 0; }}; add rule ip t c {rule}"
    ))
}
