use super::*;

struct Refuses(io::ErrorKind);

impl Write for Refuses {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn only_a_reader_that_is_gone_is_no_error() {
    write(&mut Refuses(io::ErrorKind::BrokenPipe), &"a table").unwrap();
    let error = write(&mut Refuses(io::ErrorKind::StorageFull), &"a table").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let mut out = Vec::new();
    write(&mut out, &"a table").unwrap();
    assert_eq!(out, b"a table\n");
}
