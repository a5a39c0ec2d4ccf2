use super::*;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

fn flight(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE.to_vec(), frames.concat()].concat()
}

#[test]
fn the_preface_waits_for_a_whole_request() {
    let settings = frame(SETTINGS, 0, &[0; 6]);
    let head = frame(HEADERS, 4, &[0x83, 0x86]);
    for waits in [
        PREFACE[..5].to_vec(),
        flight(&[]),
        flight(std::slice::from_ref(&settings)),
        flight(&[settings.clone(), head.clone()]),
        flight(&[settings.clone(), head.clone(), frame(DATA, 0, b"a")]),
        flight(&[settings.clone(), frame(HEADERS, 5, &[0x82])])[..48].to_vec(),
    ] {
        assert!(awaits_request(&waits), "{waits:?}");
        assert!(!is_safe_request(&waits), "{waits:?}");
    }
    for whole in [
        flight(&[settings.clone(), frame(HEADERS, 5, &[0x82])]),
        flight(&[settings, head, frame(DATA, 1, b"a")]),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        Vec::new(),
    ] {
        assert!(!awaits_request(&whole), "{whole:?}");
    }
}

#[test]
fn only_one_get_is_safe() {
    let get = frame(HEADERS, 5, &[0x82, 0x86, 0x40, 1, b'a', 1, b'b', 0x04, 2, b'/', b'x']);
    assert!(is_safe_request(&flight(std::slice::from_ref(&get))));
    assert!(is_safe_request(&flight(&[frame(HEADERS, 5 | WITH_PRIORITY, &[0, 0, 0, 0, 0, 0x82])])));
    let post = frame(HEADERS, 5, &[0x83, 0x86]);
    let body = [frame(HEADERS, 4, &[0x82]), frame(DATA, 1, b"a")];
    let unknown = frame(6, 0, &[0; 8]);
    let continued = [frame(HEADERS, 1, &[0x82]), frame(CONTINUATION, END_HEADERS, &[0x86])];
    let padded = [frame(HEADERS, 1 | PADDED, &[1, 0x82]), frame(CONTINUATION, END_HEADERS, &[0x83])];
    for fields in [&[0x82, 0x83][..], &[0x82, 0x42, 1, b'x'], &[0x82, 0x40, 5, b'a'], &[0x86, 0x82], &[]] {
        assert!(!is_safe_request(&flight(&[frame(HEADERS, 5, fields)])), "{fields:?}");
    }
    assert!(!is_safe_request(&flight(&continued)) && !is_safe_request(&flight(&padded)));
    assert!(!is_safe_request(&flight(&[frame(HEADERS, 1, &[0x82])])));
    for other in [vec![post.clone()], body.to_vec(), vec![get.clone(), post], vec![get, unknown]] {
        assert!(!is_safe_request(&flight(&other)), "{other:?}");
    }
}
