//! `firstflight man`: the manual pages, made from the same texts as `--help`.

use crate::error::Error;
use crate::output;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::{Path, PathBuf};

/// Print the manual page of a command, or write those of all commands
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight man gateway | man -l -
  firstflight man --to /usr/local/share/man/man1")]
pub struct Args {
    /// The command, as gateway or keys new; without it the page of firstflight itself
    #[arg(value_name = "COMMAND", conflicts_with = "to")]
    command: Vec<String>,
    /// Write the pages of all commands into this directory, which has to exist
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// Prints a page, or writes all, of the commands of `root`.
pub fn run(args: &Args, root: clap::Command) -> Result<(), Error> {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    if let Some(directory) = &args.to {
        return write_all(&root, directory).map_err(|(path, error)| Error::Page(path, error));
    }
    let mut command = &root;
    for name in &args.command {
        command = command
            .find_subcommand(name)
            .ok_or_else(|| Error::NoCommand(command.get_name().to_owned(), name.clone()))?;
    }
    output::bytes(&page(command));
    Ok(())
}

fn write_all(command: &clap::Command, directory: &Path) -> Result<(), (PathBuf, io::Error)> {
    let path = directory.join(Man::new(command.clone()).get_filename());
    std::fs::write(&path, page(command)).map_err(|error| (path, error))?;
    command.get_subcommands().filter(|one| !one.is_hide_set()).try_for_each(|one| write_all(one, directory))
}

fn page(command: &clap::Command) -> Vec<u8> {
    let man = Man::new(command.clone())
        .manual("firstflight")
        .source(concat!("firstflight ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    // Writing to memory cannot fail.
    let _ = man.render_title(&mut out);
    let _ = man.render_name_section(&mut out);
    let _ = man.render_synopsis_section(&mut out);
    let _ = man.render_description_section(&mut out);
    let _ = man.render_options_section(&mut out);
    if command.get_subcommands().any(|one| !one.is_hide_set()) {
        let _ = man.render_subcommands_section(&mut out);
    }
    if let Some(text) = command.get_after_help() {
        let _ = after_help(&text.to_string()).to_writer(&mut out);
    }
    let _ = man.render_version_section(&mut out);
    out
}

/// Examples and remarks. clap's own page would run the lines of examples together.
fn after_help(text: &str) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["NOTES"]);
    let mut is_literal = false;
    for line in text.lines() {
        let literal = line.starts_with("  ");
        if literal != is_literal {
            roff.control(if literal { "nf" } else { "fi" }, []);
            is_literal = literal;
        }
        if line.is_empty() {
            roff.control("PP", []);
        } else {
            roff.text([roman(line)]);
        }
    }
    if is_literal {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests;
