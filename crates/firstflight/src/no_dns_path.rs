//! In the place of `dns_path.rs` where requests inside lookups are not built in.

pub(crate) mod report {
    /// There is none.
    #[derive(Debug)]
    pub(crate) enum Report {}
}
