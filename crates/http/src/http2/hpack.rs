//! Reads header blocks (HPACK, RFC 7541), as far as their fields must be judged: the table of a connection without its texts.

use std::collections::VecDeque;
use std::sync::LazyLock;

/// Bytes of the table, of which no setting says otherwise (RFC 9113 §6.5.2).
const TABLE: usize = 4096;
/// What an entry counts besides its texts, bytes (RFC 7541 §4.1).
const ENTRY: usize = 32;

/// What the name of a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Field,
    Path,
    Scheme,
    Status,
    OtherPseudo,
}

/// A field, as far as it is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    name: Name,
    /// Bytes of the name, and of the name with the value.
    sizes: (usize, usize),
    /// Its value is one that no field of this name may have.
    pub(super) malformed: bool,
    /// It is the status of an interim response.
    is_interim: bool,
}

impl Field {
    fn new(name: Name, name_size: usize, value: &[u8]) -> Self {
        let malformed = match name {
            // RFC 9113 §8.2.1: neither begins nor ends with a space or a tab.
            Name::Field => {
                [value.first(), value.last()].iter().any(|byte| matches!(byte, Some(b' ' | b'\t')))
            }
            // RFC 9113 §8.3.1. A fragment is no part of it, and `http::Uri` would cut it off.
            Name::Path => value != b"*" && (!value.starts_with(b"/") || value.iter().any(is_not_of_path)),
            // What h2 tells of a request without `:authority` has none.
            Name::Scheme => !value.eq_ignore_ascii_case(b"http") && !value.eq_ignore_ascii_case(b"https"),
            Name::Status | Name::OtherPseudo => false,
        };
        let is_interim = name == Name::Status && value.first() == Some(&b'1');
        Self { name, sizes: (name_size, name_size + value.len()), malformed, is_interim }
    }

    pub(super) fn is_pseudo(&self) -> bool {
        self.name != Name::Field
    }

    /// Whether it is the status of a response that is not interim.
    pub(super) fn is_final_status(&self) -> bool {
        self.name == Name::Status && !self.is_interim
    }
}

/// Whether no path or query of a URI has this byte, and HTTP/1.1 would refuse it or have it percent-encoded.
fn is_not_of_path(byte: &u8) -> bool {
    !byte.is_ascii_graphic() || matches!(byte, b'#' | b'<' | b'>' | b'`')
}

fn name_of(name: &[u8]) -> Name {
    match name {
        b":path" => Name::Path,
        b":scheme" => Name::Scheme,
        b":status" => Name::Status,
        [b':', ..] => Name::OtherPseudo,
        _ => Name::Field,
    }
}

/// The names of RFC 7541 Appendix A, and the values of those that are pseudo-header fields.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", ""),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Bits of the codes of RFC 7541 Appendix B, by symbol. Within a length the codes follow the symbols, so the lengths say all.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];

/// The codes of one length.
struct Rung {
    bits: u32,
    /// The first code, and the one behind the last.
    codes: (u64, u64),
    symbols: Vec<usize>,
}

static RUNGS: LazyLock<Vec<Rung>> = LazyLock::new(|| {
    let (mut rungs, mut next, mut before) = (Vec::new(), 0_u64, 0);
    for bits in 5..=30_u32 {
        let of_length = LENGTHS.iter().enumerate().filter(|(_, length)| u32::from(**length) == bits);
        let symbols: Vec<usize> = of_length.map(|(symbol, _)| symbol).collect();
        if symbols.is_empty() {
            continue;
        }
        next <<= bits - before;
        before = bits;
        let codes = (next, next + symbols.len() as u64);
        next = codes.1;
        rungs.push(Rung { bits, codes, symbols });
    }
    rungs
});

/// Decodes a string. `None` if it is none.
fn huffman(coded: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let rungs = &*RUNGS;
    let (mut held, mut count) = (0_u64, 0_u32);
    let mut coded = coded.iter();
    loop {
        while count <= 32
            && let Some(&byte) = coded.next()
        {
            held = held << 8 | u64::from(byte);
            count += 8;
        }
        let code = |bits: u32| held.checked_shr(count.checked_sub(bits)?).map(|all| all & ((1 << bits) - 1));
        let found = rungs.iter().find_map(|rung| {
            let code = code(rung.bits).filter(|code| *code < rung.codes.1)?;
            let symbol = code.checked_sub(rung.codes.0).and_then(|nth| rung.symbols.get(nth as usize));
            Some((rung.bits, symbol))
        });
        let Some((bits, symbol)) = found else {
            // What is left is the beginning of the code of the end, all ones.
            let ones = (1_u64 << count.min(8)) - 1;
            return (count < 8 && held & ones == ones).then_some(());
        };
        // The end itself must not be there.
        text.push(u8::try_from(*symbol?).ok()?);
        count -= bits;
    }
}

/// Why nothing more was read.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// The rest of a field is to come.
    More,
    /// It is no header block.
    Wrong,
}

/// The bytes of a block that are not read yet.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, Stop> {
        let (first, rest) = self.0.split_first().ok_or(Stop::More)?;
        self.0 = rest;
        Ok(*first)
    }

    /// An integer whose first byte has this number of bits for it, the prefix (RFC 7541 §5.1).
    fn integer(&mut self, prefix: u32) -> Result<usize, Stop> {
        let mask = (1_usize << prefix) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Ok(value);
        }
        // As far as h2 reads.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Stop::Wrong)
    }

    fn string(&mut self, text: &mut Vec<u8>) -> Result<(), Stop> {
        let is_coded = self.0.first().ok_or(Stop::More)? & 0x80 != 0;
        let length = self.integer(7)?;
        let (string, rest) = self.0.split_at_checked(length).ok_or(Stop::More)?;
        self.0 = rest;
        text.clear();
        match is_coded {
            true => huffman(string, text).ok_or(Stop::Wrong),
            false => {
                text.extend_from_slice(string);
                Ok(())
            }
        }
    }
}

/// Reads the header blocks of one direction of a connection.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The newest is the first.
    entries: VecDeque<Field>,
    size: usize,
    most: usize,
    /// The beginning of a field whose rest is in the next fragment.
    rest: Vec<u8>,
    /// What such a beginning has at most, bytes.
    longest: usize,
    text: Vec<u8>,
}

impl Decoder {
    /// `longest` is the length of a field that is still read, bytes.
    pub(super) fn new(longest: usize) -> Self {
        let (entries, rest, text) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { entries, size: 0, most: TABLE, rest, longest, text }
    }

    /// Reads the fields of a fragment of a block; the last one `ends` it. `None` if it cannot be read: then nothing behind it
    /// can.
    pub(super) fn read(&mut self, fragment: &[u8], ends: bool, mut each: impl FnMut(Field)) -> Option<()> {
        let mut block = std::mem::take(&mut self.rest);
        block.extend_from_slice(fragment);
        let mut input = Input(&block);
        while !input.0.is_empty() {
            let before = input.0;
            match self.next(&mut input) {
                Ok(field) => field.into_iter().for_each(&mut each),
                Err(Stop::More) if !ends && before.len() <= self.longest => {
                    self.rest = before.to_vec();
                    return Some(());
                }
                Err(_) => return None,
            }
        }
        block.clear();
        self.rest = block;
        Some(())
    }

    /// A field, or `None` for a new size of the table.
    fn next(&mut self, input: &mut Input<'_>) -> Result<Option<Field>, Stop> {
        let first = *input.0.first().ok_or(Stop::More)?;
        // RFC 7541 §6.
        if first & 0x80 != 0 {
            let index = input.integer(7)?;
            return self.field(index).map(Some);
        }
        if first & 0xe0 == 0x20 {
            let size = input.integer(5)?;
            if size > TABLE {
                return Err(Stop::Wrong);
            }
            self.most = size;
            self.make_room(0);
            return Ok(None);
        }
        let is_kept = first & 0x40 != 0;
        let index = input.integer(if is_kept { 6 } else { 4 })?;
        let mut text = std::mem::take(&mut self.text);
        let name = match index {
            0 => input.string(&mut text).map(|()| (name_of(&text), text.len())),
            _ => self.field(index).map(|field| (field.name, field.sizes.0)),
        };
        let field = name.and_then(|(name, size)| {
            input.string(&mut text)?;
            Ok(Field::new(name, size, &text))
        });
        self.text = text;
        let field = field?;
        if is_kept {
            let size = field.sizes.1 + ENTRY;
            self.make_room(size);
            if size <= self.most {
                self.size += size;
                self.entries.push_front(field);
            }
        }
        Ok(Some(field))
    }

    fn field(&self, index: usize) -> Result<Field, Stop> {
        let index = index.checked_sub(1).ok_or(Stop::Wrong)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok(Field::new(name_of(name.as_bytes()), name.len(), value.as_bytes()));
        }
        self.entries.get(index - STATIC.len()).copied().ok_or(Stop::Wrong)
    }

    /// Removes old entries until there is room.
    fn make_room(&mut self, size: usize) {
        while self.size + size > self.most
            && let Some(last) = self.entries.pop_back()
        {
            self.size -= last.sizes.1 + ENTRY;
        }
    }
}

#[cfg(test)]
mod tests;
