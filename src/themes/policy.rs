//! The content security policy of pages.

/// A kind of resource that a page loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// Style sheets.
    Style,
    Image,
    Script,
    Font,
}

impl ResourceKind {
    /// All kinds, in the order of the header.
    pub const ALL: [Self; 4] = [Self::Style, Self::Image, Self::Script, Self::Font];

    /// Its key in the table `csp` of `theme.toml`.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Style => "style",
            Self::Image => "image",
            Self::Script => "script",
            Self::Font => "font",
        }
    }

    const fn directive(self) -> &'static str {
        match self {
            Self::Style => "style-src 'self'",
            Self::Image => "img-src 'self' data:",
            Self::Script => "script-src 'self'",
            Self::Font => "font-src 'self'",
        }
    }
}

/// A content security policy: no inline resources, and only those of this service and of the origins that the theme names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentSecurityPolicy {
    allowed: Vec<(ResourceKind, String)>,
}

/// The text is not an origin that a policy can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a source that a content security policy can name: want one https:// origin")]
pub struct NotASource;

impl ContentSecurityPolicy {
    /// Allows one more origin, such as `https://cdn.example.com`. Keywords like `'unsafe-inline'`, wildcards and plain HTTP
    /// are refused.
    pub fn allow(mut self, load: ResourceKind, source: &str) -> Result<Self, NotASource> {
        let host = source.strip_prefix("https://").ok_or(NotASource)?;
        let is_host =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'/' | b'_');
        if !host.starts_with(|first: char| first.is_ascii_alphanumeric())
            || !host.bytes().all(is_host)
            || source.len() > 200
        {
            return Err(NotASource);
        }
        self.allowed.push((load, source.to_owned()));
        Ok(self)
    }

    /// Whether a page may load the absolute address `url` as this kind of resource.
    pub fn allows(&self, load: ResourceKind, url: &str) -> bool {
        let is_data = load == ResourceKind::Image && url.starts_with("data:");
        is_data
            || self.allowed.iter().any(|(allowed, source)| {
                let rest = url.strip_prefix(source.as_str());
                *allowed == load
                    && rest.is_some_and(|rest| {
                        rest.is_empty() || source.ends_with('/') || rest.starts_with(['/', '?'])
                    })
            })
    }

    /// The origins for one kind of resource, besides this service.
    pub fn sources(&self, load: ResourceKind) -> impl Iterator<Item = &str> {
        let of_kind = self.allowed.iter().filter(move |(allowed, _)| *allowed == load);
        of_kind.map(|(_, source)| source.as_str())
    }

    /// The value of the header.
    ///
    /// It has no `form-action`: Chrome applies it to every redirect after a form, so a sign-in could not end at the client.
    pub fn text(&self) -> String {
        let mut text = "default-src 'none'".to_owned();
        for load in ResourceKind::ALL {
            text.push_str("; ");
            text.push_str(load.directive());
            for source in self.sources(load) {
                text.push(' ');
                text.push_str(source);
            }
        }
        text.push_str("; base-uri 'none'; frame-ancestors 'none'");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_loads_from_itself_and_from_where_the_theme_says() {
        let policy = ContentSecurityPolicy::default();
        assert_eq!(
            policy.text(),
            "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; font-src 'self'; \
             base-uri 'none'; frame-ancestors 'none'"
        );
        let policy = policy
            .allow(ResourceKind::Image, "https://cdn.example.com")
            .unwrap();
        assert!(
            policy
                .text()
                .contains("img-src 'self' data: https://cdn.example.com; script-src 'self';")
        );
    }

    #[test]
    fn a_source_cannot_open_the_policy() {
        for source in [
            "*",
            "https://*",
            "'unsafe-inline'",
            "http://a.example",
            "https://a; script-src *",
            "https://a b",
            "https://a\r\nx",
            "https:",
            "",
        ] {
            let allowed = ContentSecurityPolicy::default().allow(ResourceKind::Script, source);
            assert_eq!(allowed, Err(NotASource), "{source}");
        }
    }

    #[test]
    fn a_named_source_allows_its_own_addresses_and_no_others() {
        let policy = ContentSecurityPolicy::default()
            .allow(ResourceKind::Font, "https://fonts.example")
            .unwrap();
        assert!(policy.allows(ResourceKind::Font, "https://fonts.example/a.woff2"));
        assert!(!policy.allows(ResourceKind::Style, "https://fonts.example/a.css"));
        assert!(!policy.allows(ResourceKind::Font, "https://fonts.example.evil/a.woff2"));
        assert!(policy.allows(ResourceKind::Image, "data:image/png;base64,AAAA"));
        assert!(!policy.allows(ResourceKind::Script, "data:text/javascript,1"));
    }
}
