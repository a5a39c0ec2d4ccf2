//! A table, printed as text or as JSON.

use serde_json::{Value, json};
use std::fmt;

/// Rows with a title.
#[derive(Debug)]
pub struct Table {
    title: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// The value of one cell.
#[derive(Debug)]
pub struct Cell(Value);

macro_rules! cells {
    ($($from:ty)*) => {$(
        impl From<$from> for Cell {
            fn from(value: $from) -> Self {
                Self(json!(value))
            }
        }
    )*};
}
cells!(&str String u32 u64 usize f64);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(text) => f.pad(text),
            Value::Number(n) if n.is_f64() => f.pad(&format!("{:.2}", n.as_f64().unwrap_or_default())),
            other => f.pad(&other.to_string()),
        }
    }
}

impl Table {
    /// An empty table.
    pub fn new(title: String, columns: &[&'static str]) -> Self {
        Self { title, columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, with one value for each column.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// The title, and the rows with the columns' names.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let named = self.columns.iter().zip(row).map(|(name, cell)| ((*name).to_owned(), cell.0.clone()));
            Value::Object(named.collect())
        });
        json!({ "title": self.title, "rows": rows.collect::<Vec<_>>() })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.to_string().len());
            cells.chain(self.columns.get(at).map(|name| name.len())).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        for (at, (name, width)) in self.columns.iter().zip(&widths).enumerate() {
            if at == 0 { write!(f, "  {name:width$}")? } else { write!(f, "  {name:>width$}")? }
        }
        writeln!(f)?;
        for row in &self.rows {
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if at == 0 { write!(f, "  {cell:width$}")? } else { write!(f, "  {cell:>width$}")? }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
