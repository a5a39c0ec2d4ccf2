use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use pcap_file::DataLink;
use pcap_file::pcapng::Block;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::section_header::SectionHeaderOption;

use super::*;
use crate::link::Link;
use crate::memory::real_time_pair;
use crate::path::PathConfig;

/// One packet as read back.
#[derive(Debug, PartialEq)]
struct Record {
    timestamp_ns: u64,
    interface: u32,
    flags: u32,
    packet: Vec<u8>,
}

/// Reads a capture back, and checks the properties that all captures share.
fn read_back(file: &[u8], application: &str, interfaces: &[&str]) -> Vec<Record> {
    let mut reader = PcapNgReader::new(file).unwrap();
    let expected = SectionHeaderOption::UserApplication(application.into());
    assert_eq!(reader.section().options, [expected]);
    let mut records = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(description) => {
                assert_eq!(description.linktype, DataLink::RAW);
            }
            Block::EnhancedPacket(packet) => {
                assert_eq!(packet.original_len as usize, packet.data.len());
                let [EnhancedPacketOption::Flags(flags)] = packet.options[..] else {
                    panic!("no flags: {:?}", packet.options);
                };
                records.push(Record {
                    timestamp_ns: packet.timestamp.as_nanos() as u64,
                    interface: packet.interface_id,
                    flags,
                    packet: packet.data.to_vec(),
                });
            }
            other => panic!("unexpected block {other:?}"),
        }
    }
    let names: Vec<String> = reader
        .interfaces()
        .iter()
        .map(|interface| match &interface.options[..] {
            [InterfaceDescriptionOption::IfName(name), InterfaceDescriptionOption::IfTsResol(9)] => {
                name.to_string()
            }
            other => panic!("unexpected options {other:?}"),
        })
        .collect();
    assert_eq!(names, interfaces);
    records
}

/// An output that the test can inspect while a tap owns it.
#[derive(Clone, Default)]
struct SharedFile(Arc<Mutex<Vec<u8>>>);

impl Write for SharedFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An output that is full.
struct FullDisk;

impl Write for FullDisk {
    fn write(&mut self, _buf: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_written_is_read_back() {
    let mut file = Vec::new();
    let mut writer = PcapWriter::new(&mut file, "firstflight test", &["client", "server"]).unwrap();
    let time = 1_700_000_000_123_456_789;
    for (length, interface, direction) in
        [(0, 0, Direction::Out), (61, 1, Direction::In), (1500, 1, Direction::Out)]
    {
        writer.write(time + length as u64, interface, direction, &vec![0x45; length]).unwrap();
    }
    drop(writer);
    let record = |length: usize, interface, flags| Record {
        timestamp_ns: time + length as u64,
        interface,
        flags,
        packet: vec![0x45; length],
    };
    let expected = [record(0, 0, 2), record(61, 1, 1), record(1500, 1, 2)];
    assert_eq!(read_back(&file, "firstflight test", &["client", "server"]), expected);
}

#[test]
fn callers_faults_are_refused_and_leave_a_valid_capture() {
    let mut file = Vec::new();
    let mut writer = PcapWriter::new(&mut file, "test", &["only"]).unwrap();
    let unknown = writer.write(1, 1, Direction::In, b"packet").unwrap_err();
    assert!(matches!(unknown, PcapWriterError::UnknownInterface(1)));
    let long = writer.write(1, 0, Direction::In, &vec![0; 262_145]).unwrap_err();
    assert!(matches!(long, PcapWriterError::TooLong));
    writer.write(1, 0, Direction::In, b"packet").unwrap();
    drop(writer);
    assert_eq!(read_back(&file, "test", &["only"]).len(), 1);

    let name = "x".repeat(65_536);
    let refused = PcapWriter::new(Vec::new(), "test", &[&name]).unwrap_err();
    assert!(matches!(refused, PcapWriterError::TooLong));
}

#[test]
fn tap_records_both_directions_of_several_links() {
    let file = SharedFile::default();
    let tap = PcapTap::new(file.clone(), "tap", &["a", "b"]).unwrap();
    let (a, b) = real_time_pair(PathConfig::default(), PathConfig::default(), 1).unwrap();
    let mut a = Tapped::new(a, tap.clone(), 0);
    let mut b = Tapped::new(b, tap.clone(), 1);
    let mut cx = Context::from_waker(Waker::noop());
    let mut buf = vec![0; b.mtu()];
    assert!(b.poll_recv(&mut cx, &mut buf).is_pending());
    assert!(matches!(a.poll_send(&mut cx, b"ping"), Poll::Ready(Ok(()))));
    assert!(matches!(b.poll_recv(&mut cx, &mut buf), Poll::Ready(Ok(4))));
    drop((a, b));
    assert_eq!(tap.errors(), 0);
    // Dropping the links has flushed the capture, although the tap itself still exists.
    let records = read_back(&file.0.lock().unwrap(), "tap", &["a", "b"]);
    let seen: Vec<_> = records.iter().map(|r| (r.interface, r.flags, &r.packet[..])).collect();
    assert_eq!(seen, [(0, 2, &b"ping"[..]), (1, 1, &b"ping"[..])]);
    assert!(records[0].timestamp_ns <= records[1].timestamp_ns);
}

#[test]
fn full_disk_is_counted_and_traffic_goes_on() {
    let tap = PcapTap::new(FullDisk, "tap", &["a"]).unwrap();
    let (a, mut b) = real_time_pair(PathConfig::default(), PathConfig::default(), 1).unwrap();
    let mut a = Tapped::new(a, tap.clone(), 0);
    let mut cx = Context::from_waker(Waker::noop());
    let mut buf = vec![0; b.mtu()];
    for _ in 0..20 {
        assert!(matches!(a.poll_send(&mut cx, &[7; 1400]), Poll::Ready(Ok(()))));
        assert!(matches!(b.poll_recv(&mut cx, &mut buf), Poll::Ready(Ok(1400))));
    }
    drop(a);
    assert!(tap.errors() > 0);
    assert!(matches!(tap.flush(), Err(PcapWriterError::Io(_))));
}
