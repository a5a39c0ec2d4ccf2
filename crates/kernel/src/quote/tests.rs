#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use data::{CONTROL_V4, SYN};
use firstflight_wire::tcp::FastOpenForm;

/// What Linux 6.18 gave on x86-64.
mod data {
    /// A SYN whose option 34 requests a cookie.
    pub(super) const SYN: [u8; 44] = [
        0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0xb0, 2, 0xfa, 0xf0, 0, 0, 0, 0, 2, 4, 5, 0xb4, 4, 2, 8,
        10, 0xc1, 0xfd, 0xaf, 0x25, 0, 0, 0, 0, 1, 3, 3, 10, 34, 2, 1, 1,
    ];
    /// Behind the header: the error, and the sender 10.1.0.1.
    pub(super) const CONTROL_V4: [u8; 32] =
        [0x71, 0, 0, 0, 2, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 10, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
}

#[test]
fn a_quote_shows_the_option_its_absence_or_nothing() {
    assert_eq!(Quoted::of(&SYN), Quoted::Option(FastOpen::Request(FastOpenForm::Standard)));
    let mut removed = SYN;
    removed[40..].fill(1);
    assert_eq!(Quoted::of(&removed), Quoted::NoOption);
    for len in 0..SYN.len() {
        assert_eq!(Quoted::of(&SYN[..len]), Quoted::TooShort, "{len} bytes");
    }
}

#[test]
#[cfg(target_endian = "little")]
fn the_sender_of_an_error_is_behind_it() {
    let mut control = vec![0; (size_of::<usize>() + 8).next_multiple_of(size_of::<usize>())];
    control.extend(CONTROL_V4);
    assert_eq!(offender(&control), Some("10.1.0.1".parse().unwrap()));
    for len in 0..control.len() - 8 {
        assert_eq!(offender(&control[..len]), None, "{len} bytes");
    }
    let family = control.len() - 16;
    control[family] = 10;
    control.resize(family, 0);
    control.extend([10, 0, 0, 0, 0, 0, 0, 0]);
    control.extend("fd00::1".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(offender(&control), Some("fd00::1".parse().unwrap()));
}
