//! When a request runs (6).

pub(crate) mod admission;
pub(crate) mod shared;
pub(crate) mod strike_register;
pub(crate) mod waiting;
mod why;

#[cfg(test)]
mod tests;
