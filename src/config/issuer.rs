//! The issuer, which follows from the base URL or from how connections are secured.

use std::net::SocketAddr;

use url::Url;

use super::base_url::BASE_URL;
use super::reader::{Read, Reader};
use super::tls::{Mode, Tls, mode};
use crate::oauth::redirect_uri::is_on_this_machine;

pub(super) fn issuer(
    reader: &mut Reader<'_>,
    base_url: Read<Option<&str>>,
    tls: Read<&Tls>,
    listen: Read<&[SocketAddr]>,
) -> Read<String> {
    let is_dev = reader.sources.is_dev;
    if let Some(base_url) = base_url? {
        if is_dev && !Url::parse(base_url).is_ok_and(|url| is_on_this_machine(&url)) {
            let message = format!(
                "base_url = {base_url:?}: the development server is for loopback hosts only, as in https://localhost:8443; without base_url it finds its own"
            );
            return Err(reader.fault(&BASE_URL, message));
        }
        if base_url.starts_with("http:") && tls.is_ok_and(|tls| *tls != Tls::Off) {
            let message = format!("base_url = {base_url:?}: http is for tls.mode = \"off\" only");
            return Err(reader.fault(&BASE_URL, message));
        }
        return Ok(base_url.to_owned());
    }
    let unnamed = "the address of the service is not set";
    if !is_dev && mode(reader)? != Mode::Acme {
        return Err(reader.missing(&BASE_URL, unnamed));
    }
    let tls = tls?;
    if let Tls::Acme(plan) = tls
        && let Some(domain) = plan.domains.first()
    {
        return Ok(format!("https://{domain}"));
    }
    if !is_dev {
        return Err(reader.missing(&BASE_URL, unnamed));
    }
    let scheme = if *tls == Tls::Off { "http" } else { "https" };
    match listen?.first().map(SocketAddr::port) {
        None | Some(0) => {
            let why = "the port is not known beforehand, so the address must be named";
            Err(reader.missing(&BASE_URL, why))
        }
        Some(port) => Ok(format!("{scheme}://localhost:{port}")),
    }
}
