use super::*;
use firstflight_wire::tcp::{Segment, fill_checksum};

const SRC: [u8; 4] = [192, 0, 2, 1];
const DST: [u8; 4] = [192, 0, 2, 2];

fn packet() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend(SRC.into_iter().chain(DST));
    let mut tcp = vec![0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x10, 0, 0, 0, 0, 0];
    tcp.extend(b"data");
    fill_checksum(&mut tcp, SRC.into(), DST.into());
    packet.extend(tcp);
    packet
}

#[test]
fn a_frame_is_written_and_read() {
    let packet = packet();
    // A short frame is padded to 60 bytes.
    let mut frame = vec![0; 60];
    write(&mut frame, [1; 6], [2; 6], &packet);
    assert_eq!(frame[12..14], [0x08, 0x00]);
    let read = read(&mut frame, 1500).unwrap();
    assert_eq!((read.from, read.src, &read.packet[..]), ([2; 6], SRC.into(), &packet[..]));
}

#[test]
fn what_is_cut_or_too_long_is_refused() {
    let packet = packet();
    let mut frame = vec![0; HEADER + packet.len()];
    write(&mut frame, [1; 6], [2; 6], &packet);
    assert!(read(&mut frame.clone(), packet.len()).is_some());
    assert!(read(&mut frame.clone(), packet.len() - 1).is_none(), "longer than the MTU");
    for len in 0..frame.len() {
        assert!(read(&mut frame[..len], 1500).is_none());
    }
}

#[test]
fn a_checksum_that_was_left_to_the_card_is_completed() {
    let whole = packet();
    let mut left = whole.clone();
    let bare = !pseudo_header(SRC.into(), DST.into(), 6, 24).finish();
    left[36..38].copy_from_slice(&bare.to_be_bytes());
    complete(&mut left).unwrap();
    assert_eq!(left, whole);
    // A wrong one stays wrong.
    let mut wrong = whole.clone();
    wrong[36] ^= 1;
    assert_eq!(complete(&mut wrong), None);
    assert!(Segment::parse_checked(&wrong[20..], SRC.into(), DST.into()).is_err());
}
