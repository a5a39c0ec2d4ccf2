use super::*;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn all_pieces_in_order() {
    let scratch = scratch();
    let path = scratch.path().join("out");
    let all: Vec<u8> = (0..3 * PIECE + 5).map(|n| (n % 251) as u8).collect();
    let mut sink = FileSink::new(&path);
    for part in all.chunks(1000) {
        sink.write(part).unwrap();
    }
    sink.finish().unwrap();
    assert!(std::fs::read(&path).unwrap() == all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_empty_body_is_an_empty_file() {
    let scratch = scratch();
    let path = scratch.path().join("out");
    std::fs::write(&path, "before").unwrap();
    FileSink::check(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"before");
    FileSink::new(&path).finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_never_came_changes_nothing() {
    let scratch = scratch();
    let path = scratch.path().join("out");
    std::fs::write(&path, "before").unwrap();
    let mut sink = FileSink::new(&path);
    sink.write(b"too little").unwrap();
    drop(sink);
    assert_eq!(std::fs::read(&path).unwrap(), b"before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_file_that_cannot_be_made() {
    let scratch = scratch();
    assert!(FileSink::check(scratch.path()).is_err());
    let mut sink = FileSink::new(scratch.path());
    sink.write(b"into a directory").unwrap();
    assert!(sink.finish().is_err());
}
