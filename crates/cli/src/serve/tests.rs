#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use clap::{CommandFactory, Parser};
use firstflight_gateway::Config;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn config(options: &[&str]) -> Result<Config, String> {
    let command = Command::try_parse_from([&["serve"], options].concat());
    let Command { args } = command.map_err(|error| error.to_string())?;
    args.check().map_err(|error| error.to_string())?;
    Config::parse(&args.written(None)).map_err(|mistake| mistake.to_string())
}

#[test]
fn options_are_a_configuration() {
    let plain = config(&["./site"]).unwrap();
    let ports: Vec<_> = plain.listeners[0].address.get_ref().iter().map(SocketAddr::port).collect();
    assert!(ports.iter().all(|port| *port == 8080) && !ports.is_empty(), "{ports:?}");
    assert_eq!(plain.services[0].root, Some(std::path::absolute("./site").unwrap()));
    let all = config(&[
        "d",
        "--listen",
        "127.0.0.1:443",
        "--listen",
        "[::1]:443",
        "--udp-port",
        "4433",
        "--key-file",
        "k",
        "--trust",
        "t",
        "--verifier",
        "v",
        "--identity",
        "a.example",
        "--identity",
        "b.example",
        "--tls-cert",
        "c",
        "--tls-key",
        "k",
        "--seal",
        "s",
        "--threads",
        "2",
        "--metrics",
        "127.0.0.1:1",
        "--json-log",
    ]);
    let all = all.unwrap();
    let one = &all.listeners[0];
    assert_eq!((one.address.get_ref().len(), one.udp_port, one.identity.len()), (2, Some(4433), 2));
    assert!(one.trust.is_some() && one.verifier.is_some() && one.seal.is_some() && one.key_file.is_some());
    assert_eq!(all.gateway.threads.map(NonZeroUsize::get), Some(2));
    let tun = ["d", "--tun", "ff0", "--host-ip", "10.9.0.1/24", "--host-ip", "fd09::1/64"];
    let tun = config(&[&tun[..], &["--listen", "10.9.0.2:81", "--listen", "[fd09::2]:81"]].concat()).unwrap();
    let device = tun.listeners[0].tun.as_ref().unwrap().get_ref();
    assert_eq!((device.address.len(), device.host.len(), device.port), (2, 2, Some(81)));
    let card = config(&["d", "--xdp", "eth0", "--xdp-allow", "192.0.2.0/24", "--listen", "192.0.2.1:8080"]);
    let card = card.unwrap();
    let card = card.listeners[0].xdp.as_ref().unwrap().get_ref();
    assert_eq!((card.port, card.address.len(), card.allow.len()), (8080, 1, 1));
    let anywhere = config(&["d", "--xdp", "eth0", "--xdp-allow", "any"]).unwrap();
    assert_eq!(anywhere.listeners[0].xdp.as_ref().unwrap().get_ref().port, 80);
}

#[test]
fn options_that_mean_nothing_are_told() {
    let tun = |address: &str| config(&["d", "--tun", "ff0", "--host-ip", "10.9.0.1/24", "--listen", address]);
    assert!(tun("10.8.0.2:80").unwrap_err().contains("in no --host-ip network"));
    assert!(tun("10.9.0.1:80").unwrap_err().contains("is the kernel's address"));
    assert!(tun("10.9.0.255:80").unwrap_err().contains("broadcast"));
    for (options, expected) in [
        (&[][..], "<DIR>"),
        (&[""], "value is required"),
        (&["d", "--tun", "ff0"], "--host-ip"),
        (&["d", "--xdp", "eth0"], "--xdp-allow"),
        (&["d", "--identity", "a"], "required"),
        (&["d", "--seal", "s"], "required"),
        (&["d", "--tls-cert", "c"], "--tls-key"),
        (&["d", "--tls-cert", "c", "--tls-cert", "e", "--tls-key", "k"], "one --tls-key for each"),
        (&["d", "--listen", "127.0.0.1:1", "--listen", "127.0.0.2:2"], "same port"),
        (&["d", "--config", "f"], "cannot be used with"),
    ] {
        let said = config(options).map(drop).unwrap_err();
        assert!(said.contains(expected), "{options:?}: {said}");
    }
}

/// More belongs into the file.
#[test]
fn there_are_twenty_options() {
    let command = Command::command();
    assert!(command.get_arguments().filter(|one| one.get_id() != "help").count() <= 21, "DIR and 20 options");
}
