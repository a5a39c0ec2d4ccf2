use super::*;
use crate::congestion::MAX_WINDOW;
use std::string::ToString;

#[test]
fn initial_windows_of_rfc_6928() {
    assert_eq!(initial_window(536), 5360);
    assert_eq!(initial_window(1460), 14_600);
    assert_eq!(initial_window(2000), 14_600);
    assert_eq!(initial_window(8940), 17_880);
    assert_eq!(initial_window(u32::MAX), u32::MAX);
}

#[test]
fn a_window_is_at_least_a_segment_and_no_more_than_tcp_can_offer() {
    let of = |window: Option<InitialWindow>, mss| window.map(|window| window.window(mss));
    assert_eq!(InitialWindow::Standard.window(1460), 14_600);
    assert_eq!(of(InitialWindow::segments(3), 1460), Some(4380));
    assert_eq!(of(InitialWindow::bytes(20_000), 1460), Some(20_000));
    assert_eq!(of(InitialWindow::bytes(1), 1460), Some(1460));
    assert_eq!(of(InitialWindow::segments(u16::MAX), 65_535), Some(MAX_WINDOW));
    assert_eq!(of(InitialWindow::bytes(u32::MAX), 1460), Some(MAX_WINDOW));
    assert_eq!([InitialWindow::segments(0), InitialWindow::bytes(0)], [None, None]);
}

#[test]
fn a_window_is_what_its_text_says() {
    for text in ["standard", "3", "65535", "14600B"] {
        assert_eq!(text.parse::<InitialWindow>().map(|window| window.to_string()), Ok(text.to_string()));
    }
    for text in ["", "0", "0B", "B", "-1", "65536", "ten", "3b", "4294967296B"] {
        assert_eq!(text.parse::<InitialWindow>(), Err(NoInitialWindow), "{text:?}");
    }
}
