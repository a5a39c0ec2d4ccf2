//! Writes a body to a file.

use bytes::BytesMut;
use firstflight_http::directory::PIECE;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tokio::task::block_in_place;

/// Whether a path is `-`, which stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a file in large pieces. The file is created with its first piece, so a body that breaks off earlier leaves
/// an existing file unchanged.
///
/// Use it in a task of a runtime with several threads: while it blocks on a disk, the other tasks continue. It blocks
/// here and not in a separate thread, because waking two threads takes longer than writing a file of some kilobytes.
pub struct FileSink {
    path: PathBuf,
    file: Option<File>,
    buffer: BytesMut,
    /// Of a large body.
    bar: Option<ProgressBar>,
}

/// Bodies from this size on get a progress bar, bytes.
const LARGE: u64 = 1 << 20;

impl FileSink {
    /// Writes to `path` and replaces its content, or to standard output if `path` is `-`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, buffer: BytesMut::new(), bar: None }
    }

    /// Shows the progress of a large body of this length. Nothing is shown if stderr is not a terminal.
    pub fn progress(mut self, length: Option<u64>) -> Self {
        let template = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        if let (Some(length @ LARGE..), Ok(style)) = (length, ProgressStyle::with_template(template)) {
            self.bar = Some(ProgressBar::new(length).with_style(style));
        }
        self
    }

    /// Whether a file of this name can be written, before there is a body. It is created, and its content stays.
    pub fn check(path: &Path) -> io::Result<()> {
        if is_stdout(path) {
            return Ok(());
        }
        File::options().write(true).create(true).truncate(false).open(path).map(drop)
    }

    /// Adds `data`.
    /// Errors: those of the system, which may also concern earlier data.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(data);
        if let Some(bar) = &self.bar {
            bar.inc(data.len() as u64);
        }
        if self.buffer.len() >= PIECE { block_in_place(|| self.put()) } else { Ok(()) }
    }

    /// Writes the remaining data.
    /// Errors: those of the system, which may also concern earlier data.
    pub fn finish(mut self) -> io::Result<()> {
        block_in_place(|| self.put())?;
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
        Ok(())
    }

    fn put(&mut self) -> io::Result<()> {
        if is_stdout(&self.path) {
            let mut stdout = io::stdout().lock();
            stdout.write_all(&self.buffer)?;
            self.buffer.clear();
            return stdout.flush();
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => File::create(&self.path)?,
        };
        file.write_all(&self.buffer)?;
        self.buffer.clear();
        self.file = Some(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
