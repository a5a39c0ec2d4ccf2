//! pcapng captures that Wireshark and tcpdump open: a writer, and a tap that records any link.
//!
//! Format: the IETF draft *PCAP Next Generation Capture File Format* (draft-ietf-opsawg-pcapng).

mod tap;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

pub use tap::{PcapTap, Tapped};

/// The longest packet that a capture holds, in bytes, as in tcpdump. It is longer than any IP packet without
/// a jumbo payload.
pub const SNAP_LENGTH: u32 = 262_144;

/// `if_tsresol`: timestamps in units of 10⁻⁹ s.
const NANOSECONDS: u8 = 9;

/// The direction of a packet, seen from this machine (`epb_flags`, bits 0 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

impl Direction {
    fn flags(self) -> u32 {
        match self {
            Self::In => 1,
            Self::Out => 2,
        }
    }
}

/// Why a packet or name could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PcapWriterError {
    /// Writing to the file (or another output) failed.
    #[error("cannot write the capture: {0}")]
    Io(#[source] io::Error),
    /// [`PcapWriter::new`] got no interface with this number. The caller is at fault.
    #[error("the capture has no interface {0}; name it when the capture is created")]
    UnknownInterface(u32),
    /// A name or packet does not fit the format: packets up to [`SNAP_LENGTH`], names up to 65,535 bytes. The
    /// caller is at fault.
    #[error("too long for a pcapng block")]
    TooLong,
}

impl From<PcapError> for PcapWriterError {
    fn from(error: PcapError) -> Self {
        match error {
            PcapError::IoError(error) => Self::Io(error),
            PcapError::InvalidInterfaceId(number) => Self::UnknownInterface(number),
            // The library's other errors occur only when reading.
            other => Self::Io(io::Error::other(other)),
        }
    }
}

/// Writes IP packets into a pcapng file: link type RAW (101), timestamps in nanoseconds since 1970 UTC.
///
/// Output is buffered. It is complete after [`flush`](Self::flush) or when the writer is dropped (errors at
/// the drop are not reported).
pub struct PcapWriter<W: Write> {
    writer: PcapNgWriter<io::BufWriter<W>>,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a capture: writes the section header, which names the application, and one interface for each
    /// name. [`write`](Self::write) refers to the interfaces by number from 0.
    ///
    /// # Errors
    /// [`PcapWriterError::Io`], [`PcapWriterError::TooLong`] for a name.
    pub fn new(output: W, application: &str, interfaces: &[&str]) -> Result<Self, PcapWriterError> {
        if interfaces.iter().chain([&application]).any(|name| name.len() > usize::from(u16::MAX)) {
            return Err(PcapWriterError::TooLong);
        }
        let section = SectionHeaderBlock {
            endianness: Endianness::native(),
            options: vec![SectionHeaderOption::UserApplication(Cow::Owned(application.to_owned()))],
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(io::BufWriter::new(output), section)?;
        for name in interfaces {
            writer.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::RAW,
                snaplen: SNAP_LENGTH,
                options: vec![
                    InterfaceDescriptionOption::IfName(Cow::Borrowed(*name)),
                    InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                ],
            })?;
        }
        Ok(Self { writer })
    }

    /// Records one packet. `timestamp_unix_ns` is in nanoseconds since 1970 UTC. A simulator may count from
    /// 0.
    ///
    /// # Errors
    /// See [`PcapWriterError`]. The capture stays valid unless the error was [`PcapWriterError::Io`].
    pub fn write(
        &mut self,
        timestamp_unix_ns: u64,
        interface: u32,
        direction: Direction,
        packet: &[u8],
    ) -> Result<(), PcapWriterError> {
        let original_len = u32::try_from(packet.len())
            .ok()
            .filter(|length| *length <= SNAP_LENGTH)
            .ok_or(PcapWriterError::TooLong)?;
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: interface,
            timestamp: Duration::from_nanos(timestamp_unix_ns),
            original_len,
            data: Cow::Borrowed(packet),
            options: vec![EnhancedPacketOption::Flags(direction.flags())],
        })?;
        Ok(())
    }

    /// Writes out the buffered packets.
    ///
    /// # Errors
    /// [`PcapWriterError::Io`].
    pub fn flush(&mut self) -> Result<(), PcapWriterError> {
        self.writer.get_mut().flush().map_err(PcapWriterError::Io)
    }
}

impl<W: Write> fmt::Debug for PcapWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapWriter")
            .field("interfaces", &self.writer.interfaces().len())
            .finish_non_exhaustive()
    }
}
