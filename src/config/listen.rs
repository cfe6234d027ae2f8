//! The addresses to listen on.

use std::net::{IpAddr, SocketAddr};

use super::form::{List, Number};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use super::tls::Tls;
use crate::net::listener::conflict_in_one_listener;

/// The address of the development server.
const DEV_LISTEN: Literal = Literal::List(&["127.0.0.1:8443"]);

pub(super) const SETTINGS: &[&Setting] = &[&LISTEN, &REDIRECT_PORT];

pub(super) static LISTEN: Setting<List<SocketAddr>> = Setting {
    key: "listen",
    doc: "The addresses to listen on. [::] is for IPv6 and IPv4, on a machine without IPv6 for IPv4 only.",
    default: Some(Literal::List(&["0.0.0.0:443"])),
    example: Literal::List(&["0.0.0.0:443", "[::]:443"]),
    value_name: "ADDRESS",
    help: Some("An address to listen on"),
    form: List::of(parse_address),
};

pub(super) static REDIRECT_PORT: Setting<Number<u16>> = Setting {
    key: "redirect_port",
    doc: "A port for plain HTTP, on the addresses of listen. Its requests are redirected to the same path at the issuer.\nLeft out: none.",
    default: None,
    example: Literal::Number(80),
    value_name: "PORT",
    help: Some("The port whose plain HTTP is redirected to the issuer"),
    form: Number::within(1, u16::MAX as u64),
};

/// The addresses of the service.
pub(super) fn listen(reader: &mut Reader<'_>) -> Read<Vec<SocketAddr>> {
    let is_dev = reader.sources.is_dev;
    let addresses = if is_dev {
        reader.read_or(&LISTEN, DEV_LISTEN)?
    } else {
        reader.read(&LISTEN)?
    };
    if addresses.is_empty() {
        return Err(reader.fault(&LISTEN, "listen is empty: name at least one address"));
    }
    let mut checked: Vec<SocketAddr> = Vec::new();
    for address in &addresses {
        if is_dev && !address.ip().is_loopback() {
            let message = format!(
                "listen = \"{address}\": the development server listens on loopback only, as on 127.0.0.1:8443"
            );
            reader.fault(&LISTEN, message);
        }
        if let Some(taken) = checked
            .iter()
            .find(|taken| conflict_in_one_listener(**taken, *address))
        {
            let message =
                format!("listen = \"{address}\" is taken by {taken} in the same list: leave one of them out");
            reader.fault(&LISTEN, message);
        }
        checked.push(*address);
    }
    Ok(addresses)
}

/// The addresses of the redirect to the issuer; none without `redirect_port`.
pub(super) fn redirect_listen(
    reader: &mut Reader<'_>,
    listen: Read<&[SocketAddr]>,
    tls: Read<&Tls>,
) -> Read<Vec<SocketAddr>> {
    let Some(port) = reader.read_if_set(&REDIRECT_PORT)? else {
        return Ok(Vec::new());
    };
    if tls == Ok(&Tls::Off) {
        reader.fault(
            &REDIRECT_PORT,
            "redirect_port leads to https, and tls.mode is \"off\": leave it out, and let the proxy redirect",
        );
    }
    let listen = listen?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in listen.iter().map(|listen| SocketAddr::new(listen.ip(), port)) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let is_taken = |taken: &&SocketAddr| {
        let mut addresses = addresses.iter();
        addresses.any(|address| conflict_in_one_listener(**taken, *address))
    };
    if let Some(taken) = listen.iter().find(is_taken) {
        let message =
            format!("redirect_port = {port} is taken by listen = \"{taken}\": give it another port");
        return Err(reader.fault(&REDIRECT_PORT, message));
    }
    Ok(addresses)
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let problem = "is no address with a port, as in 0.0.0.0:443 or [::]:443";
    address(text).ok_or_else(|| problem.to_owned())
}

/// Parses an address with a port. An IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2) becomes an IPv4 address.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    let parsed: SocketAddr = text.parse().ok()?;
    Some(match parsed.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, parsed.port())),
        IpAddr::V6(_) => parsed,
    })
}
