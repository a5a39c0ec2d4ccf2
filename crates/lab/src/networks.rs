//! Visits on networks that interfere with first flights: runs `tests/networks/run.py` of the source tree.

use clap::Args;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The table of networks that interfere with first flights; needs root. All arguments are those of
/// tests/networks/run.py (`-- --help` shows them). It runs the commands in the directory of this one.
#[derive(Debug, Args)]
pub struct Networks {
    /// For tests/networks/run.py
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by the program, whose exit status becomes this command's.
/// Errors: when the source tree that this command was built from is missing, or Python is.
pub fn run(options: &Networks) -> Result<String, Box<dyn Error>> {
    script("tests/networks/run.py", &options.arguments)
}

/// Replaces this process by a script of the source tree, for the commands in the directory of this one.
/// Errors: when the source tree that this command was built from is missing, or Python is.
pub fn script(path: &str, arguments: &[OsString]) -> Result<String, Box<dyn Error>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if !script.is_file() {
        return Err(format!("no {}: run it in the source tree", script.display()).into());
    }
    let command = env::current_exe()?.with_file_name("firstflight");
    Err(Command::new("python3").arg(script).arg("--bin").arg(command).args(arguments).exec().into())
}
