//! Commands of the system whose text is read.

use std::io;
use std::process::{Command, Stdio};

/// What became of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// It succeeded, with this output.
    Output(String),
    /// It is not installed.
    Missing,
    /// It failed, and said this.
    Failed(String),
}

/// Where commands are that the search path of an ordinary user may lack.
const DIRECTORIES: [&str; 3] = ["", "/usr/sbin/", "/sbin/"];

/// Runs a command to its end. Blocks.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Ran {
    for directory in DIRECTORIES {
        let mut command = Command::new(format!("{directory}{program}"));
        command.args(arguments).stdin(Stdio::null()).env("LC_ALL", "C");
        match command.output() {
            Ok(done) if done.status.success() => {
                return Ran::Output(String::from_utf8_lossy(&done.stdout).into_owned());
            }
            Ok(done) => return Ran::Failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Ran::Failed(error.to_string()),
        }
    }
    Ran::Missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_succeeds_fails_or_is_missing() {
        assert_eq!(run("printf", &["a"]), Ran::Output("a".into()));
        assert!(matches!(run("cat", &["/nothing/here"]), Ran::Failed(said) if !said.is_empty()));
        assert_eq!(run("firstflight-no-such-command", &[]), Ran::Missing);
    }
}
