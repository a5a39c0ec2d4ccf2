//! ASAP's objects outside of connections: options, credential blocks, certificates, verifier messages and service parameters,
//! found by their first bytes (`docs/spec/asap.md`).
//!
//! ```
//! use firstflight_explain::asap::Object;
//!
//! let option = [0xfd, 0x08, 0xfa, 0x57, 0x11, 0x00, 0x00, 0xc4];
//! let object = Object::read(&option)?;
//! assert_eq!(object.kind(), "block-option");
//! println!("{}", object.words(option.len()));
//! # Ok::<_, firstflight_explain::asap::NotAnObject>(())
//! ```

mod object;
mod words;

pub use object::{NotAnObject, Object};
