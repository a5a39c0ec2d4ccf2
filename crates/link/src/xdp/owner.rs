//! Who has a device.

use std::fs;

/// The process whose program is on the device, as `PID (NAME)`. `None` if it cannot be found, or is no process of ours.
pub(super) fn of(device: u32) -> Option<String> {
    let wanted = format!("ifindex:\t{device}");
    // Another network namespace may have a device with the same number.
    let here = fs::read_link("/proc/thread-self/ns/net").ok();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else {
            continue;
        };
        let there = fs::read_link(process.path().join("ns/net")).ok();
        if there.is_some() && there != here {
            continue;
        }
        let Ok(files) = fs::read_dir(process.path().join("fdinfo")) else { continue };
        let owns = files.flatten().any(|file| {
            fs::read_to_string(file.path()).is_ok_and(|info| {
                info.lines().any(|line| line == "link_type:\txdp") && info.lines().any(|line| line == wanted)
            })
        });
        if owns {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("process {pid} ({})", name.trim_end()));
        }
    }
    None
}
