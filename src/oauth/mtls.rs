//! Where clients show certificates: RFC 8705 section 5.

use url::Url;

/// The operator's settings for client certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MtlsPolicy {
    /// The port of the listener that asks for certificates. `None` if there is none.
    pub port: Option<u16>,
    /// Scheme, host and port by which clients reach it, if they differ from those that follow from the issuer.
    pub base_url: Option<String>,
    /// Whether there are authorities whose certificates authenticate clients.
    pub has_authorities: bool,
}

impl MtlsPolicy {
    /// What takes the place of the issuer in the addresses of endpoints. `None` if no certificate can be shown.
    pub fn base(&self, issuer: &str) -> Option<String> {
        let port = self.port?;
        let mut url = Url::parse(issuer).ok()?;
        if let Some(base_url) = &self.base_url {
            return Some(format!("{base_url}{}", url.path().trim_end_matches('/')));
        }
        url.set_port(Some(port)).ok()?;
        Some(url.as_str().trim_end_matches('/').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_issuer_with_the_port_or_the_configured_one() {
        let base = |port, base_url: Option<&str>, issuer| {
            let base_url = base_url.map(ToOwned::to_owned);
            let policy = MtlsPolicy {
                port,
                base_url,
                has_authorities: false,
            };
            policy.base(issuer)
        };
        let issuer = "https://id.example.com/a";
        assert_eq!(base(None, Some("https://m.example"), issuer), None);
        assert_eq!(
            base(Some(9443), None, issuer).as_deref(),
            Some("https://id.example.com:9443/a")
        );
        assert_eq!(
            base(Some(9443), Some("https://m.example"), issuer).as_deref(),
            Some("https://m.example/a")
        );
        assert_eq!(
            base(Some(9443), None, "https://id.example.com").as_deref(),
            Some("https://id.example.com:9443")
        );
    }
}
