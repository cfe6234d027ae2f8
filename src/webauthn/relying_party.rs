//! The service as a relying party: its identifier and its origins.

use serde_json::{Value, json};
use url::{Host, Url};

use super::Expected;

/// The relying party that passkeys belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelyingParty {
    /// The relying party identifier: the host of the service.
    pub id: String,
    /// The origins whose pages may use the passkeys: that of the service, then the related ones.
    pub origins: Vec<String>,
}

impl RelyingParty {
    /// The relying party of the service at `base_url`. `None` if its host is an address: an identifier is a domain
    /// (section 5.1.2).
    pub fn new(base_url: &str, related: &[String]) -> Option<Self> {
        let url = Url::parse(base_url).ok()?;
        let Host::Domain(id) = url.host()? else {
            return None;
        };
        let own = url.origin().ascii_serialization();
        Some(Self {
            id: id.to_owned(),
            origins: std::iter::once(own).chain(related.iter().cloned()).collect(),
        })
    }

    /// What a response to this challenge is compared with.
    pub fn expects<'a>(&'a self, challenge: &'a [u8]) -> Expected<'a> {
        Expected {
            rp_id: &self.id,
            origins: &self.origins,
            challenge,
        }
    }

    /// The document in which browsers find the related origins (section 5.11.1). `None` if there are none.
    pub fn related_origins(&self) -> Option<Value> {
        (self.origins.len() > 1).then(|| json!({ "origins": self.origins }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identifier_is_the_host_and_the_origin_has_no_default_port() {
        let of = |base_url| RelyingParty::new(base_url, &[]);
        let id = of("https://id.example.com:443/idsvc").unwrap();
        assert_eq!(id.id, "id.example.com");
        assert_eq!(id.origins, ["https://id.example.com"]);
        assert_eq!(id.related_origins(), None);
        assert_eq!(
            of("http://localhost:8080").unwrap().origins,
            ["http://localhost:8080"]
        );
        assert_eq!(of("http://127.0.0.1:8080"), None);
        assert_eq!(of("https://[::1]"), None);
    }

    #[test]
    fn related_origins_are_published_with_the_own_one() {
        let related = ["https://example.net".to_owned()];
        let id = RelyingParty::new("https://id.example.com", &related).unwrap();
        assert_eq!(
            id.related_origins(),
            Some(json!({ "origins": ["https://id.example.com", "https://example.net"] }))
        );
    }
}
