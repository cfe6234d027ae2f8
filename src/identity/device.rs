//! The browser of a session, as the list of sessions describes it to its user.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A browser in words that its user recognises. Versions are not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The browser's family, such as `Firefox`.
    pub browser: Option<String>,
    /// The operating system's family, such as `Android`.
    pub system: Option<String>,
    /// The address that the sign-in came from, past trusted proxies.
    pub address: Option<IpAddr>,
}

/// Marks in a `User-Agent` and their families. Most browsers name others for compatibility, so the more specific mark
/// comes first.
const BROWSERS: [(&str, &str); 12] = [
    ("Edg/", "Edge"),
    ("EdgA/", "Edge"),
    ("EdgiOS/", "Edge"),
    ("OPR/", "Opera"),
    ("Vivaldi/", "Vivaldi"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("FxiOS/", "Firefox"),
    ("Firefox/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
];

const SYSTEMS: [(&str, &str); 7] = [
    ("iPhone", "iOS"),
    ("iPad", "iPadOS"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("CrOS", "ChromeOS"),
    ("Macintosh", "macOS"),
    ("Linux", "Linux"),
];

impl Device {
    /// The device of a request, by its `User-Agent` (RFC 9110 section 10.1.5) and its address.
    pub fn of(user_agent: Option<&str>, address: IpAddr) -> Self {
        let family = |marks: &[(&str, &str)]| {
            let text = user_agent?;
            let (_, family) = marks.iter().find(|(mark, _)| text.contains(mark))?;
            Some((*family).to_owned())
        };
        Self {
            browser: family(&BROWSERS),
            system: family(&SYSTEMS),
            address: Some(address),
        }
    }

    /// The known names of browser and system. They are the same in every language.
    pub fn name(&self) -> Option<String> {
        match (&self.browser, &self.system) {
            (Some(browser), Some(system)) => Some(format!("{browser} ({system})")),
            (Some(one), None) | (None, Some(one)) => Some(one.clone()),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn browsers_are_recognised_although_they_name_each_other() {
        let known = [
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
                "Firefox (Linux)",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
                "Chrome (Windows)",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0",
                "Edge (Windows)",
            ),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Safari/605.1.15",
                "Safari (macOS)",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/142.0 Mobile/15E148 Safari/604.1",
                "Chrome (iOS)",
            ),
            (
                "Mozilla/5.0 (Linux; Android 16; SM-S931B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/29.0 Chrome/136.0.0.0 Mobile Safari/537.36",
                "Samsung Internet (Android)",
            ),
        ];
        for (text, name) in known {
            assert_eq!(Device::of(Some(text), HERE).name().as_deref(), Some(name));
        }
    }

    #[test]
    fn nothing_of_an_unknown_text_is_kept() {
        for text in [
            None,
            Some(""),
            Some("curl/8.17"),
            Some("<script>alert(1)</script>"),
        ] {
            let device = Device::of(text, HERE);
            assert_eq!((device.name(), device.address), (None, Some(HERE)));
        }
    }
}
