//! `firstflight completions`: prints the completion script of a shell.

use crate::output;

/// Print the completion script of a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight completions bash > /etc/bash_completion.d/firstflight
  firstflight completions zsh > ~/.zfunc/_firstflight
  firstflight completions fish > ~/.config/fish/completions/firstflight.fish")]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints the script for the commands of `root`.
pub fn run(args: &Args, mut root: clap::Command) {
    // Generate into memory first, because the generator panics when its output fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut root, "firstflight", &mut script);
    output::bytes(&script);
}
