//! `firstflight keys` as an operator or a script uses it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program;
use crate::server;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

const KEYS: &str = "00010203-04050607-08090a0b-0c0d0e0f,10111213-14151617-18191a1b-1c1d1e1f";
/// `id:hex` of the bytes 0 to 31, whose keys `credential` checks against an independent HKDF.
const SECRET: &str = "a:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
const SECOND: &str = "b:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\n";
/// Half a day into day 20833.
const DAY: &str = "2027-01-15T12:00:00Z";

fn prints(args: &[&str]) -> String {
    program::prints(&[&["keys"], args].concat())
}

fn refused(args: &[&str], says: &str) {
    program::fails(&[&["keys"], args].concat(), 2, says);
}

#[test]
fn a_new_key_is_its_owners_and_never_overwritten() {
    let dir = Dir::new("new");
    for (name, options) in [("key", &[][..]), ("secret", &["--secret", "--id", "2027"])] {
        let path = dir.path(name);
        let told = prints(&[&["new", "-o", &path], options].concat());
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // The command prints the same as `show`, and not the secret.
        let fingerprint = told.trim().rsplit(' ').next().unwrap();
        assert!(prints(&["show", &path]).contains(fingerprint), "{told}");
        assert!(!told.contains(written.trim()), "{told}");
        refused(&[&["new", "-o", &path], options].concat(), "exists already");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
    }
    assert_ne!(prints(&["new"]), prints(&["new"]));
    let today = prints(&["new", "--secret"]);
    let (id, digits) = today.trim().split_once(':').unwrap();
    assert_eq!((id.len(), digits.len()), (10, 64), "{today}");
}

/// Fingerprints by `printf KEY | sha256sum | cut -c1-16`.
#[test]
fn show_gives_fingerprints_and_secrets_only_when_asked() {
    let dir = Dir::new("show");
    let keys = dir.file("keys", KEYS);
    assert_eq!(prints(&["show", &keys]), "primary  bd7a26b655f4fb97\nbackup   463676d0d3ea62e6\n");
    let revealed = prints(&["show", &keys, "--reveal"]);
    assert!(KEYS.split(',').all(|key| revealed.contains(key)), "{revealed}");

    let secret = dir.file("secret", &format!("{SECRET}{SECOND}"));
    let shown = prints(&["show", &secret, "--at", DAY]);
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[0], "secret   6c86c6aac5fb24bc  a (grants)");
    assert!(lines[1].ends_with("  b (accepted too)"), "{shown}");
    assert_eq!(lines[2], "at 2027-01-15T12:00:00Z: key 20833 of 24 h each, next turn 2027-01-16T00:00:00Z");
    assert_eq!(lines[3..].len(), 4, "{shown}");
    assert!(!shown.contains("000102"), "{shown}");
    assert!(prints(&["show", &secret, "--reveal"]).contains(SECRET));
}

/// Key 20833 of the secret is a73b126178a4758e8ed8d6c0f154c393, byte by byte. The kernel's words are little-endian.
#[test]
fn export_is_what_the_kernel_takes() {
    const KEY: &str = "61123ba7-8e75a478-c0d6d88e-93c354f1";
    let dir = Dir::new("export");
    let secret = dir.file("secret", SECRET);
    let export = |file: &str, at: &str| {
        let text = prints(&["export", file, "--format", "linux", "--at", at]);
        let (primary, backup) = text.trim().split_once(',').unwrap();
        (primary.to_owned(), backup.to_owned())
    };
    let day = export(&secret, DAY);
    assert_eq!(day.0, KEY);
    // A key is accepted from five minutes before its period. During its period the previous key is also accepted.
    assert_eq!(export(&secret, "2027-01-15T00:00:00Z"), day);
    assert_eq!(export(&secret, "2027-01-14T23:54:59Z").0, day.1);
    assert_eq!(export(&secret, "2027-01-14T23:55:00Z"), (day.1.clone(), KEY.to_owned()));
    assert_eq!(export(&secret, "1799971200"), day);

    let both = export(&dir.file("both", &format!("{SECRET}{SECOND}")), DAY);
    let second = export(&dir.file("second", SECOND), DAY);
    assert_eq!(both, (KEY.to_owned(), second.0));
    let keys = dir.file("keys", KEYS);
    assert_eq!(prints(&["export", &keys, "--format", "linux"]).trim(), KEYS);
}

#[test]
fn schedule_lists_the_turns() {
    let dir = Dir::new("schedule");
    let secret = dir.file("secret", SECRET);
    let args = ["schedule", &secret, "--at", DAY, "--count", "3"];
    let rows: Value = serde_json::from_str(&prints(&[&args[..], &["--json"]].concat())).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["index"], 20_833);
    assert_eq!(rows[0]["grants_from"], "2027-01-15T00:00:00Z");
    assert_eq!(rows[1]["accepted_from"], "2027-01-15T23:55:00Z");
    assert_eq!(rows[1]["grants_from"], rows[0]["grants_until"]);
    assert_eq!(rows[0]["accepted_until"], "2027-01-16T23:55:00Z");
    let table = prints(&args);
    for row in rows {
        assert!(table.contains(row["fingerprint"].as_str().unwrap()), "{table}");
    }
    let weekly = prints(&[&args[..], &["--period", "168", "--json"]].concat());
    assert_eq!(serde_json::from_str::<Value>(&weekly).unwrap()[0]["index"], 20_833 / 7);
}

/// The same rule applies to every key file: a reader of the key could impersonate its owner.
#[test]
fn keys_that_others_can_read_are_refused() {
    let dir = Dir::new("modes");
    let (keys, secret) = (dir.file("keys", KEYS), dir.file("secret", SECRET));
    let check = |option: &str, file: &str| {
        server::file(&dir, &["--root", &dir.path(""), "--udp", "127.0.0.1:8080", option, file])
    };
    let mode = |file: &str, mode| {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for open in [0o644, 0o604, 0o620] {
        for (option, file) in [("--key-file", &keys), ("--key-schedule", &secret)] {
            mode(file, open);
            let says = format!("key file {file} has the mode {open:04o}, so others can use the key");
            program::fails(&["gateway", "check", &check(option, file)], 2, &says);
            refused(&["show", file], "make it 0600 (chmod 600)");
            refused(&["export", file, "--format", "linux"], "make it 0600 (chmod 600)");
            mode(file, 0o600);
            assert!(program::prints(&["gateway", "check", &check(option, file)]).ends_with(" is right\n"));
            assert!(!prints(&["show", file]).is_empty());
        }
    }
}

/// Makes keys on a full disk, and again when there is space. This needs a mount namespace, and so root.
#[test]
fn a_key_on_a_full_disk_leaves_nothing_that_blocks_the_next_attempt() {
    const SCRIPT: &str = r#"
        set -eu
        mount -t tmpfs -o size=64k firstflight-keys "$1" && cd "$1" || exit 77
        for make in "keys new -o" "keys new --secret -o" "verifier keygen -o" "verifier keygen --vantage -o" \
            "dns keygen -o" "dns keygen --relay -o"
        do
            cat /dev/zero >fill 2>/dev/null || true
            if "$2" $make key 2>said; then echo "$make: written to a full disk"; exit 1; fi
            [ "$(ls -A)" = "$(printf 'fill\nsaid')" ] || { echo "$make left:"; ls -lA; exit 1; }
            rm fill
            "$2" $make key >/dev/null
            [ -s key ]
            rm key
        done
    "#;
    let dir = Dir::new("full");
    let program = env!("CARGO_BIN_EXE_firstflight");
    let mut unshare = std::process::Command::new("unshare");
    let script = ["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh", &dir.path(""), program];
    let Ok(output) = unshare.args(script).output() else {
        eprintln!("skipped: there is no unshare");
        return;
    };
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    if said.contains("unshare failed") || output.status.code() == Some(77) {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
}

#[test]
fn mistakes_of_keys() {
    let dir = Dir::new("mistakes");
    let keys = dir.file("keys", KEYS);
    let secret = dir.file("secret", SECRET);
    refused(&["show", "/nonexistent"], "key file /nonexistent cannot be read");
    refused(&["show", &dir.file("empty", "")], "holds neither cookie keys nor a farm secret");
    refused(&["show", &dir.file("long", &"-".repeat(5000))], "has more than 4096 bytes");
    refused(&["show", &dir.file("bad", "0badc0de-0badc0de")], "found 2 words, not 4");
    refused(&["show", &dir.file("short", "a:0badc0de")], "line 1: a farm secret is id:hex: found 4 bytes");
    refused(&["schedule", &keys], "holds cookie keys, which no schedule changes");
    refused(&["schedule", &secret, "--period", "11"], "whole hours, 12 to 8784");
    refused(&["schedule", &secret, "--at", "tomorrow"], "2027-01-15T00:00:00Z");
    refused(&["export", &secret], "--format");
    refused(&["new", "--id", "x"], "--secret");
    refused(&["new", "--secret", "--id", "two words"], "letters, digits");
    refused(&["new", "-o", "/nonexistent/key"], "cannot write /nonexistent/key");
}

#[test]
fn a_gateway_tells_a_key_from_a_secret() {
    let dir = Dir::new("kinds");
    let (keys, secret) = (dir.file("keys", KEYS), dir.file("secret", SECRET));
    let file = |option: &str, file: &str| {
        server::file(&dir, &["--root", &dir.path(""), "--listen", "127.0.0.1:8080", option, file])
    };
    for (option, path, says) in [
        ("--key-schedule", &keys, "a farm secret is id:hex"),
        ("--key-file", &secret, "a cookie key is"),
        ("--key-file", &dir.file("short", "0badc0de-0badc0de"), "found 2 words, not 4"),
    ] {
        program::fails(&["gateway", &file(option, path)], 2, says);
    }
}
