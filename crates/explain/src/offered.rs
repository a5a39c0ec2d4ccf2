//! ASAP's option of a SYN and the credential block that it announces (`docs/spec/asap.md`, sections 2 and 3).

use firstflight_wire::asap::{AsapOption, Block, CertificateFlags, Reply, Status, VerifierId};
use firstflight_wire::tcp::Segment;

/// What a SYN offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// The SYN asks whether the server understands ASAP.
    Probe,
    /// The length of the block, padding included, and its content if it can be read.
    Block(u32, Option<BlockContent>),
    /// The option is malformed, or of another version.
    Unreadable,
}

/// The content of a block: its certificate and its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockContent {
    /// The verifier that certified.
    pub verifier: VerifierId,
    /// When the certificate begins, Unix seconds.
    pub valid_from: u32,
    /// How long it lasts, seconds.
    pub duration: u32,
    /// How the certificate was obtained.
    pub flags: CertificateFlags,
    /// When the request was made, Unix milliseconds.
    pub requested_ms: u64,
    /// First two bytes of the request's id.
    pub tag: [u8; 2],
}

impl BlockContent {
    fn of(block: &Block) -> Self {
        let (certificate, request) = (&block.certificate, &block.request);
        let [a, b, ..] = request.request_id;
        Self {
            verifier: certificate.verifier,
            valid_from: certificate.valid_from,
            duration: certificate.duration(),
            flags: certificate.flags,
            requested_ms: request.requested_ms,
            tag: [a, b],
        }
    }

    /// When the certificate ends, Unix seconds.
    pub fn ends(&self) -> u64 {
        u64::from(self.valid_from) + u64::from(self.duration)
    }

    /// The age of the certificate when the request was made, milliseconds. Both times are in the block, so the
    /// capture's clock does not matter. Negative if the request claims to be older than its certificate.
    pub fn age_ms(&self) -> i64 {
        // A request's time has 48 bits, so neither can overflow.
        self.requested_ms.cast_signed() - i64::from(self.valid_from) * 1000
    }
}

impl Offered {
    /// The option of a SYN; `None` without ASAP's option.
    pub(crate) fn of(segment: &Segment<'_>) -> Option<Self> {
        Some(match AsapOption::parse(segment.options.asap()?) {
            None => Self::Unreadable,
            Some(AsapOption::Probe { .. }) => Self::Probe,
            Some(AsapOption::Block { len, .. }) => {
                let bytes = segment.payload.get(..usize::from(len));
                // A packet that was cut off is filled up with zeros. No signature ends with 32 of them.
                let is_whole = |block: &Block| block.request.signature[32..] != [0; 32];
                let block = bytes.and_then(|bytes| Block::parse(bytes).ok()).filter(is_whole);
                Self::Block(u32::from(len), block.as_ref().map(BlockContent::of))
            }
        })
    }

    /// A label in kebab-case.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Block(..) => "block",
            Self::Unreadable => "unreadable",
        }
    }

    pub(crate) fn shown(&self) -> Option<&BlockContent> {
        match self {
            Self::Block(_, shown) => shown.as_ref(),
            Self::Probe | Self::Unreadable => None,
        }
    }

    /// Whether the reply's tag belongs to this option (section 2.2); `None` if the request's tag cannot be read.
    pub(crate) fn is_answered_by(&self, reply: &Reply) -> Option<bool> {
        let tag = match self {
            Self::Probe => [0; 2],
            Self::Block(_, shown) => shown.as_ref()?.tag,
            Self::Unreadable => return None,
        };
        // A server that refuses need not have read the block.
        let unlooked = !matches!(reply.status, Status::Accepted | Status::Capable) && reply.tag == [0; 2];
        Some(reply.tag == tag || unlooked)
    }
}
