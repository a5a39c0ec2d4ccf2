//! Reads the records of zone files (RFC 1035 §5) and their places.

use super::entries::{Entries, Entry};
use super::error::{ZoneError, ZoneFault, ZonePlace};
use hickory_proto::rr::{Name, Record};
use hickory_proto::serialize::txt::{Parser, parse_ttl};
use std::io;
use std::path::{Path, PathBuf};

/// The deepest nesting of included files.
const MAX_DEPTH: usize = 16;

/// A record and its place.
pub(super) struct Located {
    pub record: Record,
    /// `None` for a record that is not from a file.
    pub place: Option<ZonePlace>,
}

impl From<Record> for Located {
    fn from(record: Record) -> Self {
        Self { record, place: None }
    }
}

/// Reads the files of one zone.
pub(super) struct Reader<'r> {
    /// Returns the text of an included file.
    files: &'r mut dyn FnMut(&Path) -> io::Result<String>,
    default_ttl: Option<u32>,
    /// The TTL of the previous record, for records without one.
    last_ttl: Option<u32>,
    records: Vec<Located>,
}

/// A file while it is read.
struct File<'a> {
    path: Option<&'a Path>,
    origin: Name,
    /// The name of the previous record.
    owner: Option<Name>,
    depth: usize,
}

impl<'r> Reader<'r> {
    /// Reads the records in `text`, the content of the file at `path`, and in the files that it includes.
    pub(super) fn read(
        text: &str,
        path: Option<&Path>,
        origin: &Name,
        files: &'r mut dyn FnMut(&Path) -> io::Result<String>,
    ) -> Result<Vec<Located>, ZoneError> {
        let mut reader = Self { files, default_ttl: None, last_ttl: None, records: Vec::new() };
        reader.file(text, File { path, origin: origin.clone(), owner: None, depth: 0 })?;
        Ok(reader.records)
    }

    fn file(&mut self, text: &str, mut file: File<'_>) -> Result<(), ZoneError> {
        for entry in Entries::new(text) {
            let at = |line| ZonePlace { file: file.path.map(Path::to_owned), line };
            let entry = entry.map_err(|(line, fault)| ZoneFault::Entry(fault).at(at(line)))?;
            let place = at(entry.line);
            let step = match entry.text.starts_with('$') && !entry.indented {
                true => self.directive(&entry, &mut file),
                false => self.record(&entry, &mut file, &place).map_err(Trouble::Here),
            };
            step.map_err(|trouble| match trouble {
                Trouble::Here(fault) => fault.at(place),
                Trouble::Included(error) => error,
            })?;
        }
        Ok(())
    }

    fn directive(&mut self, entry: &Entry, file: &mut File<'_>) -> Result<(), Trouble> {
        let mut words = entry.text.split_whitespace();
        let name = words.next().unwrap_or_default().to_ascii_uppercase();
        let (first, second, more) = (words.next(), words.next(), words.next());
        let wrong = || Trouble::Here(ZoneFault::Directive);
        let origin_of = |word, file: &File<'_>| {
            let name = Name::parse(word, Some(&file.origin)).map_err(|_| wrong())?;
            let mut name = name.to_lowercase();
            name.set_fqdn(true);
            Ok::<Name, Trouble>(name)
        };
        match (&name[..], first, second, more) {
            ("$ORIGIN", Some(word), None, None) => file.origin = origin_of(word, file)?,
            ("$TTL", Some(word), None, None) => {
                self.default_ttl = Some(parse_ttl(word).map_err(|_| wrong())?);
            }
            ("$INCLUDE", Some(path), origin, None) => {
                let origin = match origin {
                    Some(word) => origin_of(word, file)?,
                    None => file.origin.clone(),
                };
                self.include(path.trim_matches('"'), origin, file)?;
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// An included file changes neither the origin nor the last name of the including file (RFC 1035 §5.1).
    fn include(&mut self, path: &str, origin: Name, from: &File<'_>) -> Result<(), Trouble> {
        let depth = from.depth + 1;
        if depth > MAX_DEPTH {
            return Err(Trouble::Here(ZoneFault::Depth));
        }
        let directory = from.path.and_then(Path::parent).unwrap_or(Path::new(""));
        let path: PathBuf = directory.join(path);
        let text =
            (self.files)(&path).map_err(|error| Trouble::Here(ZoneFault::Include(path.clone(), error)))?;
        let file = File { path: Some(&path), origin, owner: from.owner.clone(), depth };
        self.file(&text, file).map_err(Trouble::Included)
    }

    fn record(&mut self, entry: &Entry, file: &mut File<'_>, place: &ZonePlace) -> Result<(), ZoneFault> {
        let mut text = String::with_capacity(entry.text.len() + 80);
        if let Some(ttl) = self.default_ttl.or(self.last_ttl) {
            text.push_str(&format!("$TTL {ttl}\n"));
        }
        if entry.indented {
            let owner = file.owner.as_ref().ok_or(ZoneFault::NoName)?;
            text.push_str(&owner.to_ascii());
            text.push(' ');
        }
        text.push_str(&entry.text);
        text.push('\n');
        let (_, sets) =
            Parser::new(text, None, Some(file.origin.clone())).parse().map_err(ZoneFault::Syntax)?;
        let mut records = sets.into_values().flat_map(|set| set.into_parts().records);
        let (Some(record), None) = (records.next(), records.next()) else {
            return Err(ZoneFault::Incomplete);
        };
        // The name in its written form was parsed as another name.
        if entry.indented && file.owner.as_ref() != Some(&record.name) {
            return Err(ZoneFault::NoName);
        }
        file.owner = Some(record.name.clone());
        self.last_ttl = Some(record.ttl);
        self.records.push(Located { record, place: Some(place.clone()) });
        Ok(())
    }
}

/// The place of a mistake.
enum Trouble {
    /// In the present entry.
    Here(ZoneFault),
    /// In an included file.
    Included(ZoneError),
}
