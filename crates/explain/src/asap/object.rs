//! Finds out which object some bytes are.

use firstflight_wire::ParseError;
use firstflight_wire::asap::message::{MESSAGE_MAGIC, Message};
use firstflight_wire::asap::{
    AsapOption, BLOCK_LEN, BLOCK_MAGIC, Block, CERTIFICATE_LEN, CertificateBody, EXID, Reply, ServiceParam,
    VER_ALG,
};

/// An object of ASAP.
#[derive(Debug)]
#[non_exhaustive]
pub enum Object<'a> {
    /// The option of a SYN (section 2.1).
    AsapOption(AsapOption),
    /// The option of a SYN-ACK (section 2.2).
    Reply(Reply),
    /// A credential block (section 3).
    Block(Box<Block>),
    /// A certificate, as verifiers send it.
    Certificate(Box<CertificateBody>),
    /// A message between a client and a verifier.
    Message(Box<Message>),
    /// What a server publishes in its SVCB or HTTPS record.
    Service(ServiceParam<'a>),
}

/// Bytes that are not an object, or a malformed one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnObject {
    /// No object begins like this.
    #[error(
        "these bytes are no option, credential block, certificate, verifier message or service parameter: \
         give one from its first byte on"
    )]
    Unknown,
    /// It begins like an option.
    #[error(
        "this is ASAP's TCP option, but malformed or of another version: give the 8 or 16 bytes of one option"
    )]
    Option,
    /// It begins like this object, and has this fault.
    #[error("this begins as a {0} does, but is not one: {1}")]
    Broken(&'static str, ParseError),
    /// A block, and data behind it.
    #[error(
        "a credential block with more than zeros behind its {BLOCK_LEN} bytes: give the application data by \
         itself"
    )]
    DataBehindBlock,
}

impl<'a> Object<'a> {
    /// Reads the object that is the whole of `bytes`. Options begin with their kind, 253.
    ///
    /// # Errors
    /// See [`NotAnObject`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, NotAnObject> {
        let exid = EXID.to_be_bytes();
        match bytes {
            [253, len, x, y, data @ ..] if [*x, *y] == exid => Self::option(usize::from(*len), data),
            [a, b, ..] if [*a, *b] == BLOCK_MAGIC.to_be_bytes() => match Block::parse(bytes) {
                Ok(block) => Ok(Self::Block(Box::new(block))),
                Err(error) => Err(match bytes.get(..BLOCK_LEN).map(Block::parse) {
                    Some(Ok(_)) => NotAnObject::DataBehindBlock,
                    _ => NotAnObject::Broken("credential block", error),
                }),
            },
            [a, b, ..] if [*a, *b] == MESSAGE_MAGIC.to_be_bytes() => Message::parse(bytes)
                .map(|message| Self::Message(Box::new(message)))
                .map_err(|error| NotAnObject::Broken("verifier message", error)),
            [VER_ALG, ..] => {
                let body: Result<&[u8; CERTIFICATE_LEN], _> = bytes.try_into();
                let body =
                    body.map_err(|_| NotAnObject::Broken("certificate", ParseError::BadHeaderLength))?;
                CertificateBody::parse(body)
                    .map(|body| Self::Certificate(Box::new(body)))
                    .map_err(|error| NotAnObject::Broken("certificate", error))
            }
            [1, ..] => ServiceParam::parse(bytes)
                .map(Self::Service)
                .map_err(|error| NotAnObject::Broken("service parameter", error)),
            _ => Err(NotAnObject::Unknown),
        }
    }

    /// The options of a SYN and of a SYN-ACK have different lengths.
    fn option(len: usize, data: &[u8]) -> Result<Self, NotAnObject> {
        if len != data.len() + 4 {
            return Err(NotAnObject::Option);
        }
        let option = AsapOption::parse(data).map(Self::AsapOption);
        option.or_else(|| Reply::parse(data).map(Self::Reply)).ok_or(NotAnObject::Option)
    }

    /// A label in kebab-case.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::AsapOption(AsapOption::Probe { .. }) => "probe-option",
            Self::AsapOption(AsapOption::Block { .. }) => "block-option",
            Self::Reply(_) => "reply-option",
            Self::Block(_) => "credential-block",
            Self::Certificate(_) => "certificate-body",
            Self::Service(_) => "service-parameter",
            Self::Message(message) => match &**message {
                Message::Request(_) => "verifier-request",
                Message::Challenge(_) => "verifier-challenge",
                Message::Certificate(_) => "verifier-certificate",
                Message::Refused(_) => "verifier-refused",
                Message::VantageRequest(_) => "vantage-request",
                Message::Token(_) => "vantage-token",
                Message::ProbeRequest(_) => "probe-request",
                Message::Probe(_) => "probe",
            },
        }
    }
}
