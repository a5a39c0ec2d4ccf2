//! Settings in a file, and what a command makes for a trial.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program::{Running, command, complaint, fails, prints, run, until};
use std::fs::File;
use std::path::Path;

/// Skips the log up to a line that holds this text, and returns what follows it.
fn after(running: &mut Running, text: &str) -> String {
    loop {
        let line = running.line();
        assert!(!line.is_empty(), "it ended without {text:?}");
        if let Some((_, rest)) = line.split_once(text) {
            return rest.to_owned();
        }
    }
}

#[test]
fn a_certificate_for_a_trial_is_told_accepted_and_gone_at_the_end() {
    let dir = Dir::new("trial");
    std::fs::create_dir(dir.path("www")).unwrap();
    std::fs::write(dir.path("www/hello"), "as you like").unwrap();
    let (www, log) = (dir.path("www"), dir.path("log"));
    let at = "127.0.0.1:0";
    for args in [
        &["gateway", "--from", at, "--root", &www, "--tls-self-signed"][..],
        &["serve", &www, "--listen", at, "--tls-self-signed=localhost,www.example.com"],
    ] {
        let mut server = Running::start_logging(args, &log);
        let line = after(&mut server, "listening on ");
        let at = line.split(' ').next().unwrap().trim_start_matches("https://").to_owned();
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(said.contains("is for a trial") && said.contains("localhost, "), "{said}");
        assert_eq!(said.contains("www.example.com"), args[0] == "serve", "{said}");
        let (_, file) = said.split_once("get --cacert ").unwrap_or_else(|| panic!("{said}"));
        let file = file.split(',').next().unwrap();
        let url = format!("https://{at}/hello");
        assert_eq!(prints(&["get", "--cacert", file, &url, "-o", "-"]), "as you like");
        assert_eq!(prints(&["get", "-k", &url, "-o", "-"]), "as you like");
        let refused = run(&["get", &url, "-o", "-"]);
        assert!(!refused.status.success() && refused.stdout.is_empty());
        assert!(Path::new(file).exists());
        server.stop();
        assert!(!Path::new(file).parent().unwrap().exists(), "the key is still there");
    }
    let printed = ["gateway", "--from", at, "--root", &www, "--tls-self-signed", "--print-config"];
    fails(&printed, 2, "firstflight test-certificate localhost");
    fails(&["gateway", "--from", at, "--root", &www, "--tls-self-signed=a b"], 2, "neither a host name");
}

/// A script that reads a file goes on only if it is whole.
#[test]
fn output_that_is_lost_is_a_failure() {
    let dir = Dir::new("full");
    let gateway = dir.file(
        "gateway.toml",
        "[[listener]]\nname = \"l\"\naddress = [\"127.0.0.1:1\"]\nmode = \"tcp\"\nservice = \"s\"\n\
         [[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:1\"]\n",
    );
    let proxy = dir.file("proxy.toml", "pac = true\n");
    let from = ["--from", "127.0.0.1:1", "--to", "a:1"];
    for args in [
        &["gateway", "schema"][..],
        &["gateway", "check", &gateway],
        &["gateway", "check", &gateway, "--json"],
        &[&["gateway", "--print-config"], &from[..]].concat(),
        &["proxy", "check", &proxy],
        &["completions", "bash"],
        &["man", "gateway"],
        &["--help"],
        &["--version"],
        &["keys", "new"],
    ] {
        // `/dev/full` is a disk that is full.
        let output =
            command(args).stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("cannot write the output: No space left on device"), "{args:?}: {said}");
        // A reader that has seen enough is none.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(args).stdout(writer).output().unwrap();
        let said = complaint(&output);
        assert!(output.status.success() && said.is_empty(), "{args:?}: {said}");
    }
}

/// A service goes on without its log, and ends as it should.
#[test]
fn a_service_whose_log_is_lost_ends_in_order() {
    let mut command = command(&["proxy", "--listen", "127.0.0.1:0"]);
    let log = File::options().write(true).open("/dev/full").unwrap();
    let mut child = command.stdout(log).env("NOTIFY_SOCKET", "").spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let pid = child.id().to_string();
    until(|| {
        let _ = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_proxy_with_a_file_reads_it_again() {
    let dir = Dir::new("proxy");
    let file = dir.file("proxy.toml", "listen = [\"127.0.0.1:0\"]\npac = true\n");
    assert_eq!(prints(&["proxy", "check", &file]), format!("{file} is right\n"));
    let log = dir.path("log");
    let mut proxy = Running::start_logging(&["proxy", "--config", &file], &log);
    let at = after(&mut proxy, "listening on ").split(' ').next().unwrap().to_owned();
    let pac = || prints(&["get", &format!("http://{at}/proxy.pac"), "-o", "-"]);
    assert!(!pac().contains("www.example.com"));
    dir.file("proxy.toml", "listen = [\"127.0.0.1:0\"]\npac = true\nallow_host = [\"www.example.com\"]\n");
    proxy.signal("HUP");
    after(&mut proxy, "was read again");
    assert!(pac().contains("www.example.com"));
    for (text, says) in [
        ("listen = [\"127.0.0.1:0\"]\npak = true\n", "line 2, pak: unknown field"),
        ("listen = [\"127.0.0.1:0\"]\ndrain = \"1s\"\n", "line 2, drain: needs a restart to change"),
    ] {
        dir.file("proxy.toml", text);
        proxy.signal("HUP");
        until(|| std::fs::read_to_string(&log).unwrap().contains(says));
        assert!(pac().contains("www.example.com"), "a mistake changed something");
    }
    fails(&["proxy", "check", &dir.file("wrong.toml", "\npak = true\n")], 2, "line 2, pak: unknown field");
    fails(&["proxy", "--config", &dir.path("wrong.toml")], 2, "line 2, pak: unknown field");
    fails(&["proxy", "--config", &file, "--pac"], 2, "cannot be used with");
    fails(&["proxy", "check", "/nonexistent"], 2, "cannot read /nonexistent");
    let nowhere = dir.file("nowhere.toml", "cache = \"/nonexistent/cache\"\n");
    fails(&["proxy", "check", &nowhere], 2, "cannot write the cache /nonexistent/cache");
    proxy.stop();
}

#[test]
fn a_verifier_with_a_file_reads_it_again() {
    let dir = Dir::new("verifier");
    let key = dir.path("key");
    prints(&["verifier", "keygen", "-o", &key]);
    let text = format!("listen = [\"127.0.0.1:0\"]\nkey_file = {key:?}\n");
    let file = dir.file("verifier.toml", &text);
    assert_eq!(prints(&["verifier", "check", &file]), format!("{file} is right\n"));
    let log = dir.path("log");
    let mut verifier = Running::start_logging(&["verifier", "--config", &file], &log);
    after(&mut verifier, "listening on ");
    dir.file("verifier.toml", &format!("{text}first_duration = \"10m\"\n"));
    verifier.signal("HUP");
    verifier.line_is("the files were read again");
    for (more, says) in [
        ("first_duration = \"2d\"\n", "the first not above the longest"),
        ("metrics = \"127.0.0.1:0\"\n", "line 3, metrics: needs a restart to change"),
    ] {
        dir.file("verifier.toml", &format!("{text}{more}"));
        verifier.signal("HUP");
        until(|| std::fs::read_to_string(&log).unwrap().contains(says));
    }
    let long = dir.file("long.toml", &format!("{text}first_duration = \"2d\"\n"));
    fails(&["verifier", "check", &long], 2, "the first not above the longest");
    let none = dir.file("none.toml", &text.replace("/key\"", "/none\""));
    fails(&["verifier", "check", &none], 2, "firstflight verifier keygen");
    fails(
        &["verifier", "--config", &file, "--listen", "127.0.0.1:0", "--key-file", &key],
        2,
        "cannot be used with",
    );
    verifier.stop();
}

/// The start would fail with the same words.
#[test]
fn a_check_without_the_right_to_make_a_device_says_so() {
    let dir = Dir::new("tun");
    let file = dir.file(
        "gateway.toml",
        "[[listener]]\nname = \"l\"\nmode = \"http\"\nservice = \"s\"\n[listener.tun]\ndevice = \"ff-check\"\n\
         host = [\"198.18.7.1/24\"]\naddress = [\"198.18.7.2\"]\nport = 80\n[[service]]\nname = \"s\"\n\
         backend = [\"127.0.0.1:1\"]\n",
    );
    if !Path::new("/dev/net/tun").exists() || !run(&["gateway", "check", &file]).status.success() {
        eprintln!("skipped: this needs root and /dev/net/tun");
        return;
    }
    let binary = env!("CARGO_BIN_EXE_firstflight");
    for arguments in [&["check", &file][..], &[&file]] {
        let mut without = std::process::Command::new("setpriv");
        let Ok(output) =
            without.args(["--bounding-set=-net_admin", binary, "gateway"]).args(arguments).output()
        else {
            eprintln!("skipped: there is no setpriv");
            return;
        };
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("listener l: tun: not permitted to create a TUN device"), "{said}");
    }
}
