//! Tables and reports: text for a person, and JSON for a program, from the same columns.

use crate::figure::{Figure, rounded};
use serde_json::{Map, Value, json};
use std::fmt;

/// Stands for a figure that could not be measured.
const NOT_KNOWN: &str = "–";
/// Digits behind the point in JSON, whatever the text has.
const DIGITS: i32 = 4;

/// The value of one cell.
#[derive(Debug, Clone)]
pub enum Cell {
    /// Nothing. `null` in JSON.
    Empty,
    Text(String),
    Bool(bool),
    Whole(u64),
    /// A number with this many digits behind the point.
    Number(f64, usize),
    /// A share from 0 to 1. The text has per cent, with this many digits behind the point.
    Share(f64, usize),
    /// A figure of several rounds: the text has median and quartiles, JSON has the values of all rounds, too.
    Quartiles(Figure, usize),
    /// The same with least and most in the text.
    Range(Figure, usize),
    /// The same with the median alone in the text.
    Median(Figure, usize),
}

macro_rules! cells {
    ($($from:ty, $value:ident => $cell:expr;)*) => {$(
        impl From<$from> for Cell {
            fn from($value: $from) -> Self {
                $cell
            }
        }
    )*};
}
cells! {
    &str, text => Self::Text(text.to_owned());
    String, text => Self::Text(text);
    bool, is => Self::Bool(is);
    u32, number => Self::Whole(number.into());
    u64, number => Self::Whole(number);
    usize, number => Self::Whole(number as u64);
    f64, number => Self::Number(number, 2);
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

fn number(value: f64) -> Value {
    // What is not a number is null.
    json!(rounded(value, DIGITS))
}

impl Cell {
    /// Whether it is a text that begins with a letter, or nothing.
    fn is_word(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Text(text) => text.chars().next().is_none_or(char::is_alphabetic),
            _ => false,
        }
    }

    /// Adds the value, and for a figure its quartiles and its rounds, in the order in which they were measured.
    fn put(&self, name: &str, object: &mut Map<String, Value>) {
        let value = match self {
            Self::Empty => Value::Null,
            Self::Text(text) => json!(text),
            Self::Bool(is) => json!(is),
            Self::Whole(whole) => json!(whole),
            Self::Number(value, _) | Self::Share(value, _) => number(*value),
            Self::Quartiles(figure, _) | Self::Range(figure, _) | Self::Median(figure, _) => {
                object.insert(
                    format!("{name}_quartiles"),
                    [0.25, 0.75].map(|share| number(figure.quantile(share))).into(),
                );
                object
                    .insert(format!("{name}_rounds"), figure.rounds().iter().copied().map(number).collect());
                number(figure.median())
            }
        };
        object.insert(name.to_owned(), value);
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.pad(""),
            Self::Text(text) => f.pad(text),
            Self::Bool(is) => f.pad(if *is { "yes" } else { "no" }),
            Self::Whole(whole) => f.pad(&whole.to_string()),
            Self::Number(value, _) | Self::Share(value, _) if value.is_nan() => f.pad(NOT_KNOWN),
            Self::Number(value, digits) => f.pad(&format!("{value:.digits$}")),
            Self::Share(value, digits) => f.pad(&format!("{:.digits$} %", value * 100.0)),
            Self::Quartiles(figure, _) | Self::Range(figure, _) | Self::Median(figure, _)
                if figure.median().is_nan() =>
            {
                f.pad(NOT_KNOWN)
            }
            Self::Quartiles(figure, digits) => f.pad(&figure.quartiles(*digits)),
            Self::Range(figure, digits) => f.pad(&figure.spread(*digits)),
            Self::Median(figure, digits) => f.pad(&format!("{:.digits$}", figure.median())),
        }
    }
}

/// One column of rows `R`: its head in the text, its name in JSON, and its value in a row. `C` is what the rows have in common.
/// Without a head it is in JSON only, without a name in the text only.
pub struct Column<C, R> {
    pub head: Option<&'static str>,
    pub name: Option<&'static str>,
    pub cell: fn(&C, &R) -> Cell,
}

impl<C, R> Column<C, R> {
    /// A column of the text and of JSON.
    pub const fn new(head: &'static str, name: &'static str, cell: fn(&C, &R) -> Cell) -> Self {
        Self { head: Some(head), name: Some(name), cell }
    }

    /// A column of the text alone.
    pub const fn text(head: &'static str, cell: fn(&C, &R) -> Cell) -> Self {
        Self { head: Some(head), name: None, cell }
    }

    /// A column of JSON alone.
    pub const fn json(name: &'static str, cell: fn(&C, &R) -> Cell) -> Self {
        Self { head: None, name: Some(name), cell }
    }
}

/// Rows with a title.
#[derive(Debug)]
pub struct Table {
    title: String,
    /// Heads and names.
    columns: Vec<(Option<&'static str>, Option<&'static str>)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table. The heads are the names.
    pub fn new(title: String, columns: &[&'static str]) -> Self {
        let columns = columns.iter().map(|head| (Some(*head), Some(*head))).collect();
        Self { title, columns, rows: Vec::new() }
    }

    /// A table of these rows.
    pub fn of<'a, C, R: 'a>(
        title: impl Into<String>,
        columns: &[Column<C, R>],
        context: &C,
        rows: impl IntoIterator<Item = &'a R>,
    ) -> Self {
        let row = |row: &R| columns.iter().map(|column| (column.cell)(context, row)).collect();
        Self {
            title: title.into(),
            columns: columns.iter().map(|column| (column.head, column.name)).collect(),
            rows: rows.into_iter().map(row).collect(),
        }
    }

    /// Adds a row, with one value for each column.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// An object for each row.
    pub fn rows(&self) -> Value {
        let object = |row: &Vec<Cell>| {
            let mut object = Map::new();
            for ((_, name), cell) in self.columns.iter().zip(row) {
                if let Some(name) = name {
                    cell.put(name, &mut object);
                }
            }
            Value::Object(object)
        };
        self.rows.iter().map(object).collect()
    }

    /// The title, and the rows with the columns' names.
    pub fn json(&self) -> Value {
        json!({ "title": self.title, "rows": self.rows() })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let heads = self.columns.iter().enumerate().filter_map(|(at, (head, _))| Some((at, (*head)?)));
        let heads: Vec<(usize, &str)> = heads.collect();
        let width = |(at, head): &(usize, &str)| {
            let cells =
                self.rows.iter().filter_map(|row| row.get(*at)).map(|cell| cell.to_string().chars().count());
            cells.chain([head.chars().count()]).max().unwrap_or_default()
        };
        let widths: Vec<usize> = heads.iter().map(width).collect();
        // Words begin at the left, as the first column does; numbers end at the right.
        let is_left = |(at, _): &(usize, &str)| {
            *at == 0 || self.rows.iter().filter_map(|row| row.get(*at)).all(Cell::is_word)
        };
        let lefts: Vec<bool> = heads.iter().map(is_left).collect();
        let line = |f: &mut fmt::Formatter<'_>, cells: &mut dyn Iterator<Item = String>| {
            let mut line = String::new();
            for ((cell, width), left) in cells.zip(&widths).zip(&lefts) {
                line += &if *left { format!("  {cell:width$}") } else { format!("  {cell:>width$}") };
            }
            writeln!(f, "{}", line.trim_end())
        };
        if heads.iter().any(|(_, head)| !head.is_empty()) {
            line(f, &mut heads.iter().map(|(_, head)| (*head).to_owned()))?;
        }
        for row in &self.rows {
            line(
                f,
                &mut heads.iter().map(|(at, _)| row.get(*at).map(ToString::to_string).unwrap_or_default()),
            )?;
        }
        Ok(())
    }
}

/// Tables, what they have in common, and how they are to be read.
#[derive(Debug, Default)]
pub struct Report {
    /// Only JSON has them; notes and titles say them in words.
    facts: Map<String, Value>,
    tables: Vec<(&'static str, Table)>,
    notes: Vec<String>,
}

impl Report {
    /// A report with these facts. `facts` is an object.
    pub fn new(facts: Value) -> Self {
        let Value::Object(facts) = facts else { return Self::default() };
        Self { facts, ..Self::default() }
    }

    /// Adds a table. Its rows have this name in JSON.
    #[must_use]
    pub fn table(mut self, name: &'static str, table: Table) -> Self {
        self.tables.push((name, table));
        self
    }

    /// Adds a note, which only the text has.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// The text, or one JSON object in one line.
    pub fn print(self, json: bool) -> String {
        if json {
            let mut object = self.facts;
            object.extend(self.tables.iter().map(|(name, table)| ((*name).to_owned(), table.rows())));
            return Value::Object(object).to_string();
        }
        let tables = self.tables.iter().map(|(_, table)| table.to_string());
        tables.chain(self.notes).collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests;
