//! Reads pcapng and classic pcap files: frames with their time and link type, one after another.

use crate::frame::{CapturePlace, Content, LinkType};
use crate::sightings::Sighting;
use firstflight_wire::Instant;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::{
    ENHANCED_PACKET_BLOCK, INTERFACE_DESCRIPTION_BLOCK, PACKET_BLOCK, SECTION_HEADER_BLOCK,
    SIMPLE_PACKET_BLOCK,
};
use pcap_file::{PcapError, TsResolution};
use std::fmt;
use std::io::{self, Cursor, Read};

/// The first bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The first bytes of a classic pcap file: microseconds or nanoseconds, in either byte order.
const PCAP: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xa1, 0xb2, 0x3c, 0x4d], [0xd4, 0xc3, 0xb2, 0xa1], [0x4d, 0x3c, 0xb2, 0xa1]];

/// Longest packet, bytes: what tcpdump and Wireshark keep of one (`MAXIMUM_SNAPLEN`). A longer one means that the
/// file is damaged.
const MAX_PACKET: usize = 262_144;
/// Most interfaces. More mean that the file is damaged, and each one takes memory.
const MAX_INTERFACES: usize = 65_536;

/// Why a file cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read.
    #[error("{0}; name a capture that can be read")]
    Io(io::Error),
    /// It does not begin like a capture.
    #[error("not a capture: give a pcapng or pcap file, as tcpdump -w or --pcap write it")]
    NotACapture,
}

/// Why reading stopped before the end of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureDamage {
    /// The file cannot be read further.
    #[error("{0}")]
    Io(io::Error),
    /// The file ends inside a packet or block.
    #[error("it ends in the middle of a packet")]
    Truncated,
    /// The content is not valid.
    #[error("{0}")]
    Bad(&'static str),
}

impl From<PcapError> for CaptureDamage {
    fn from(error: PcapError) -> Self {
        match error {
            PcapError::IncompleteBuffer => Self::Truncated,
            PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Truncated,
            PcapError::IoError(error) => Self::Io(error),
            PcapError::InvalidField(_)
            | PcapError::Utf8Error(_)
            | PcapError::FromUtf8Error(_)
            | PcapError::InvalidInterfaceId(_) => Self::Bad("a block of it is malformed"),
        }
    }
}

/// What of a capture could not be read. The rest is told.
#[derive(Debug, Default)]
pub struct Missing {
    /// Why reading stopped before the end.
    pub damage: Option<CaptureDamage>,
    /// A type of frames that were left out, because it is none of [`LinkType::is_known`].
    pub unread: Option<LinkType>,
}

impl Missing {
    /// Whether all was read.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.damage.is_none() && self.unread.is_none()
    }
}

/// One captured frame.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    /// Time since 1970 UTC.
    pub at: Instant,
    /// The type of the link-layer header.
    pub link: LinkType,
    /// The device, if the capture has several.
    pub device: Option<u32>,
    /// The captured bytes, which may be fewer than were sent.
    pub bytes: &'a mut Vec<u8>,
}

/// A capture that is being read, packet by packet: it may be longer than memory, and come from a pipe.
pub struct Capture<R: Read> {
    source: Source<Start<R>>,
    /// The last frame. Its memory is reused.
    bytes: Vec<u8>,
}

/// The file. Its first bytes were already read.
type Start<R> = io::Chain<Cursor<[u8; 4]>, R>;

enum Source<R: Read> {
    Pcap(PcapReader<R>),
    PcapNg(Box<PcapNg<R>>),
    /// Nothing more can be read.
    Damaged(CaptureDamage),
    End,
}

impl<R: Read> Capture<R> {
    /// Reads the beginning of `input`. A file that begins correctly and is damaged later still counts as a capture.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(mut input: R) -> Result<Self, OpenError> {
        let mut magic = [0; 4];
        match input.read_exact(&mut magic) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(OpenError::NotACapture),
            Err(error) => return Err(OpenError::Io(error)),
        }
        let input = Cursor::new(magic).chain(input);
        let source = if magic == PCAPNG {
            PcapNgReader::new(input).map(|reader| Source::PcapNg(Box::new(PcapNg::new(reader))))
        } else if PCAP.contains(&magic) {
            PcapReader::new(input).map(Source::Pcap)
        } else {
            return Err(OpenError::NotACapture);
        };
        let source = source.unwrap_or_else(|error| Source::Damaged(error.into()));
        Ok(Self { source, bytes: Vec::new() })
    }

    /// The next frame; `None` at the end, or after the damage was reported.
    /// Errors: See [`CaptureDamage`]. Nothing can be read after it.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, CaptureDamage> {
        let Self { source, bytes } = self;
        let next = match source {
            Source::Pcap(reader) => next_of_pcap(reader, bytes),
            Source::PcapNg(reader) => reader.next(bytes),
            Source::Damaged(_) | Source::End => Ok(None),
        };
        if let Ok(Some((at, link, device))) = next {
            return Ok(Some(Frame { at, link, device, bytes }));
        }
        let before = std::mem::replace(source, Source::End);
        match (before, next) {
            (Source::Damaged(damage), _) | (_, Err(damage)) => Err(damage),
            _ => Ok(None),
        }
    }
}

impl<R: Read> Capture<R> {
    /// Reads to the end. `each` gets every frame's time and place, and its content if that can be read.
    pub(crate) fn each(mut self, mut each: impl FnMut(Sighting, Option<Content<'_>>)) -> Missing {
        let mut missing = Missing::default();
        loop {
            let Frame { at, link, device, bytes } = match self.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => return missing,
                Err(damage) => return Missing { damage: Some(damage), ..missing },
            };
            if !link.is_known() {
                missing.unread = Some(link);
            }
            // The header of a cooked frame has more information than the file.
            let place = CapturePlace::of(link, bytes).or(device.map(CapturePlace::device));
            each(Sighting { at, place }, Content::read(link, bytes));
        }
    }
}

impl<R: Read> fmt::Debug for Capture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

/// Time, link type and device of a frame. Its bytes are in the buffer.
type FrameInfo = Result<Option<(Instant, LinkType, Option<u32>)>, CaptureDamage>;

fn take(packet: &[u8], bytes: &mut Vec<u8>) -> Result<(), CaptureDamage> {
    if packet.len() > MAX_PACKET {
        return Err(CaptureDamage::Bad("it claims a packet of more than 262,144 bytes"));
    }
    bytes.clear();
    bytes.extend_from_slice(packet);
    Ok(())
}

fn next_of_pcap<R: Read>(reader: &mut PcapReader<R>, bytes: &mut Vec<u8>) -> FrameInfo {
    let header = reader.header();
    // Read the raw packet, because the library reports a truncated packet as damage.
    let Some(packet) = reader.next_raw_packet() else { return Ok(None) };
    let packet = packet?;
    take(&packet.data, bytes)?;
    let unit = match header.ts_resolution {
        TsResolution::MicroSecond => 1_000,
        TsResolution::NanoSecond => 1,
    };
    let nanos = u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * unit;
    // The upper bits describe the frame check sequence.
    let link = u32::from(header.datalink) & 0xffff;
    Ok(Some((Instant::from_nanos(nanos), LinkType(link), None)))
}

struct PcapNg<R: Read> {
    reader: PcapNgReader<R>,
    interfaces: Vec<Interface>,
    /// The time of the latest packet. A Simple Packet Block has no time of its own.
    at: Instant,
}

/// What is needed to read the packets of an interface.
#[derive(Clone, Copy)]
struct Interface {
    link: LinkType,
    /// `if_tsresol`.
    resolution: u8,
    /// `if_tsoffset`, seconds; a signed number.
    offset: u64,
}

impl<R: Read> PcapNg<R> {
    fn new(reader: PcapNgReader<R>) -> Self {
        Self { reader, interfaces: Vec::new(), at: Instant::ZERO }
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> FrameInfo {
        loop {
            let big = self.reader.section().endianness.is_big();
            // Read the raw block: one malformed block, for example with a bad option, must not end the reading, and
            // the library does not know the interface's unit of time.
            let Some(block) = self.reader.next_raw_block() else { return Ok(None) };
            let block = block?;
            let body = &*block.body;
            match block.type_ {
                SECTION_HEADER_BLOCK => self.interfaces.clear(),
                INTERFACE_DESCRIPTION_BLOCK => self.add_interface()?,
                ENHANCED_PACKET_BLOCK | PACKET_BLOCK => {
                    let packet = Stamped::read(body, block.type_ == PACKET_BLOCK, big);
                    let packet = packet.ok_or(CaptureDamage::Bad("a packet block of it is too short"))?;
                    take(packet.bytes, bytes)?;
                    let (interface, stamp) = (packet.interface, packet.stamp);
                    let unknown = CaptureDamage::Bad("a packet names an interface that is not described");
                    let described = self.interfaces.get(interface).ok_or(unknown)?;
                    self.at = described.time(stamp);
                    let device = u32::try_from(interface).ok().filter(|_| self.interfaces.len() > 1);
                    return Ok(Some((self.at, described.link, device)));
                }
                SIMPLE_PACKET_BLOCK => {
                    let short = || CaptureDamage::Bad("a packet block of it is too short");
                    let (original, data) = body.split_first_chunk().ok_or_else(short)?;
                    let original = word(*original, big) as usize;
                    // There may be padding after the packet.
                    take(data.get(..original).unwrap_or(data), bytes)?;
                    let unknown = CaptureDamage::Bad("a packet comes before any interface is described");
                    return Ok(Some((self.at, self.interfaces.first().ok_or(unknown)?.link, None)));
                }
                _ => {}
            }
        }
    }

    /// Keeps what is needed of the interface that the reader has just read.
    fn add_interface(&mut self) -> Result<(), CaptureDamage> {
        let described = self.reader.interfaces();
        if described.len() > MAX_INTERFACES {
            return Err(CaptureDamage::Bad("it describes more than 65,536 interfaces"));
        }
        self.interfaces.extend(described.last().map(Interface::from));
        Ok(())
    }
}

impl From<&InterfaceDescriptionBlock<'_>> for Interface {
    fn from(block: &InterfaceDescriptionBlock<'_>) -> Self {
        const MICROSECONDS: u8 = 6;
        let link = LinkType(u32::from(block.linktype));
        let mut interface = Self { link, resolution: MICROSECONDS, offset: 0 };
        for option in &block.options {
            match option {
                InterfaceDescriptionOption::IfTsResol(resolution) => interface.resolution = *resolution,
                InterfaceDescriptionOption::IfTsOffset(offset) => interface.offset = *offset,
                _ => {}
            }
        }
        interface
    }
}

impl Interface {
    /// Converts a time stamp in the interface's units: negative powers of 10, or of 2 if the highest bit is set.
    fn time(self, stamp: u64) -> Instant {
        const SECOND: u128 = 1_000_000_000;
        let exponent = u32::from(self.resolution & 0x7f);
        let units = if self.resolution & 0x80 == 0 {
            10_u128.checked_pow(exponent)
        } else {
            1_u128.checked_shl(exponent)
        };
        // If the unit is too small for this type, 64 bits of it are less than a nanosecond.
        let nanos = units.map_or(0, |units| u128::from(stamp) * SECOND / units);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let offset = self.offset.cast_signed();
        let shift = offset.unsigned_abs().saturating_mul(1_000_000_000);
        Instant::from_nanos(if offset < 0 {
            nanos.saturating_sub(shift)
        } else {
            nanos.saturating_add(shift)
        })
    }
}

/// A packet with a time stamp: an Enhanced Packet Block, or its predecessor, the Packet Block.
struct Stamped<'a> {
    interface: usize,
    stamp: u64,
    bytes: &'a [u8],
}

impl<'a> Stamped<'a> {
    fn read(body: &'a [u8], obsolete: bool, big: bool) -> Option<Self> {
        let (head, rest) = body.split_first_chunk::<20>()?;
        let [interface, high, low, captured, _] = words(head, big);
        // The older block has 16 bits for the interface and 16 bits for the number of drops.
        let interface = match (obsolete, big) {
            (false, _) => interface,
            (true, true) => interface >> 16,
            (true, false) => interface & 0xffff,
        };
        Some(Self {
            interface: interface as usize,
            stamp: u64::from(high) << 32 | u64::from(low),
            bytes: rest.get(..captured as usize)?,
        })
    }
}

fn word(bytes: [u8; 4], big: bool) -> u32 {
    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

fn words(head: &[u8; 20], big: bool) -> [u32; 5] {
    let (chunks, _) = head.as_chunks::<4>();
    let mut words = [0; 5];
    for (place, chunk) in words.iter_mut().zip(chunks) {
        *place = word(*chunk, big);
    }
    words
}
