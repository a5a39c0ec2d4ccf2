use super::*;
use nix::errno::Errno::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EINVAL, EIO, EISDIR, EMFILE, ENFILE, ENOBUFS, ENODEV,
    ENOENT, ENOMEM, ENOSPC, ENOTDIR, EROFS, ESTALE,
};

#[test]
fn what_may_be_otherwise_in_a_minute_is_a_failure() {
    for errno in [EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, ENODEV, ENOBUFS, ENOMEM, EMFILE] {
        assert_eq!(ExitKind::of_address(&errno.into()), ExitKind::Failure, "{errno}");
    }
    for errno in [EACCES, EINVAL] {
        assert_eq!(ExitKind::of_address(&errno.into()), ExitKind::Mistake, "{errno}");
    }
    for errno in [ENOSPC, EIO, EMFILE, ENFILE, ENOMEM, ESTALE] {
        assert_eq!(ExitKind::of_file(&errno.into()), ExitKind::Failure, "{errno}");
    }
    for errno in [ENOENT, EACCES, EISDIR, ENOTDIR, EROFS] {
        assert_eq!(ExitKind::of_file(&errno.into()), ExitKind::Mistake, "{errno}");
    }
}
