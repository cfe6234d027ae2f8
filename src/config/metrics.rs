//! The address of the metrics.

use std::net::SocketAddr;

use super::form::Parsed;
use super::listen::address;
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::net::listener::conflict_across_listeners;

pub(super) const SETTINGS: &[&Setting] = &[&LISTEN];

pub(super) static LISTEN: Setting<Parsed<Option<SocketAddr>>> = Setting {
    key: "metrics.listen",
    doc: "The address of the metrics (Prometheus text at /metrics), which every client there can read. off for none.",
    default: Some(Literal::Text("off")),
    example: Literal::Text("127.0.0.1:9464"),
    value_name: "ADDRESS",
    help: Some("Where the metrics are, or off"),
    form: Parsed(parse_listen),
};

/// The address, if there is one.
pub(super) fn metrics_listen(
    reader: &mut Reader<'_>,
    listen: Read<&[SocketAddr]>,
    redirect_listen: Read<&[SocketAddr]>,
) -> Read<Option<SocketAddr>> {
    let Some(address) = reader.read(&LISTEN)? else {
        return Ok(None);
    };
    for (key, taken) in [("listen", listen), ("redirect_port", redirect_listen)] {
        let mut taken = taken.unwrap_or_default().iter();
        if let Some(taken) = taken.find(|taken| conflict_across_listeners(**taken, address)) {
            let message = format!(
                "metrics.listen = \"{address}\" is taken by {key} = \"{taken}\": give it another port"
            );
            return Err(reader.fault(&LISTEN, message));
        }
    }
    Ok(Some(address))
}

fn parse_listen(text: &str) -> Result<Option<SocketAddr>, String> {
    let problem = "is no address with a port, as in 127.0.0.1:9464; off for none";
    match text {
        "off" => Ok(None),
        text => address(text).map(Some).ok_or_else(|| problem.to_owned()),
    }
}
