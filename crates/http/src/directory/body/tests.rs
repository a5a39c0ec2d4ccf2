#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use http_body_util::BodyExt;

/// Only one piece waits for a reader, and it is small until the reader has taken enough.
#[tokio::test]
async fn the_first_pieces_are_small() {
    let path = std::env::temp_dir().join(format!("firstflight-pieces-{}", std::process::id()));
    let all: Vec<u8> = (0..900_001).map(|n| (n % 251) as u8).collect();
    std::fs::write(&path, &all).unwrap();
    let mut body = FileBody::open(&path).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(body.buffer.len(), FIRST_PIECE);
    let (mut pieces, mut got) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let piece = frame.unwrap().into_data().unwrap();
        pieces.push(piece.len());
        got.extend_from_slice(&piece);
    }
    let (small, rest) = pieces.split_at(8);
    assert!(small.iter().all(|len| *len == FIRST_PIECE), "{pieces:?}");
    assert_eq!(rest, [PIECE, PIECE, 900_001 - 8 * FIRST_PIECE - 2 * PIECE]);
    assert!(got == all && body.is_end_stream());
}

#[tokio::test]
async fn a_part_is_the_bytes_that_were_asked_for() {
    let mut file = tempfile::tempfile().unwrap();
    let all: Vec<u8> = (0..400_000).map(|n| (n % 251) as u8).collect();
    io::Write::write_all(&mut file, &all).unwrap();
    let file = Arc::new(file);
    for part in [0..0, 0..1, 7..100_000, 399_999..400_000, 0..400_000] {
        let body = FileBody::new(Arc::clone(&file), part.clone());
        assert_eq!(body.size_hint().exact(), Some(part.end - part.start));
        let got = body.collect().await.unwrap().to_bytes();
        assert!(got == all[part.start as usize..part.end as usize], "{part:?}");
    }
}

#[tokio::test]
async fn a_file_that_shrinks_is_an_error() {
    let path = std::env::temp_dir().join(format!("firstflight-shrinks-{}", std::process::id()));
    std::fs::write(&path, vec![7; 3 * FIRST_PIECE]).unwrap();
    let mut body = FileBody::open(&path).await.unwrap();
    std::fs::write(&path, vec![7; FIRST_PIECE + 5]).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), FIRST_PIECE);
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    std::fs::remove_file(&path).unwrap();
}
