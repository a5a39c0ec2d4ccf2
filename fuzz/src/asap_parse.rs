//! All parsers of ASAP's objects: a parsed object can be encoded again, and gives the same bytes.

use firstflight_wire::asap::message::Message;
use firstflight_wire::asap::{
    AsapOption, BLOCK_LEN, BLOCK_MAGIC, Block, CERTIFICATE_LEN, CertificateBody, Reply, ServiceParam, VER_ALG,
};
use firstflight_wire::encapsulation::{self, Carried};
use firstflight_wire::tcp::{OptionBytes, Options, TcpOption};

/// The offset of the certificate's flags in a block.
const CERTIFICATE_FLAGS: usize = 44;
const MESSAGE_MAGIC: [u8; 2] = [0xff, 0x56];

/// Parses `data` as every possible object: unchanged, and with the fields corrected that random bytes never get
/// right.
pub fn run(data: &[u8]) {
    everything(data);
    block(&repaired_block(data));
    message(&repaired_message(data));
    service(&repaired_service(data));
}

fn everything(data: &[u8]) {
    option(data);
    block(data);
    message(data);
    service(data);
    carried(data);
    if let Some((bytes, _)) = data.split_first_chunk::<CERTIFICATE_LEN>()
        && let Ok(body) = CertificateBody::parse(bytes)
    {
        assert_eq!(body.to_bytes(), *bytes);
    }
}

/// Parses `data` as what follows the experiment identifier, and as a list of options.
fn option(data: &[u8]) {
    if let Some(option) = AsapOption::parse(data) {
        again(OptionBytes::from(option), data);
    }
    if let Some(reply) = Reply::parse(data) {
        again(OptionBytes::from(reply), data);
    }
    let options = Options::parse(&data[..data.len().min(40)], true);
    let last = options.iter().filter_map(|option| match option {
        TcpOption::Experimental { kind: 253, exid: 0xfa57, data } => Some(data),
        _ => None,
    });
    assert_eq!(options.asap(), last.last());
}

fn again(written: OptionBytes, data: &[u8]) {
    assert_eq!(Options::parse(written.as_slice(), true).asap(), Some(data));
    assert!(matches!(written.len(), 8 | 16));
}

fn block(data: &[u8]) {
    if let Ok(block) = Block::parse(data) {
        assert_eq!(block.to_bytes()[..], data[..BLOCK_LEN]);
        assert!(data[BLOCK_LEN..].iter().all(|byte| *byte == 0));
    }
}

fn message(data: &[u8]) {
    if let Ok(message) = Message::parse(data) {
        assert_eq!(message.to_bytes()[..], *data);
        if let Message::Request(request) = message {
            let signed = request.signing_input(&[7; 32]);
            assert!(data.starts_with(&signed.as_slice()[64..]));
        }
    }
}

fn service(data: &[u8]) {
    if let Ok(param) = ServiceParam::parse(data) {
        let mut out = [0; ServiceParam::MAX_LEN];
        let len = param.emit(&mut out).unwrap();
        assert_eq!(out[..len], *data);
        if let Some(dns_path) = param.udp().and_then(|udp| udp.dns_path) {
            let labels = dns_path.zone.labels();
            assert_eq!(
                labels.map(|label| label.len() + 1).sum::<usize>() + 1,
                dns_path.zone.as_bytes().len()
            );
            assert!(dns_path.zone.to_string().ends_with('.'));
        }
    }
}

fn carried(data: &[u8]) {
    let mut out = data.to_vec();
    match Carried::parse(data) {
        Ok(Carried::Segment(segment)) => {
            assert_eq!(encapsulation::emit_segment_header(&mut out), Ok(data.len() - segment.len()));
        }
        Ok(Carried::Control(control)) => assert_eq!(control.emit(&mut out), Ok(data.len())),
        Err(_) => {}
    }
    assert_eq!(out, data);
}

fn repaired_block(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    if data.len() > CERTIFICATE_FLAGS {
        data[..2].copy_from_slice(&BLOCK_MAGIC.to_be_bytes());
        data[2..4].copy_from_slice(&[VER_ALG, 0]);
        data[CERTIFICATE_FLAGS] &= 0x1f;
    }
    data
}

fn repaired_message(data: &[u8]) -> Vec<u8> {
    let mut data = data[..data.len().min(0xffff)].to_vec();
    if data.len() >= 8 {
        let len = (data.len() as u16).to_be_bytes();
        data[..2].copy_from_slice(&MESSAGE_MAGIC);
        data[2] = VER_ALG;
        data[4..8].copy_from_slice(&[len[0], len[1], 0, 0]);
    }
    data
}

fn repaired_service(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    if let [version, flags, ..] = data.as_mut_slice() {
        *version = 1;
        *flags &= 0b1111;
    }
    data
}
