//! Text from a peer in a line for people.

use std::fmt::{self, Display, Write};

/// Text from a peer as one word of a line. What could make a line, a word or an order of its own is escaped: everything
/// but the visible characters of ASCII without the quotation mark, so also U+2028 and U+202E. Nothing is `-`.
#[derive(Debug, Clone, Copy)]
pub struct Safe<'a>(pub Option<&'a str>);

impl Display for Safe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None | Some("") => f.write_str("-"),
            Some(text) => text.chars().try_for_each(|c| match c {
                c if c.is_ascii_graphic() && c != '"' => f.write_char(c),
                c => write!(f, "{}", c.escape_unicode()),
            }),
        }
    }
}

/// Text for people in which text from peers is, as an error that names a host: as [`Safe`], but with its spaces and quotation
/// marks.
#[derive(Debug, Clone, Copy)]
pub struct SafeLine<'a>(pub &'a str);

impl Display for SafeLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            ' ' | '!'..='~' => f.write_char(c),
            c => write!(f, "{}", c.escape_unicode()),
        })
    }
}

#[cfg(test)]
mod tests;
