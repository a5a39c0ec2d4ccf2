//! Mistakes in the options of sealed first flights: one line that says what to do, and exit code 2.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program::{fails, prints};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const URL: &str = "https://www.example.com/";

/// A key file of this public name.
fn keygen(dir: &Dir, file: &str, name: &str) -> String {
    let path = dir.path(file);
    prints(&["seal", "keygen", "--name", name, "-o", &path]);
    path
}

fn serve<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["serve", "--root", "/", "--tls-cert", "none.pem", "--tls-key", "none.key"], more].concat()
}

#[test]
fn serve_says_what_is_wrong_with_its_keys() {
    let dir = Dir::new("seal-serve");
    let (one, two) = (keygen(&dir, "one", "one.example"), keygen(&dir, "two", "two.example"));
    let same = keygen(&dir, "same", "one.example");
    fails(&["serve", "--root", "/", "--seal", &one], 2, "--tls-cert");
    fails(&serve(&["--seal-name", "www.example"]), 2, "--seal <FILE>");
    fails(&serve(&["--seal-openings", "0", "--seal", &one]), 2, "--seal-openings");
    fails(&serve(&["--seal", &dir.path("none")]), 2, "firstflight seal keygen");
    fails(&serve(&["--seal", &one, "--seal", &same]), 2, "two files have keys of one.example");
    fails(&serve(&["--seal", &one, "--seal", &two, "--seal-name", "www.example"]), 2, "www.example@PUBLIC");
    fails(&serve(&["--seal", &one, "--seal-name", "a.example@b.example"]), 2, "keys of b.example");
    fails(&serve(&["--seal", &one, "--seal-name", "192.0.2.1"]), 2, "host name");
    fails(&serve(&["--seal", &one, "--seal-port", "0"]), 2, "--seal-port");
    fs::set_permissions(&one, fs::Permissions::from_mode(0o644)).unwrap();
    fails(&serve(&["--seal", &one]), 2, "chmod 600");
    fs::write(dir.path("text"), "0badc0d").unwrap();
    fs::set_permissions(dir.path("text"), fs::Permissions::from_mode(0o600)).unwrap();
    fails(&serve(&["--seal", &dir.path("text")]), 2, "is no file of seal keys");
    // What the server remembers is an option of certificates and of seals.
    fails(&["serve", "--root", "/", "--first-start"], 2, "--trust");
    fails(&["serve", "--root", "/", "--per-site"], 2, "--seal");
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
