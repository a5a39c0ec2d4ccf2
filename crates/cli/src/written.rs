//! A configuration of the gateway that options stand for, as text.

use std::fmt::{Display, Write};
use std::path::PathBuf;

/// A file in TOML.
#[derive(Default)]
pub struct Written(String);

impl Written {
    /// Begins a table, as `[[listener]]`.
    pub fn table(&mut self, head: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{head}");
    }

    /// A value that TOML has as it is shown, as a number.
    pub fn value(&mut self, key: &str, value: impl Display) {
        let _ = writeln!(self.0, "{key} = {value}");
    }

    pub fn text(&mut self, key: &str, text: impl AsRef<str>) {
        self.value(key, quoted(text));
    }

    pub fn text_if(&mut self, key: &str, text: Option<impl AsRef<str>>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    /// The path of a file, if there is one. It is absolute: the file may be served from another directory.
    pub fn file(&mut self, key: &str, file: Option<&String>) {
        self.text_if(key, file.map(absolute));
    }

    /// A list of texts, if it has any.
    pub fn texts<T: AsRef<str>>(&mut self, key: &str, texts: impl IntoIterator<Item = T>) {
        let all: Vec<_> = texts.into_iter().map(quoted).collect();
        if !all.is_empty() {
            self.value(key, format_args!("[{}]", all.join(", ")));
        }
    }

    /// The certificates of a listener, each a chain and a key.
    pub fn certificates(&mut self, pairs: impl IntoIterator<Item = (String, String)>) {
        let one = |(chain, key): (String, String)| {
            format!("{{ chain = {}, key = {} }}", quoted(absolute(&chain)), quoted(absolute(&key)))
        };
        let all: Vec<_> = pairs.into_iter().map(one).collect();
        if !all.is_empty() {
            self.table("[listener.tls]");
            self.value("certificate", format_args!("[{}]", all.join(", ")));
        }
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.table("");
    }

    /// The whole text.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// A text in TOML. What a terminal would not show as it is has an escape.
fn quoted(text: impl AsRef<str>) -> String {
    let mut quoted = String::from('"');
    for c in text.as_ref().chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ' => quoted.push(c),
            // Writing to a string cannot fail.
            c => drop(write!(quoted, "\\U{:08X}", u32::from(c))),
        }
    }
    quoted + "\""
}

/// The path from the root. An odd one stays as it is.
pub fn absolute(file: impl AsRef<str>) -> String {
    let file = file.as_ref();
    std::path::absolute(file)
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
        .unwrap_or_else(|| file.to_owned())
}

/// A path as text. Those that are made here are text, unless the directory for temporary files has another name.
pub fn path(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap_or_else(|odd| odd.to_string_lossy().into_owned())
}
