//! Trace context: the field `traceparent`, by which programs along the way of one request name it alike (W3C Trace Context,
//! <https://www.w3.org/TR/trace-context/>).

use data_encoding::HEXLOWER;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use std::cell::RefCell;
use std::fmt;

/// `traceparent`.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// `tracestate`: what systems along the way add. It belongs to a `traceparent`.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of version 00 of the field.
const LENGTH: usize = 55;
/// Random bytes of a trace and its parent.
const RANDOM: usize = 24;
/// Traces for which the system is asked at a time.
const AT_A_TIME: usize = 64;

thread_local! {
    /// Random bytes that no trace has had: the system is asked for many at a time.
    static DRAWN: RefCell<([u8; RANDOM * AT_A_TIME], usize)> = const { RefCell::new(([0; RANDOM * AT_A_TIME], AT_A_TIME)) };
}

/// The number of a trace: never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// The trace of a request. `None` without a valid `traceparent`, and with more than one.
    ///
    /// A later version of the field is read as far as version 00 goes (§4.3 of the specification).
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(&TRACEPARENT).iter();
        let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let fields: Vec<_> = known.split(|&byte| byte == b'-').collect();
        let [version, trace, parent, flags] = fields[..] else { return None };
        let (version, _) = (digits::<1>(version)?, digits::<1>(flags)?);
        let may_be_longer = version != [0] && rest.first() == Some(&b'-');
        let is_valid = version != [0xff] && (rest.is_empty() || may_be_longer);
        let (trace, parent) = (digits(trace)?, digits::<8>(parent)?);
        (is_valid && trace != [0; 16] && parent != [0; 8]).then_some(Self(trace))
    }
}

/// As in the field: 32 digits.
impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 32];
        f.write_str(HEXLOWER.encode_mut_str(&self.0, &mut digits))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

/// Begins a trace: sets a `traceparent` of random numbers, and removes a `tracestate`, which would belong to another one. The
/// trace is marked as sampled, so that programs which sample as their parents do record it.
///
/// # Errors
/// When the system gives no random numbers.
pub fn begin(headers: &mut HeaderMap) -> Result<TraceId, getrandom::Error> {
    let mut random = [0; RANDOM];
    while random[..16] == [0; 16] || random[16..] == [0; 8] {
        random = draw()?;
    }
    let mut trace = TraceId([0; 16]);
    trace.0.copy_from_slice(&random[..16]);
    headers.remove(TRACESTATE);
    let mut text = *b"00-................................-................-01";
    HEXLOWER.encode_mut(&random[..16], &mut text[3..35]);
    HEXLOWER.encode_mut(&random[16..], &mut text[36..52]);
    // Digits and hyphens are always a value.
    if let Ok(value) = HeaderValue::from_bytes(&text) {
        headers.insert(TRACEPARENT, value);
    }
    Ok(trace)
}

/// Random bytes for one trace.
fn draw() -> Result<[u8; RANDOM], getrandom::Error> {
    DRAWN.with_borrow_mut(|(drawn, next)| {
        if *next == AT_A_TIME {
            getrandom::fill(drawn)?;
            *next = 0;
        }
        let (parts, _) = drawn.as_chunks();
        let random = parts.get(*next).copied().unwrap_or_default();
        *next += 1;
        Ok(random)
    })
}

/// Bytes of lower-case hexadecimal digits, which is how the field writes them.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    if pairs.len() != N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        for &digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
