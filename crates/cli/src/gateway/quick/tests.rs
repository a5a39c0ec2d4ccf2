#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use clap::Parser;
use firstflight_gateway::Config;

#[derive(Parser)]
struct Command {
    /// The argument of the real command.
    #[arg(conflicts_with = "from")]
    file: Option<String>,
    #[command(flatten)]
    quick: Quick,
}

fn config(options: &[&str]) -> Result<Config, String> {
    let command = Command::try_parse_from([&["gateway"], options].concat());
    let Command { file, quick } = command.map_err(|error| error.to_string())?;
    assert_eq!(file, None);
    Config::parse(&quick.config(quick.self_signed().unwrap().as_ref())).map_err(|mistake| mistake.to_string())
}

#[test]
fn options_are_a_configuration() {
    let to =
        config(&["--from", "127.0.0.1:80", "--from", "[::1]:80", "--to", "a:1", "--to", "unix:/x"]).unwrap();
    assert_eq!((to.listeners[0].address.get_ref().len(), to.services[0].backend.get_ref().len()), (2, 2));
    let odd = "a \"b\\ \u{7f}\u{2028}\n\u{1f600}ä";
    let files =
        config(&["--from", "127.0.0.1:80", "--root", odd, "--tls-cert", "c", "--tls-key", "k"]).unwrap();
    assert_eq!(files.services[0].root, Some(std::path::absolute(odd).unwrap()));
    assert!(files.listeners[0].tls.is_some());
    let trial = config(&["--from", "127.0.0.1:80", "--to", "a:1", "--tls-self-signed=www.example.com"]);
    assert!(trial.unwrap().listeners[0].tls.is_some());
    assert!(config(&["--from", "127.0.0.1:80", "--to", "a:1", "--tcp"]).is_ok());
    assert!(config(&["--from", "127.0.0.1:80"]).unwrap_err().contains("needs backend"));
    assert!(config(&["--from", "127.0.0.1:80", "--to", "a"]).unwrap_err().contains("no backend"));
    assert!(config(&["--to", "a:1"]).unwrap_err().contains("--from"));
    for beside in [
        &["--to", "a:1"][..],
        &["--root", "d"],
        &["--print-config"],
        &["--tls-cert", "c", "--tls-key", "k"],
        &["--tls-self-signed"],
    ] {
        assert!(
            config(&[&["FILE"], beside].concat()).unwrap_err().contains("cannot be used with"),
            "{beside:?}"
        );
    }
}
