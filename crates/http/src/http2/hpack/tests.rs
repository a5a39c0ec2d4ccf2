#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn text(hex: &str) -> Option<String> {
    let mut text = Vec::new();
    huffman(&bytes(hex), &mut text)?;
    Some(String::from_utf8(text).unwrap())
}

#[test]
fn strings_of_the_rfc_are_decoded() {
    for (coded, plain) in [
        ("f1e3c2e5f23a6ba0ab90f4ff", "www.example.com"),
        ("a8eb10649cbf", "no-cache"),
        ("25a849e95ba97d7f", "custom-key"),
        ("25a849e95bb8e8b4bf", "custom-value"),
        ("6402", "302"),
        ("aec3771a4b", "private"),
        ("d07abe941054d444a8200595040b8166e082a62d1bff", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("9d29ad171863c78f0b97c8e9ae82ae43d3", "https://www.example.com"),
        ("640eff", "307"),
        (
            "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ),
        ("", ""),
    ] {
        assert_eq!(text(coded).as_deref(), Some(plain), "{coded}");
    }
    // Padding of a whole byte, padding with zeros, and the end itself.
    for wrong in ["6402ff", "f1e3c2e5f23a6ba0ab90f400", "ffffffff"] {
        assert_eq!(text(wrong), None, "{wrong}");
    }
}

/// The responses of RFC 7541 §C.6, in a table of 256 bytes, from which entries fall out.
#[test]
fn a_table_is_kept_as_the_rfc_says() {
    let mut decoder = Decoder::new(1024);
    // As SETTINGS_HEADER_TABLE_SIZE would.
    decoder.most = 256;
    let mut sizes = Vec::new();
    for block in [
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
        "4883640effc1c0bf",
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
    ] {
        let mut fields = 0;
        decoder.read(&bytes(block), true, |_| fields += 1).unwrap();
        sizes.push((fields, decoder.entries.len(), decoder.size));
    }
    assert_eq!(sizes, [(4, 4, 222), (4, 4, 222), (6, 3, 215)]);
}

#[test]
fn a_block_in_pieces_is_the_same_block() {
    let block = bytes("828684418cf1e3c2e5f23a6ba0ab90f4ff40 0161 022076 be");
    let fields = |size: usize| {
        let (mut decoder, mut fields) = (Decoder::new(1024), Vec::new());
        for piece in block.chunks(size) {
            decoder.read(piece, false, |field| fields.push(field)).unwrap();
        }
        decoder.read(&[], true, |_| {}).unwrap();
        fields
    };
    let whole = fields(usize::MAX);
    assert_eq!(
        whole.iter().map(Field::is_pseudo).collect::<Vec<_>>(),
        [true, true, true, true, false, false]
    );
    // The last one is an index of the one before.
    assert_eq!(
        whole.iter().map(|field| field.malformed).collect::<Vec<_>>(),
        [false, false, false, false, true, true]
    );
    for size in 1..block.len() {
        assert_eq!(fields(size), whole, "{size}");
    }
}

#[test]
fn what_is_no_block_cannot_be_read() {
    let reads = |hex: &str| Decoder::new(8).read(&bytes(hex), true, |_| {}).is_some();
    for wrong in
        ["80", "be", "7f00", "ffffffffff7f", "3fe21f", "400161", "4001610276", "4001 61 85ffffffffff"]
    {
        assert!(!reads(wrong), "{wrong}");
    }
    assert!(reads("3fe11f82"), "a table of 4096 bytes");
    // A field that does not end.
    let mut decoder = Decoder::new(8);
    decoder.read(&bytes("400161 7f00 2020"), false, |_| {}).unwrap();
    assert_eq!(decoder.read(&[b' '; 8], false, |_| {}), None);
}
