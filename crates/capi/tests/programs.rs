//! Programs in C and C++ use the library over loopback, with the kernel's Fast Open, in a network namespace of each test's own.
//! Needs root, `ip` and a compiler of C; otherwise nothing is tested, and the output says so.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "not of every test")]
mod build;

use build::{Bench, Way, in_namespace, succeed};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

/// Compiles and runs a program of `tests/c` in each way. Each has a namespace without cookies.
fn run(source: &'static str) {
    run_with(source, &[]);
}

/// The same with libraries of others.
fn run_with(source: &'static str, others: &'static [&str]) {
    for way in [Way::C, Way::Static, Way::Cpp, Way::Sanitized, Way::Valgrind] {
        let bench = Bench::new();
        in_namespace(move || {
            let Some(program) = bench.compile_with(source, way, others) else { return };
            let Some(mut command) = bench.command(&program, way) else { return };
            eprintln!("{source}: {way:?}");
            succeed(&mut command);
        });
    }
}

#[test]
fn words_have_their_meaning() {
    run("tests/c/words.c");
}

#[test]
fn wrong_arguments_are_errors() {
    run("tests/c/arguments.c");
}

#[test]
fn any_descriptor_has_an_outcome_at_both_ends() {
    run("tests/c/descriptors.c");
}

#[test]
fn a_client_connects_in_a_loop_of_poll_and_blocking() {
    run("tests/c/connects.c");
}

#[test]
fn a_client_connects_in_an_edge_triggered_loop() {
    run("tests/c/epoll.c");
}

#[test]
fn threads_share_a_client() {
    run("tests/c/threads.c");
}

#[cfg(feature = "runtime")]
#[test]
fn a_client_and_a_server_on_the_librarys_thread_give_descriptors() {
    run("tests/c/started.c");
}

#[test]
fn a_client_connects_in_a_loop_of_libevent() {
    run_with("tests/c/libevent.c", &["libevent"]);
}

/// With a verifier in the namespace. The program's arguments are its address, its key and a file that trusts it.
#[cfg(feature = "runtime")]
#[test]
fn connections_in_udp_are_descriptors_too() {
    use firstflight::credential::asap::PrivateKey;
    use firstflight::verifier::{Config, Issuer, Service, StreamLimits};
    // Under valgrind UDP loses its races.
    for way in [Way::C, Way::Static, Way::Cpp, Way::Sanitized] {
        let bench = Bench::new();
        in_namespace(move || {
            let Some(program) = bench.compile("tests/c/in_udp.c", way) else { return };
            let Some(mut command) = bench.command(&program, way) else { return };
            let (key, at) = (PrivateKey::from_seed(&[7; 32]), "127.0.0.1:4433");
            let public = key.public().to_string();
            let trust = bench.path().join("trust.toml");
            let text = format!("# begin\n[[verifier]]\nkey = \"{public}\"\nown = true\n# end\n");
            std::fs::write(&trust, text).unwrap();
            command.args([at, &public]).arg(trust);
            let config = Config::default()
                .issuer(Some(Issuer::new(key)))
                .allowed(vec!["127.0.0.0/8".parse().unwrap()]);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let address = [at.parse().unwrap()];
                let service = Service::bind(config, &address, StreamLimits::per_client(64)).await.unwrap();
                tokio::spawn(service.run(std::future::pending()));
                // It has the namespace of this thread.
                let mut child = command.spawn().unwrap();
                while child.try_wait().unwrap().is_none() {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
                assert!(child.wait().unwrap().success(), "{way:?}");
            });
        });
    }
}

/// An example that runs until the test has seen what it waits for.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts a server, and waits until it is ready.
    fn server(bench: &Bench, source: &str, way: Way, arguments: &[&str]) -> Option<Self> {
        let program = bench.compile(source, way)?;
        let mut child = bench.command(&program, way)?.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        // Byte by byte, so that the rest stays in the pipe.
        let output = child.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, output).read_line(&mut line).unwrap();
        let running = Self(child);
        assert_eq!(line, "ready\n");
        Some(running)
    }

    /// What it prints until it ends by itself.
    fn rest(mut self) -> String {
        let mut text = String::new();
        self.0.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.0.wait().unwrap().success());
        text
    }
}

/// What an example prints.
fn output(bench: &Bench, source: &str, way: Way, arguments: &[&str]) -> Option<String> {
    let program = bench.compile(source, way)?;
    let output = succeed(bench.command(&program, way)?.args(arguments));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The lines that begin with an outcome.
fn outcomes(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("accepted:") || line.starts_with("handshake:")).collect()
}

#[test]
fn the_examples_do_what_the_guide_says() {
    let bench = Bench::new();
    in_namespace(move || {
        for way in [Way::C, Way::Cpp, Way::Sanitized, Way::Valgrind] {
            let Some(server) = Running::server(&bench, "examples/server.c", way, &["8080", "5"]) else {
                continue;
            };
            let blocking = output(&bench, "examples/blocking_client.c", way, &["127.0.0.1", "8080"]).unwrap();
            let by_poll = output(&bench, "examples/poll_client.c", way, &["127.0.0.1", "8080", "3"]).unwrap();
            let cookie = "accepted: none, 18 bytes in the SYN";
            let served = server.rest();
            // The first way asks for the cookie, which the kernel then has for the others.
            let first = way == Way::C;
            let asked = "handshake: no-credential, 0 bytes in the SYN";
            let expected = [if first { asked } else { cookie }, cookie, cookie, cookie, cookie];
            assert_eq!(outcomes(&served), expected);
            assert_eq!(outcomes(&by_poll), ["accepted: none"; 3]);
            let [one, two] = outcomes(&blocking)[..] else { panic!("{blocking}") };
            assert!(one.starts_with(if first { "handshake: no-credential, " } else { "accepted: none, " }));
            assert!(two.starts_with("accepted: none, "));
            assert_eq!((blocking.matches("hello\n").count(), by_poll.matches("hello\n").count()), (2, 3));

            let port = ["8081"];
            let Some(outcome) = Running::server(&bench, "examples/outcome.c", way, &port) else { continue };
            // It closes without an answer.
            let client = bench.path().join(format!("blocking_client-{way:?}"));
            let mut client = bench.command(&client, way).unwrap();
            client.args(["127.0.0.1", "8081", "1"]).output().unwrap();
            assert_eq!(outcomes(&outcome.rest()), [cookie]);
        }
    });
}

#[cfg(feature = "runtime")]
#[test]
fn the_example_of_a_server_on_the_thread_ends_in_order() {
    let bench = Bench::new();
    in_namespace(move || {
        let (way, arguments) = (Way::Sanitized, ["127.0.0.1:8082"]);
        let Some(server) = Running::server(&bench, "examples/own_server.c", way, &arguments) else { return };
        let client =
            output(&bench, "examples/blocking_client.c", Way::C, &["127.0.0.1", "8082", "2"]).unwrap();
        assert_eq!(client.matches("hello\n").count(), 2);
        for signal in [nix::sys::signal::SIGHUP, nix::sys::signal::SIGTERM] {
            let id = i32::try_from(server.0.id()).unwrap();
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), signal).unwrap();
        }
        let expected =
            ["handshake: no-credential, 0 bytes in the SYN", "accepted: none, 18 bytes in the SYN"];
        assert_eq!(outcomes(&server.rest()), expected);
    });
}

#[test]
fn a_database_client_takes_a_connection_whose_command_was_in_the_syn() {
    if !build::has("redis-server") {
        return;
    }
    let bench = Bench::new();
    in_namespace(move || {
        let Some(program) = bench.compile_with("tests/c/hiredis.c", Way::Sanitized, &["hiredis"]) else {
            return;
        };
        // All listeners take first flights: Redis does not ask for them.
        std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "1027").unwrap();
        let mut server = std::process::Command::new("redis-server");
        server.args(["--port", "7778", "--bind", "127.0.0.1", "--save", ""]).current_dir(bench.path());
        let running = Running(server.stdout(Stdio::null()).spawn().unwrap());
        while std::net::TcpStream::connect("127.0.0.1:7778").is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let mut command = bench.command(&program, Way::Sanitized).unwrap();
        let output = succeed(command.args(["7778", "3"]));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(outcomes(&text), ["handshake: no-credential", "accepted: none", "accepted: none"]);
        drop(running);
    });
}

#[test]
fn sockets_of_libcurl_have_an_outcome() {
    let bench = Bench::new();
    in_namespace(move || {
        let Some(program) = bench.compile_with("tests/c/curl.c", Way::C, &["libcurl"]) else { return };
        let Some(server) = Running::server(&bench, "examples/server.c", Way::C, &["8080", "3"]) else {
            return;
        };
        let mut command = bench.command(&program, Way::C).unwrap();
        let output = succeed(command.args(["http://127.0.0.1:8080/", "3"]));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(outcomes(&text), ["handshake: no-credential", "accepted: none", "accepted: none"]);
        let served = server.rest();
        assert!(outcomes(&served)[1].starts_with("accepted: none, "), "{served}");
    });
}
