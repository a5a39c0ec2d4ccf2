//! When a request runs (6).

pub(crate) mod admission;
pub(crate) mod shared;
pub(crate) mod table;
pub(crate) mod waiting;
mod why;

#[cfg(test)]
mod tests;
