//! The tests of credentials, in one program. Each module is about one subject.

mod asap_vectors;
mod outcomes_page;
