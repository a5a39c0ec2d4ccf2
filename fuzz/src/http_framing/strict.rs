//! A reader of what [`Framing`](firstflight_http::framing::Framing) writes, and of nothing else: one form for each thing.

/// A request, as it was passed on.
#[derive(Debug)]
pub struct Seen {
    /// Where it begins.
    pub begin: usize,
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    /// It is one of HTTP/1.1.
    pub is_new: bool,
    pub fields: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, Vec<u8>)>,
    /// Its body has come to its end.
    pub whole: bool,
    /// It stands in the place of one that was not passed on.
    pub refused: bool,
}

impl Seen {
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.fields.iter().filter(|(other, _)| other == name).map(|(_, value)| &value[..]);
        let value = values.next();
        assert!(values.next().is_none() || name == "connection", "{name} twice");
        value
    }
}

/// Reads all of it. Panics at what is not in its one form.
pub fn read(bytes: &[u8]) -> Vec<Seen> {
    let mut rest = Rest { bytes, at: 0 };
    let mut all = Vec::new();
    while rest.at < bytes.len() {
        let mut seen = head(&mut rest);
        seen.whole = body(&mut seen, &mut rest).is_some();
        assert!(seen.whole || rest.at == bytes.len());
        all.push(seen);
    }
    all
}

struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    /// The next line, without its CRLF. `None` at the end of everything, and then it is there.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            self.at = self.bytes.len();
            return None;
        };
        self.at += end + 1;
        let line = rest[..end].strip_suffix(b"\r").expect("a bare LF");
        assert!(!line.iter().any(|byte| matches!(byte, b'\r' | b'\0')), "a bare CR, or NUL");
        Some(line)
    }

    /// So many bytes, or fewer at the end of everything.
    fn take(&mut self, most: u64) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        let count = rest.len().min(usize::try_from(most).unwrap());
        self.at += count;
        &rest[..count]
    }
}

fn head(rest: &mut Rest<'_>) -> Seen {
    let begin = rest.at;
    let line = rest.line().expect("half a head");
    let parts: Vec<_> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = parts[..] else { panic!("the request line {line:?}") };
    assert!(!method.is_empty() && method.iter().all(|&byte| is_token(byte)), "the method {method:?}");
    assert!(target.iter().all(u8::is_ascii_graphic) && !target.is_empty(), "the target {target:?}");
    assert!(!target.contains(&b'#'), "a fragment");
    let is_new = version == b"HTTP/1.1";
    assert!(is_new || version == b"HTTP/1.0");
    let (method, target, fields) = (method.to_vec(), target.to_vec(), fields(rest).expect("half a head"));
    let refused = fields.iter().any(|(name, _)| name == "x-firstflight-refused");
    if refused {
        let expected = ["host", "connection", "x-firstflight-refused"];
        assert!(fields.iter().map(|(name, _)| &name[..]).eq(expected));
        assert!(method != b"CONNECT" && target[0] == b'/');
    }
    let (body, trailers) = (Vec::new(), Vec::new());
    let seen = Seen { begin, method, target, is_new, fields, body, trailers, whole: false, refused };
    if let Some(told) = seen.value("x-firstflight-whole") {
        assert!(told == b"1" && seen.method == b"OPTIONS");
    }
    seen
}

/// Fields up to an empty line.
fn fields(rest: &mut Rest<'_>) -> Option<Vec<(String, Vec<u8>)>> {
    let mut fields = Vec::new();
    loop {
        let line = rest.line()?;
        if line.is_empty() {
            return Some(fields);
        }
        let colon = line.iter().position(|&byte| byte == b':').expect("a field without a colon");
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        assert!(!name.is_empty() && name.iter().all(|&byte| is_token(byte)), "the field {line:?}");
        assert!(value.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control()), "the field {line:?}");
        fields.push((String::from_utf8(name.to_ascii_lowercase()).unwrap(), value.to_vec()));
    }
}

/// `None` if it has not come whole.
fn body(seen: &mut Seen, rest: &mut Rest<'_>) -> Option<()> {
    match (seen.value("content-length"), seen.value("transfer-encoding")) {
        (None, None) => {}
        (Some(length), None) => {
            let text = std::str::from_utf8(length).unwrap();
            let number: u64 = text.parse().expect("a length that is no number");
            assert_eq!(number.to_string(), text, "a length in another form");
            assert!(i64::try_from(number).is_ok());
            seen.body = rest.take(number).to_vec();
            if seen.body.len() as u64 != number {
                return None;
            }
        }
        (None, Some(coding)) => {
            assert!(coding == b"chunked" && seen.is_new, "the coding {coding:?}");
            while let size @ 1.. = size(rest.line()?) {
                let chunk = rest.take(size);
                seen.body.extend_from_slice(chunk);
                if chunk.len() as u64 != size || !rest.line()?.is_empty() {
                    return None;
                }
            }
            seen.trailers = fields(rest)?;
        }
        both => panic!("two lengths {both:?}"),
    }
    Some(())
}

fn size(line: &[u8]) -> u64 {
    let text = std::str::from_utf8(line).unwrap();
    let size = u64::from_str_radix(text, 16).expect("a size that is no number");
    assert_eq!(format!("{size:x}"), text, "a size in another form");
    assert!(i64::try_from(size).is_ok());
    size
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
