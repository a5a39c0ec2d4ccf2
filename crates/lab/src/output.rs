//! Output. `println!` panics when the reader is gone, as `head` is after its last line; these functions do not.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes one or more lines to stdout. It is not an error when the reader is gone.
/// Errors: when they cannot be written for another reason: a disk may be full.
pub fn line(text: &dyn Display) -> io::Result<()> {
    write(&mut io::stdout().lock(), text)
}

fn write(out: &mut impl Write, text: &dyn Display) -> io::Result<()> {
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes one line to stderr.
pub fn complain(problem: &dyn Display) {
    // There is nowhere left to say that it failed.
    let _ = writeln!(io::stderr().lock(), "firstflight-lab: {problem}");
}

/// Writes how far a long work is, over the former text. `end` finishes it.
pub fn progress(text: &dyn Display) {
    let _ = write!(io::stderr().lock(), "\r{text}");
}

/// Ends and clears the line of [`progress`].
pub fn progress_is_over() {
    let _ = writeln!(io::stderr().lock(), "\r\x1b[K");
}

#[cfg(test)]
mod tests;
