//! Certificates from a certificate authority that speaks ACME (RFC 8555).
//!
//! The authority verifies a domain by a handshake on port 443 (TLS-ALPN-01, RFC 8737), so the service needs only its own
//! address. [`renewal::Renewal`] runs one round: it reads the files in `certs/`, then orders a certificate, asks when to
//! renew, or rests. [`schedule`] makes the decision, [`folder`] holds the files, and [`order`] talks to the authority. An
//! order that fails or is interrupted is abandoned, and the next attempt makes a new one.

pub mod failure;
pub mod folder;
pub mod order;
pub mod renewal;
pub mod schedule;
pub mod transport;

use url::Url;

/// Let's Encrypt, the default authority.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The certificate that the operator wants, and its authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The names that the certificate is for, in lower case; never empty.
    pub domains: Vec<String>,
    /// The contact for the authority, as a `mailto:` URL.
    pub contact: Option<String>,
    /// The authority's directory (RFC 8555 section 7.1.1).
    pub directory: Url,
}

impl Plan {
    /// One line with the authority and the domains. A certificate that was ordered with another line is replaced.
    pub fn line(&self) -> String {
        format!("ACME certificate of {} for {}", self.directory, self.names())
    }

    /// The domains, as one text.
    pub fn names(&self) -> String {
        self.domains.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn plan(domains: &[&str]) -> Plan {
        Plan {
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
            contact: None,
            directory: "https://ca.example/directory".parse().unwrap(),
        }
    }
}
