//! What led to an error.

use std::error::Error;
use std::io;

/// `error` and what led to it, the innermost cause last. Looks into an [`io::Error`] too, whose `source` skips the error that
/// it carries. An HTTP library wraps errors of a connection, and its own message says only where they occurred.
///
/// ```
/// use std::io;
/// let inner = io::Error::other("the server is gone");
/// let wrapped = io::Error::new(io::ErrorKind::BrokenPipe, inner);
/// assert_eq!(firstflight::causes(&wrapped).last().unwrap().to_string(), "the server is gone");
/// ```
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + use<'a> {
    std::iter::successors(Some(error), |&cause| {
        let carried = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        carried.map_or_else(|| cause.source(), |carried| Some(carried as _))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BadAuthority, ClientError};

    #[test]
    fn an_error_that_an_io_error_carries_is_found() {
        let bad = crate::Authority::new("host", 0).map(drop).unwrap_err();
        let wrapped = io::Error::other(io::Error::from(ClientError::from(bad)));
        assert!(matches!(ClientError::of(&wrapped), Some(ClientError::Authority(BadAuthority { .. }))));
        // Its own source skips what it carries.
        assert!(wrapped.source().is_none_or(|source| !source.is::<ClientError>()));
        assert!(ClientError::of(&io::Error::other("another")).is_none());
    }
}
