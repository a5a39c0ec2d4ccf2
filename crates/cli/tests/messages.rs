//! What the command prints, and on which stream.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program::{self, Running, command, fails, run};
use crate::server;
use serde_json::Value;

/// A UDP port that was free a moment ago.
fn free() -> u16 {
    program::sockets(&["127.0.0.1"]).0
}

/// A server of a directory with the file `hello`, and its URL.
fn serve(dir: &Dir, args: &[&str]) -> (Running, String) {
    std::fs::create_dir(dir.path("www")).unwrap();
    std::fs::write(dir.path("www/hello"), "as you like").unwrap();
    for _ in 0..10 {
        let (udp, root) = (format!("127.0.0.1:{}", free()), dir.path("www"));
        let file = server::file(dir, &[&["--udp", &udp, "--root", &root], args].concat());
        let mut server = Running::start(&["gateway", &file]);
        if server.line().contains("listening on") {
            return (server, format!("http://{udp}"));
        }
        // Another program has taken the port meanwhile.
    }
    panic!("the server listens on none of ten ports");
}

#[test]
fn options_of_an_engine_need_a_link() {
    let get = ["get", "http://127.0.0.1:9/"];
    for option in [["--congestion", "bbr"], ["--mtu", "1400"]] {
        fails(&[get, option].concat(), 2, "--udp");
    }
    fails(&[get, ["--pcap", "x.pcapng"]].concat(), 2, "add --udp, --tun or --xdp");
    fails(&["get", "http://127.0.0.1:9/", "--ip", "10.9.0.2"], 2, "--tun <NAME>");
    fails(&["get", "http://127.0.0.1:9/", "--udp", "--tun", "ff0"], 2, "cannot be used with");
}

/// The command line is valid, so the exit status is 1 and not 2.
#[test]
fn a_name_that_cannot_be_resolved_is_no_mistake_in_the_command() {
    // The name is too long for a DNS label, so no resolver is asked.
    let name = "x".repeat(64);
    let says = "check the name, or write the server's address";
    fails(&["get", &format!("http://{name}/"), "--udp"], 1, says);
}

#[test]
fn a_body_goes_to_standard_output_and_the_rest_to_stderr() {
    let dir = Dir::new("stdout");
    let (_server, url) = serve(&dir, &[]);
    let url = format!("{url}/hello");
    for json in [&[][..], &["--json"]] {
        let args = [&["get", &url, "--udp", "-o", "-"], json].concat();
        let output = command(&args).current_dir(dir.path("")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert_eq!(output.stdout, b"as you like");
        assert!(said.contains(&url) && said.lines().count() == 1, "{said}");
        assert!(json.is_empty() || serde_json::from_str::<Value>(&said).unwrap()["bytes"] == 11, "{said}");
        assert!(!std::path::Path::new(&dir.path("-")).exists());
    }
    // A failure status is also reported on stderr.
    let missing = run(&["get", &format!("{url}x"), "--udp", "-o", "-"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("404"));
}

#[test]
fn rust_log_says_what_is_told_unless_v_does() {
    let told = |log: &str, args: &[&str]| {
        let get = ["get", "http://127.0.0.1:9/", "--udp", "--timeout", "1"];
        let output = command(&[args, &get].concat()).env("RUST_LOG", log).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let debug = |said: &str| said.contains("DEBUG");
    assert!(!debug(&told("", &[])) && !debug(&told("warn", &[])));
    let said = told("debug", &[]);
    assert!(debug(&said), "{said}");
    assert!(debug(&told("off", &["-v"])));
    let said = told("no=such=level", &[]);
    assert!(said.starts_with("firstflight: RUST_LOG is ignored: ") && !debug(&said), "{said}");
}

/// Regression test: `cookie_age_s: 0.0024809999999999997`.
#[test]
fn times_in_json_have_no_more_digits_than_microseconds() {
    let dir = Dir::new("digits");
    let (_server, url) = serve(&dir, &[]);
    let output = run(&["get", &format!("{url}/hello"), "--udp", "--json", "--repeat", "20"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut ages = 0;
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let report: Value = serde_json::from_str(line).unwrap();
        ages += usize::from(report["cookie_age_s"].is_f64());
        for (name, value) in report.as_object().unwrap() {
            let text = value.to_string();
            let digits =
                if value.is_f64() { text.split_once('.').map_or(0, |(_, digits)| digits.len()) } else { 0 };
            assert!(digits <= if name.ends_with("_s") { 6 } else { 3 }, "{name}: {text}");
        }
    }
    assert!(ages > 0, "no visit showed a cookie");
}

/// Regression test: U+009B, which begins a terminal command, reached the log from a path.
#[test]
fn no_path_reaches_a_terminal_as_a_command() {
    for json in [&[][..], &["--json-log"]] {
        let dir = Dir::new(if json.is_empty() { "text" } else { "json" });
        let (mut server, url) = serve(&dir, json);
        // The client also prints the URL.
        let url = format!("{url}/hello\u{9b}2J\u{202e}x");
        let fetched = run(&["get", &url, "--udp"]);
        assert_eq!(fetched.status.code(), Some(1));
        let told = String::from_utf8([fetched.stdout, fetched.stderr].concat()).unwrap();
        let mut logged = server.line();
        while !logged.contains("/hello") {
            assert!(!logged.is_empty(), "it ended without a line for the request");
            logged = server.line();
        }
        for line in [&told, &logged] {
            assert!(!line.contains('\u{9b}') && !line.contains('\u{202e}'), "{line:?}");
        }
        assert!(told.contains("/hello\\u{9b}2J\\u{202e}x"), "{told}");
        // What a URI cannot hold, the server reads as if the client had encoded it.
        let path = "/hello%C2%9B2J%E2%80%AEx";
        match json.is_empty() {
            true => assert!(logged.contains(path), "{logged}"),
            false => {
                let line: Value = serde_json::from_str(&logged).unwrap();
                assert_eq!(line["path"], path);
            }
        }
    }
}

/// As in a container without the package of authorities.
#[test]
fn a_check_on_a_system_without_authorities_says_what_to_do() {
    let dir = Dir::new("authorities");
    let file = dir.file(
        "gateway.toml",
        "[[listener]]\nname = \"l\"\naddress = [\"127.0.0.1:8080\"]\nmode = \"http\"\nservice = \"s\"\n\
         [[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:1\"]\n[service.tls]\n",
    );
    let mut check = command(&["gateway", "check", "--json", &file]);
    let out =
        check.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let verdict: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&verdict["right"], &verdict["warnings"]), (&Value::Bool(false), &Value::Array(Vec::new())));
    let error = verdict["errors"][0].as_str().unwrap();
    assert!(error.starts_with("service s: ") && error.contains("ca in [service.tls]"), "{error}");
    assert!(error.contains("ca-certificates"), "{error}");
}
