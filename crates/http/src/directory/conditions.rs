//! Validators of a file, and the conditions of requests about them (RFC 9110 §8.8, §13).

use httpdate::{fmt_http_date, parse_http_date};
use hyper::header::{
    HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE,
};
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file can change twice within the resolution of its times, a tick of the kernel's clock. Only after this long does a
/// tag stand for one content.
const RESOLUTION: Duration = Duration::from_millis(20);
/// The same for file systems whose times have whole seconds, as FAT, which counts in twos.
const COARSE: Duration = Duration::from_secs(2);
/// The same for a date in whole seconds (RFC 9110 §8.8.2.2).
const SECOND: Duration = Duration::from_secs(1);

/// How a client can tell one content of a file from another.
#[derive(Debug, Clone)]
pub(super) struct Validators {
    /// The tag as a strong one, and as a weak one.
    tags: (HeaderValue, HeaderValue),
    /// From then on the tag is strong.
    settled: SystemTime,
    /// When the file was modified, in whole seconds. `None` before 1970.
    at: Option<SystemTime>,
    /// `Last-Modified`.
    modified: Option<HeaderValue>,
}

impl Validators {
    /// Those of a file with this metadata, read at `now`.
    ///
    /// The tag depends on all that a change of the content changes. The time of the last change of the inode is among
    /// them, because programs can set back the time of modification. All of it is hashed: an inode's number is nobody's
    /// business.
    pub(super) fn of(metadata: &Metadata, now: SystemTime) -> Self {
        let mut hasher = DefaultHasher::new();
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        (modified, changed, metadata.ino(), metadata.dev()).hash(&mut hasher);
        let opaque = format!("{:x}-{:016x}", metadata.len(), hasher.finish());
        let resolution = if metadata.ctime_nsec() == 0 { COARSE } else { RESOLUTION };
        let settled = instant(changed).and_then(|changed| changed.checked_add(resolution)).unwrap_or(now);
        // RFC 9110 §8.8.2.1: not later than the time of the response.
        let at = instant((modified.0, 0)).map(|at| at.min(whole_seconds(now)));
        Self::new(&opaque, settled, at)
    }

    fn new(opaque: &str, settled: SystemTime, at: Option<SystemTime>) -> Self {
        // All of it is plain ASCII.
        let value = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"\""));
        let tags = (value(format!("\"{opaque}\"")), value(format!("W/\"{opaque}\"")));
        Self { tags, settled, at, modified: at.map(|at| value(fmt_http_date(at))) }
    }

    /// `ETag` at this time.
    pub(super) fn tag(&self, now: SystemTime) -> &HeaderValue {
        if now > self.settled { &self.tags.0 } else { &self.tags.1 }
    }

    /// `Last-Modified`.
    pub(super) const fn modified(&self) -> Option<&HeaderValue> {
        self.modified.as_ref()
    }

    /// The strong comparison (RFC 9110 §8.8.3.2).
    fn is_strongly(&self, (weak, opaque): (bool, &[u8]), now: SystemTime) -> bool {
        !weak && now > self.settled && self.is_weakly((weak, opaque))
    }

    /// The weak comparison.
    fn is_weakly(&self, (_, opaque): (bool, &[u8])) -> bool {
        opaque == self.tags.0.as_bytes()
    }
}

fn instant((seconds, nanos): (i64, i64)) -> Option<SystemTime> {
    let (seconds, nanos) = (u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

fn whole_seconds(at: SystemTime) -> SystemTime {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

/// What the conditions of a GET or HEAD say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionVerdict {
    /// They hold, or there are none.
    Send,
    /// Status 304.
    NotModified,
    /// Status 412.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD for a file that exists, in the order of RFC 9110 §13.2.2.
pub(super) fn judge(fields: &HeaderMap, file: &Validators, now: SystemTime) -> ConditionVerdict {
    if fields.contains_key(IF_MATCH) {
        if !any_tag(fields, IF_MATCH, |tag| file.is_strongly(tag, now)) {
            return ConditionVerdict::Failed;
        }
    } else if let (Some(at), Some(date)) = (file.at, date(fields, IF_UNMODIFIED_SINCE))
        && at > date
    {
        return ConditionVerdict::Failed;
    }
    if fields.contains_key(IF_NONE_MATCH) {
        if any_tag(fields, IF_NONE_MATCH, |tag| file.is_weakly(tag)) {
            return ConditionVerdict::NotModified;
        }
    } else if let (Some(at), Some(date)) = (file.at, date(fields, IF_MODIFIED_SINCE))
        && at <= date
    {
        return ConditionVerdict::NotModified;
    }
    ConditionVerdict::Send
}

/// Whether a field `Range` is to be used, or the file is not the one of which the client has a part (RFC 9110 §13.1.5).
pub(super) fn range_applies(fields: &HeaderMap, file: &Validators, now: SystemTime) -> bool {
    if !fields.contains_key(IF_RANGE) {
        return true;
    }
    let Some(value) = only(fields, IF_RANGE) else { return false };
    match Tags(value.as_bytes()).next() {
        Some(tag) => file.is_strongly(tag, now),
        // A date must be exact, and its second must have passed.
        None => file.at.is_some_and(|at| date(fields, IF_RANGE) == Some(at) && now >= at + SECOND),
    }
}

/// The field, if there is exactly one.
pub(super) fn only(fields: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut all = fields.get_all(name).iter();
    all.next().filter(|_| all.next().is_none())
}

/// `None` without the field, and for a malformed one, which is ignored (RFC 9110 §13.1.3).
fn date(fields: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    parse_http_date(only(fields, name)?.to_str().ok()?).ok()
}

/// Whether `is_it` is true for a tag of the list. `*` stands for every tag.
fn any_tag(fields: &HeaderMap, name: HeaderName, is_it: impl Fn((bool, &[u8])) -> bool) -> bool {
    fields
        .get_all(name)
        .iter()
        .map(HeaderValue::as_bytes)
        .any(|list| list.trim_ascii() == b"*" || Tags(list).any(&is_it))
}

/// The tags of a list: whether each is weak, and its text with the quotes. It ends at the first that is malformed.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = (bool, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.0.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let list = self.0.get(start..)?;
        let (weak, list) = match list.strip_prefix(b"W/") {
            Some(list) => (true, list),
            None => (false, list),
        };
        let end = list.strip_prefix(b"\"")?.iter().position(|byte| *byte == b'"')? + 2;
        let (tag, rest) = list.split_at_checked(end)?;
        self.0 = rest;
        Some((weak, tag))
    }
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
