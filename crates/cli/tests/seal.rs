//! Mistakes in the settings of sealed first flights: one line that says what to do, and exit code 2.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program::{fails, prints};
use crate::server;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const URL: &str = "https://www.example.com/";

/// A key file of this public name.
fn keygen(dir: &Dir, file: &str, name: &str) -> String {
    let path = dir.path(file);
    prints(&["seal", "keygen", "--name", name, "-o", &path]);
    path
}

#[test]
fn a_gateway_says_what_is_wrong_with_its_keys() {
    let dir = Dir::new("seal-gateway");
    let wrong = |options: &[&str], says: &str| {
        let fixed = ["--root", "/", "--listen", "127.0.0.1:0", "--tls-cert", "none.pem"];
        fails(&["gateway", &server::file(&dir, &[&fixed, options].concat())], 2, says);
    };
    let (one, two) = (keygen(&dir, "one", "one.example"), keygen(&dir, "two", "two.example"));
    let same = keygen(&dir, "same", "one.example");
    wrong(&["--seal-name", "www.example"], "missing field `keys`");
    wrong(&["--seal-openings", "0", "--seal", &one], "openings: ");
    wrong(&["--seal", &dir.path("none")], "firstflight seal keygen");
    wrong(&["--seal", &one, "--seal", &same], "two files have keys of one.example");
    wrong(&["--seal", &one, "--seal", &two, "--seal-name", "www.example"], "www.example@PUBLIC");
    wrong(&["--seal", &one, "--seal-name", "a.example@b.example"], "keys of b.example");
    wrong(&["--seal", &one, "--seal-name", "192.0.2.1"], "host name");
    wrong(&["--seal", &one, "--seal-port", "65536"], "port: ");
    fs::set_permissions(&one, fs::Permissions::from_mode(0o644)).unwrap();
    wrong(&["--seal", &one], "chmod 600");
    fs::write(dir.path("text"), "0badc0d").unwrap();
    fs::set_permissions(dir.path("text"), fs::Permissions::from_mode(0o600)).unwrap();
    wrong(&["--seal", &dir.path("text")], "is no file of seal keys");
}

#[test]
fn get_says_what_is_wrong_with_its_key() {
    let dir = Dir::new("seal-get");
    let key = keygen(&dir, "key", "www.example.com");
    fails(&["get", URL, "--seal", &dir.path("none")], 2, "cannot be read");
    fails(&["get", URL, "--seal", &key], 2, "secret keys");
    fs::write(dir.path("text"), "key65300=\"\\001\"").unwrap();
    fails(&["get", URL, "--seal", &dir.path("text")], 2, "asap record --seal-key");
    fs::write(dir.path("broken"), "key65301=\"\\001\\000\"").unwrap();
    fails(&["get", URL, "--seal", &dir.path("broken")], 2, "not valid");
    let record = dir.path("record");
    fs::write(&record, prints(&["asap", "record", "--seal-key", &key])).unwrap();
    fails(&["get", "http://127.0.0.1:9/", "--seal", &record], 2, "https://");
    fails(&["get", URL, "--seal-any"], 2, "--seal <FILE|dns>");
    fails(&["get", URL, "--seal-hide"], 2, "--seal <FILE|dns>");
    fails(&["get", URL, "--seal", "dns", "--trust-ad"], 2, "--dns <ADDR:PORT>");
}
