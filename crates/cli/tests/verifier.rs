//! `firstflight verifier` and `firstflight certificate` as an operator uses them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program::{Running, fails, prints};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// A verifier that is running, and its address.
fn start(args: &[&str]) -> (Running, String) {
    let fixed = ["verifier", "--listen", "127.0.0.1:0", "--allow-prefix", "127.0.0.0/8"];
    let mut running = Running::start(&[&fixed, args].concat());
    let address = running.address();
    (running, address)
}

/// Makes a verifier's key. Returns its public half.
fn keygen(path: &str) -> String {
    let said = prints(&["verifier", "keygen", "-o", path]);
    said.lines().next().unwrap().strip_prefix("key ").unwrap().to_owned()
}

fn get<'a>(address: &'a str, key: &'a str) -> Vec<&'a str> {
    vec!["certificate", "get", "--verifier", address, "--verifier-key", key]
}

#[test]
fn a_certificate_from_a_verifier_that_runs() {
    let dir = Dir::new("runs");
    let path = dir.path("key");
    let key = keygen(&path);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (verifier, verifier_at) = start(&["--key-file", &path]);

    let said = prints(&get(&verifier_at, &key));
    assert!(said.contains("certifies that 127.0.0.1 has the key"), "{said}");
    assert!(said.contains("(1800 s), seen by 1 vantage point"), "{said}");
    let out = dir.path("certificate");
    let mut args = get(&verifier_at, &key);
    args.extend(["--duration", "10m", "--json", "-o", &out]);
    let report: Value = serde_json::from_str(&prints(&args)).unwrap();
    assert_eq!((&report["address"], &report["duration_s"]), (&"127.0.0.1".into(), &600.into()));
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    args.extend(["--out", &out]);
    fails(&args, 2, "--out is -o now");
    // The answering verifier is not the expected one.
    let other = keygen(&dir.path("other"));
    fails(
        &get(&verifier_at, &other),
        1,
        "the request is for another key than this verifier's: compare the verifier key that the client was given",
    );
    assert_eq!(
        verifier.stop().last().unwrap(),
        "certificates: 2 (0 refreshed); tokens: 0; probes: 0; refused: 1"
    );
}

#[test]
fn keys_are_read_again_on_sighup() {
    let dir = Dir::new("hangup");
    let (path, new) = (dir.path("key"), dir.path("new"));
    keygen(&path);
    let next = keygen(&new);
    let (mut verifier, at) = start(&["--key-file", &path]);
    std::fs::rename(&new, &path).unwrap();
    verifier.signal("HUP");
    verifier.line_is("the files were read again");
    assert!(prints(&get(&at, &next)).contains("certifies that 127.0.0.1 has the key"));
    // With a mistake in it the keys stay. A right file afterwards says that this one was read.
    let right = std::fs::read(&path).unwrap();
    std::fs::write(&path, "nonsense\n").unwrap();
    verifier.signal("HUP");
    assert!(prints(&get(&at, &next)).contains("certifies"));
    std::fs::write(&path, right).unwrap();
    verifier.signal("HUP");
    verifier.line_is("the files were read again");
    assert!(prints(&get(&at, &next)).contains("certifies"));
}

#[test]
fn a_group_and_who_of_it_is_missing() {
    let dir = Dir::new("group");
    let path = dir.path("key");
    let key = keygen(&path);
    let token = dir.path("ams.token");
    prints(&["verifier", "keygen", "--vantage", "-o", &token]);
    prints(&["verifier", "keygen", "--vantage", "-o", &dir.path("nbo.token"), "--number", "3"]);
    let (_point, point_at) = start(&["--vantage-id", "1", "--vantage-key", &token]);
    let (second, second_at) = start(&["--vantage-id", "2", "--vantage-key", &dir.path("nbo.token")]);
    let text = format!("1 ams {} ams.token\n2 nbo {} nbo.token\n", point_at, second_at);
    let group = dir.file("group", &text);
    let (_issuer, issuer_at) = start(&["--key-file", &path, "--group", &group]);
    let mut args = get(&issuer_at, &key);
    args.extend(["--group", &group]);
    let said = prints(&args);
    assert!(said.contains("seen by 3 vantage points"), "{said}");
    fails(
        &get(&issuer_at, &key),
        1,
        "the token of vantage point number 1 (number 1): a vantage point's token is missing",
    );
    assert!(second.stop().last().unwrap().contains("tokens: 1;"));
    fails(&args, 1, "no token from vantage point nbo (number 2): no answer over UDP, nor over TCP");
}

#[test]
fn keys_follow_each_other() {
    let dir = Dir::new("follow");
    let (first, second, third) = (dir.path("1"), dir.path("2"), dir.path("3"));
    let old = keygen(&first);
    let said = prints(&["verifier", "keygen", "-o", &second, "--after", &first]);
    assert!(said.contains(&old), "{said}");
    let said = prints(&["verifier", "keygen", "-o", &third, "--after", &second]);
    assert_eq!(said.lines().filter(|line| line.starts_with("retired ")).count(), 2, "{said}");
    assert_eq!(std::fs::read_to_string(&third).unwrap().matches(&old).count(), 1);
}

#[test]
fn mistakes_with_keys() {
    let dir = Dir::new("keys");
    let path = dir.path("key");
    keygen(&path);
    let verifier = |key: &str, says: &str| {
        fails(&["verifier", "--listen", "127.0.0.1:0", "--key-file", key], 2, says);
    };
    fails(&["verifier", "keygen", "-o", &path], 2, "exists already");
    fails(&["verifier", "keygen", "-o", &dir.path("none/key")], 2, "choose a file in a directory of yours");
    fails(&["verifier", "keygen"], 2, "--output");
    fails(&["verifier", "keygen", "--key", &path], 2, "--key is -o now");
    fails(&["verifier", "keygen", "--vantage-key", &path], 2, "--vantage-key is --vantage -o now");
    fails(&["verifier", "--listen", "127.0.0.1:0", "--key", &path], 2, "--key is --key-file now");
    verifier(&dir.path("absent"), "make one with `firstflight verifier keygen`");
    verifier(&dir.file("garbled", "key 0badc0d\n"), "line 1 is none");
    verifier(&dir.file("empty", ""), "has no key");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    verifier(&path, "has the mode 0644, so others can use the key: make it 0600 (chmod 600)");
}

#[test]
fn mistakes_in_options() {
    let dir = Dir::new("options");
    let path = dir.path("key");
    let public = keygen(&path);
    let verifier = |args: &[&str], says: &str| fails(&[&["verifier"], args].concat(), 2, says);
    verifier(&[], "--listen");
    verifier(&["--listen", "127.0.0.1:0"], "--key-file");
    verifier(&["--listen", "127.0.0.1", "--key-file", &path], "127.0.0.1");
    verifier(
        &["--listen", "127.0.0.1:0", "--key-file", &path, "--max-duration", "1y"],
        "first not above the longest",
    );
    verifier(
        &["--listen", "127.0.0.1:0", "--key-file", &path, "--max-duration", "soon"],
        "write a time with its unit",
    );
    verifier(&["--listen", "127.0.0.1:0", "--key-file", &path, "--allow-prefix", "10"], "10");
    verifier(&["--listen", "127.0.0.1:0", "--vantage-id", "1"], "--vantage-key");
    verifier(&["--listen", "127.0.0.1:0", "--vantage-id", "0", "--vantage-key", &path], "1 to 65535");
    let group = dir.file("group", "1 ams 127.0.0.1:1\n");
    verifier(
        &["--listen", "127.0.0.1:0", "--key-file", &path, "--group", &group],
        "names no key file of vantage point 1",
    );
    fails(&get("127.0.0.1:1", &"00".repeat(32)), 2, "no Ed25519 public key");
    fails(&get("127.0.0.1:1", &public), 1, "verifier 127.0.0.1:1: no answer over UDP, nor over TCP");
    let mut args = get("127.0.0.1:1", &public);
    let absent = dir.path("absent");
    args.extend(["--group", &absent]);
    fails(&args, 2, "cannot be read");
}
