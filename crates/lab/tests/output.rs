//! What happens to output that cannot be written.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn steps(stdout: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstflight-lab"));
    command.arg("steps").stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

/// Regression test: it panicked.
#[test]
fn a_reader_that_is_gone_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = steps(writer.into());
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    assert_eq!(out.status.code(), Some(0));
}

/// Regression test: it panicked.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let out = steps(File::create("/dev/full").unwrap().into());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.starts_with("firstflight-lab: cannot write to stdout: "), "{said}");
    assert_eq!(out.status.code(), Some(1));
}
