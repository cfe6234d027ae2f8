//! Where a request came from, past the proxies that are trusted.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use http::header::{FORWARDED, HeaderMap, HeaderName};
use ipnet::IpNet;

/// The address of a request whose origin is unknown. All such requests share its limits.
pub const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address that a request came from, as far as the headers can be trusted.
///
/// Each proxy appends the address that called it. So the list is read from the right, for as long as a trusted proxy
/// added the entry. If such an entry is no address, the result is [`UNKNOWN`].
///
/// If both headers are present and disagree, the client wrote one of them, and the result is [`UNKNOWN`]. The proxy's own
/// address is not used: it may be exempt from limits.
pub fn of(peer: SocketAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let peer = peer.ip().to_canonical();
    let last_untrusted_hop = |hops: &[Option<IpAddr>]| {
        let mut address = peer;
        for hop in hops.iter().rev() {
            match hop {
                _ if !is_trusted(address, trusted) => break,
                Some(hop) => address = *hop,
                None => return UNKNOWN,
            }
        }
        address
    };
    match (forwarded_for(headers), x_forwarded_for(headers)) {
        (None, None) => peer,
        (Some(hops), None) | (None, Some(hops)) => last_untrusted_hop(&hops),
        (Some(one), Some(other)) => {
            let (one, other) = (last_untrusted_hop(&one), last_untrusted_hop(&other));
            if one == other { one } else { UNKNOWN }
        }
    }
}

fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&address))
}

/// The lines of a header. Bytes that are not UTF-8 make their own entry invalid, but none to its right.
fn lines<'request>(
    headers: &'request HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Cow<'request, str>> {
    let lines = headers.get_all(name).into_iter();
    lines.map(|line| String::from_utf8_lossy(line.as_bytes()))
}

/// The entries of `X-Forwarded-For`, the latest last; `None` for an entry that is no address.
fn x_forwarded_for(headers: &HeaderMap) -> Option<Vec<Option<IpAddr>>> {
    let mut hops = Vec::new();
    for line in lines(headers, &X_FORWARDED_FOR) {
        hops.extend(line.split(',').map(|hop| address(hop.trim())));
    }
    (!hops.is_empty()).then_some(hops)
}

/// The `for` parameters of `Forwarded` (RFC 7239 section 4), the latest last. `None` stands for an element without an
/// address, and for a line that ends inside quotes: an open quote could hide what the next proxy appends.
fn forwarded_for(headers: &HeaderMap) -> Option<Vec<Option<IpAddr>>> {
    let mut hops = Vec::new();
    for line in lines(headers, &FORWARDED) {
        match split_unquoted(&line, ',') {
            Some(elements) => hops.extend(elements.into_iter().map(for_parameter)),
            None => hops.push(None),
        }
    }
    (!hops.is_empty()).then_some(hops)
}

/// The address in an element of `Forwarded`, if it has exactly one `for` parameter.
fn for_parameter(element: &str) -> Option<IpAddr> {
    let pairs = split_unquoted(element, ';')?;
    let mut values = pairs.into_iter().filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let is_for = name.trim().eq_ignore_ascii_case("for");
        is_for.then(|| value.trim().trim_matches('"'))
    });
    match (values.next(), values.next()) {
        (Some(value), None) => address(value),
        _ => None,
    }
}

/// Splits at `separator`, except inside quotes (RFC 9110 section 5.6.4), where a backslash escapes the next character.
/// `None` if the text ends inside quotes.
fn split_unquoted(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let pieces = text
        .split(|character| {
            match character {
                _ if is_escaped => is_escaped = false,
                '\\' if is_quoted => is_escaped = true,
                '"' => is_quoted = !is_quoted,
                _ => {}
            }
            character == separator && !is_quoted
        })
        .collect();
    (!is_quoted).then_some(pieces)
}

/// An address with or without brackets and port (RFC 7239 section 6).
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    IpAddr::from_str(bracketed.unwrap_or(text))
        .ok()
        .or_else(|| SocketAddr::from_str(text).ok().map(|address| address.ip()))
        .map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect()
    }

    fn from(peer: &str, lines: &[(HeaderName, &str)]) -> String {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        of(
            SocketAddr::new(peer.parse().unwrap(), 1),
            &headers(lines),
            &trusted,
        )
        .to_string()
    }

    #[test]
    fn a_peer_that_is_no_proxy_is_taken_for_what_it_is() {
        assert_eq!(
            from("192.0.2.1", &[(X_FORWARDED_FOR, "198.51.100.7")]),
            "192.0.2.1"
        );
        assert_eq!(from("192.0.2.1", &[(FORWARDED, "for=198.51.100.7")]), "192.0.2.1");
        assert_eq!(from("::ffff:10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn the_last_address_that_a_proxy_vouches_for_counts() {
        let forged_then_real = [
            (X_FORWARDED_FOR, "203.0.113.66, 198.51.100.7"),
            (X_FORWARDED_FOR, "10.0.0.2"),
        ];
        assert_eq!(from("10.0.0.1", &forged_then_real), "198.51.100.7");
        assert_eq!(
            from("10.0.0.1", &[(X_FORWARDED_FOR, "198.51.100.7:4711")]),
            "198.51.100.7"
        );
        assert_eq!(
            from("10.0.0.1", &[(X_FORWARDED_FOR, "10.0.0.3, 10.0.0.2")]),
            "10.0.0.3"
        );
        assert_eq!(
            from(
                "10.0.0.1",
                &[(X_FORWARDED_FOR, "garbage, 198.51.100.7, 10.0.0.2")]
            ),
            "198.51.100.7"
        );
    }

    #[test]
    fn forwarded_is_read_with_its_quotes_and_brackets() {
        let line =
            "for=203.0.113.66;host=\"a,b\", For=\"[2001:470::1]:4711\";proto=https, for=\"[2001:db8::5]\"";
        assert_eq!(from("10.0.0.1", &[(FORWARDED, line)]), "2001:470::1");
        let line =
            r#"for=203.0.113.66;ext="\\", for=203.0.113.67;ext="\", for=203.0.113.68", for=198.51.100.7"#;
        assert_eq!(from("10.0.0.1", &[(FORWARDED, line)]), "198.51.100.7");
    }

    #[test]
    fn a_proxy_that_names_no_address_does_not_lend_its_own() {
        for line in ["198.51.100.7, garbage", "", "198.51.100.7,", "garbage, 10.0.0.2"] {
            assert_eq!(
                from("10.0.0.1", &[(X_FORWARDED_FOR, line)]),
                UNKNOWN.to_string(),
                "{line}"
            );
        }
        for line in [
            "for=198.51.100.7, for=_hidden, for=10.0.0.2",
            "for=198.51.100.7, proto=https",
            "for=198.51.100.7;for=203.0.113.66",
            "",
        ] {
            assert_eq!(
                from("10.0.0.1", &[(FORWARDED, line)]),
                UNKNOWN.to_string(),
                "{line}"
            );
        }
        assert_eq!(from("192.0.2.1", &[(X_FORWARDED_FOR, "garbage")]), "192.0.2.1");
    }

    /// The client writes all entries but the last.
    #[test]
    fn no_quote_or_odd_byte_of_a_client_hides_what_the_proxy_adds() {
        for forged in [
            r#"for=10.99.0.1;ext="\"""#,
            r#"for=10.99.0.1;ext="\\""#,
            r#"for=10.99.0.1;ext=\"""#,
            "for=10.99.0.1;ext=\u{e9}",
            "\u{e9}",
        ] {
            let line = format!("{forged}, for=198.51.100.7");
            assert_eq!(
                from("10.0.0.1", &[(FORWARDED, &line)]),
                "198.51.100.7",
                "{forged}"
            );
        }
        for (forged, added) in [
            (r#"for=10.99.0.1;ext=""#, "for=198.51.100.7"),
            (r#"for=10.99.0.1;ext=""#, r#"for="[2001:470::1]""#),
            (r#"for=10.99.0.1;ext="\"#, r#"for="[2001:470::1]""#),
            (r#"for=10.99.0.1;ext="\""#, "for=198.51.100.7"),
            (r#"for=10.99.0.1;ext=\""#, "for=198.51.100.7"),
        ] {
            let line = format!("{forged}, {added}");
            assert_eq!(
                from("10.0.0.1", &[(FORWARDED, &line)]),
                UNKNOWN.to_string(),
                "{line}"
            );
            assert_eq!(
                from("10.0.0.1", &[(FORWARDED, forged), (FORWARDED, added)]),
                added.replace("for=", "").replace(['"', '[', ']'], ""),
                "a line of its own is not the client's"
            );
        }
        assert_eq!(
            from("10.0.0.1", &[(X_FORWARDED_FOR, "\u{e9}, 198.51.100.7")]),
            "198.51.100.7"
        );
        let mut spoilt = HeaderMap::new();
        spoilt.append(
            FORWARDED,
            HeaderValue::from_bytes(b"\xff, for=198.51.100.7").unwrap(),
        );
        spoilt.append(
            X_FORWARDED_FOR,
            HeaderValue::from_bytes(b"\xff, 198.51.100.7").unwrap(),
        );
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let peer = "10.0.0.1:1".parse().unwrap();
        assert_eq!(of(peer, &spoilt, &trusted).to_string(), "198.51.100.7");
    }

    #[test]
    fn two_headers_that_disagree_are_not_believed() {
        let forged = [(FORWARDED, "for=203.0.113.66"), (X_FORWARDED_FOR, "198.51.100.7")];
        assert_eq!(from("10.0.0.1", &forged), UNKNOWN.to_string());
        assert_eq!(
            from("203.0.113.66", &forged),
            "203.0.113.66",
            "only a trusted proxy is believed"
        );
        let agreed = [(FORWARDED, "for=198.51.100.7"), (X_FORWARDED_FOR, "198.51.100.7")];
        assert_eq!(from("10.0.0.1", &agreed), "198.51.100.7");
    }

    proptest! {
        #[test]
        fn no_header_panics(line in "[ -~]{0,80}") {
            let peer = "10.0.0.1:1".parse().unwrap();
            let headers = headers(&[(FORWARDED, &line), (X_FORWARDED_FOR, &line)]);
            let _ = of(peer, &headers, &["10.0.0.0/8".parse().unwrap()]);
        }
    }
}
