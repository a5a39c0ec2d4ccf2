//! The entries of a zone file (RFC 1035 §5.1) and the lines that they begin at.
//!
//! The library reads an entry but does not say where one begins. So a file is split here, and each entry is written on
//! one line, without comments and parentheses.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The line at which it begins, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// Whether it begins with a space. Then it is for the name of the previous entry.
    pub indented: bool,
}

/// Why a text cannot be split into entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryFault {
    /// A parenthesis is not closed.
    #[error("a parenthesis that is not closed")]
    NotClosed,
    /// A parenthesis is closed that was not opened.
    #[error("a closing parenthesis without an opening one")]
    NotOpened,
    /// A quotation mark is missing in a line.
    #[error("a quotation mark without another one in its line")]
    Quote,
    /// An invalid escape, or one that is allowed only in quotation marks.
    #[error(
        "an escape that cannot be read: \\ and three digits up to 127, or \\ and another character in quotation marks"
    )]
    Escape,
}

/// Splits the text of a zone file. The first error is the last item.
pub(super) struct Entries<'a> {
    rest: core::str::Chars<'a>,
    line: usize,
}

impl<'a> Entries<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text.chars(), line: 1 }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    /// Reads up to the end of the entry's last line.
    fn entry(&mut self) -> Result<Entry, (usize, EntryFault)> {
        let (mut text, mut line, mut depth, mut opened) = (String::new(), self.line, 0_u32, self.line);
        let mut indented = None;
        while let Some(next) = self.rest.next() {
            if next != '\n' && indented.is_none() {
                (line, indented) = (self.line, Some(next.is_whitespace()));
            }
            match next {
                '\n' => {
                    self.line += 1;
                    if depth == 0 {
                        break;
                    }
                    text.push(' ');
                }
                ';' => {
                    while self.peek().is_some_and(|next| next != '\n') {
                        self.rest.next();
                    }
                }
                '(' => {
                    depth += 1;
                    opened = if depth == 1 { self.line } else { opened };
                    text.push(' ');
                }
                ')' => {
                    depth = depth.checked_sub(1).ok_or((self.line, EntryFault::NotOpened))?;
                    text.push(' ');
                }
                '"' => self.quoted(&mut text).map_err(|fault| (self.line, fault))?,
                '\\' => {
                    // The library would end the word at a separator, even at an escaped one.
                    let escaped = self.rest.next().filter(|next| !is_separator(*next));
                    text.extend(['\\', escaped.ok_or((self.line, EntryFault::Escape))?]);
                }
                next if next.is_whitespace() => text.push(' '),
                next => text.push(next),
            }
        }
        if depth > 0 {
            return Err((opened, EntryFault::NotClosed));
        }
        Ok(Entry { line, text: text.trim().to_owned(), indented: indented == Some(true) })
    }

    /// Reads from after a quotation mark up to the closing one.
    fn quoted(&mut self, text: &mut String) -> Result<(), EntryFault> {
        // The library reads `key="value"` as one word if it has no separators.
        let in_word = text.chars().next_back().is_some_and(|last| last != ' ');
        text.push('"');
        loop {
            match self.rest.next() {
                None | Some('\n') => return Err(EntryFault::Quote),
                Some('"') => break,
                Some('\\') if in_word => {
                    let escaped = self.rest.next().filter(|next| *next != '\n').ok_or(EntryFault::Escape)?;
                    text.push('\\');
                    if is_separator(escaped) && escaped != '"' {
                        text.push_str(&decimal(escaped));
                    } else {
                        text.push(escaped);
                    }
                }
                Some('\\') => push_literal(text, self.octet()?),
                Some(next) if in_word && is_separator(next) => {
                    text.push('\\');
                    text.push_str(&decimal(next));
                }
                Some(next) => text.push(next),
            }
        }
        text.push('"');
        Ok(())
    }

    /// The character that an escape represents, read after its backslash (RFC 1035 §5.1).
    fn octet(&mut self) -> Result<char, EntryFault> {
        let first = self.rest.next().filter(|next| *next != '\n').ok_or(EntryFault::Escape)?;
        let Some(mut number) = first.to_digit(10) else { return Ok(first) };
        for _ in 0..2 {
            let digit = self.rest.next().and_then(|next| next.to_digit(10)).ok_or(EntryFault::Escape)?;
            number = 10 * number + digit;
        }
        // The library uses text, in which other characters are not single octets.
        char::from_u32(number).filter(char::is_ascii).ok_or(EntryFault::Escape)
    }
}

/// Whether a character ends a word.
fn is_separator(character: char) -> bool {
    character.is_whitespace() || matches!(character, ';' | '(' | ')' | '"')
}

/// The three digits of a separator's octet. All characters that end a word for the library are ASCII or are
/// treated as a space.
fn decimal(separator: char) -> String {
    format!("{:03}", u8::try_from(separator).unwrap_or(b' '))
}

/// Adds a character to a quoted string as the library reads it.
fn push_literal(text: &mut String, character: char) {
    if matches!(character, '"' | '\\') {
        text.push('\\');
    }
    text.push(character);
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, (usize, EntryFault)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.peek().is_some() {
            match self.entry() {
                Ok(entry) if entry.text.is_empty() => {}
                Ok(entry) => return Some(Ok(entry)),
                Err(error) => {
                    self.rest = "".chars();
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
