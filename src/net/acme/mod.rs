//! Certificates from a certificate authority that speaks ACME (RFC 8555).
//!
//! The authority proves to itself that a domain is this service's by a handshake on port 443 (TLS-ALPN-01,
//! RFC 8737), so nothing but the service's own address is needed. [`renewal::Renewal`] is one round of it: look at
//! what lies in `certs/`, and order, ask or rest. The decision is made in [`schedule`], the files are in [`folder`],
//! the conversation is in [`order`]. An order that fails or is interrupted is left, and the next attempt makes another.

pub mod failure;
pub mod folder;
pub mod order;
pub mod renewal;
pub mod schedule;
pub mod transport;

use url::Url;

/// Let's Encrypt, the authority when nobody names another.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// What the operator wants of which authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The names that the certificate is for, in lower case; never empty.
    pub domains: Vec<String>,
    /// Where the authority writes to, as a `mailto:` URL.
    pub contact: Option<String>,
    /// The authority's directory (RFC 8555 section 7.1.1).
    pub directory: Url,
}

impl Plan {
    /// One line that says what is ordered where. A certificate that was ordered by another line is replaced.
    pub fn line(&self) -> String {
        format!("ACME certificate of {} for {}", self.directory, self.names())
    }

    /// The domains, as people read them.
    pub fn names(&self) -> String {
        self.domains.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan for these domains.
    pub(super) fn plan(domains: &[&str]) -> Plan {
        Plan {
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
            contact: None,
            directory: "https://ca.example/directory".parse().unwrap(),
        }
    }
}
