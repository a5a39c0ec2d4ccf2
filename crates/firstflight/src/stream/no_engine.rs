//! In the place of `engine.rs` where no engine is built in.

pub(crate) use super::connection::Absent as EngineStream;
