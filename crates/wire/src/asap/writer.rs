//! A cursor that writes.

use crate::EmitError;

/// A buffer, and where the next bytes go.
pub(super) struct Writer<'a> {
    pub out: &'a mut [u8],
    pub at: usize,
}

impl Writer<'_> {
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        let to = self.out.get_mut(self.at..).and_then(|rest| rest.get_mut(..bytes.len()));
        to.ok_or(EmitError::BufferTooSmall)?.copy_from_slice(bytes);
        self.at += bytes.len();
        Ok(())
    }
}
