//! A check for tests of files with settings.

use clap::{Arg, Command};

/// Asserts that a file can say what the options of `command` can, and nothing else. `refused` is what is said of a file whose only
/// key is none.
pub fn assert_names_of_options(command: &Command, refused: &str) {
    let shown = command.get_arguments().filter(|one| !one.is_hide_set() && one.get_id() != "config");
    let mut options: Vec<_> = shown.filter_map(Arg::get_long).map(|long| long.replace('-', "_")).collect();
    let (_, keys) = refused.split_once("expected ").unwrap();
    let mut keys: Vec<_> = keys.split('`').skip(1).step_by(2).collect();
    keys.sort_unstable();
    options.sort_unstable();
    assert_eq!(keys, options);
}
