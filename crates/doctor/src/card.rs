//! What `serve --xdp` could do with a network card. Nothing is changed.

use super::catalogue::Finding;
use super::report::Line;
use firstflight::link::xdp::XdpDevice;

/// Looks at the device with this name.
pub(crate) fn look(name: &str) -> Vec<Line> {
    let device = match XdpDevice::find(name) {
        Ok(device) => device,
        Err(error) => return vec![Line::new(Finding::CardUnusable, format_args!("{error}."))],
    };
    vec![usable(&device), firewall(&device)]
}

fn usable(device: &XdpDevice) -> Line {
    if let Err(error) = device.check() {
        return Line::new(Finding::CardUnusable, format_args!("{error}."));
    }
    let XdpDevice { name, queues, mtu, addresses, .. } = device;
    let kind = if device.kind.is_empty() { "hardware" } else { &device.kind };
    let what = format!("{name} ({kind}): queues: {queues}; MTU {mtu}; addresses: {}", addresses.len());
    if addresses.is_empty() {
        return Line::new(Finding::CardUnusable, format_args!("{what}. There is none to serve."));
    }
    match device.driver_has_xdp() {
        Some(true) => Line::new(Finding::CardUsable, format_args!("{what}. Its driver has XDP.")),
        Some(false) => Line::new(Finding::CardGenericOnly, format_args!("{what}. Its driver has no XDP.")),
        None => Line::new(
            Finding::CardUsable,
            format_args!("{what}. This kernel does not say whether its driver has XDP; generic mode works."),
        ),
    }
}

fn firewall(device: &XdpDevice) -> Line {
    match device.in_the_way() {
        Ok(None) => {
            Line::new(Finding::CardUnobserved, "No rule and no hook would miss the packets that are taken.")
        }
        Ok(Some(what)) => Line::new(
            Finding::CardBypasses,
            format_args!("Packets that are taken bypass what is there: {what}."),
        ),
        Err(error) => Line::new(Finding::CardFirewallNotSeen, format_args!("It cannot be read: {error}.")),
    }
}
