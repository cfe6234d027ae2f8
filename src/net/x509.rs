//! What is looked at in an X.509 certificate (RFC 5280 section 4.1): only as much as nobody else here reads.

use std::fmt;

use time::{Date, Month, OffsetDateTime, Time};

const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;
/// A certificate with less time left than this is worth a line in the log, unless it does not live for long.
const LAST_WEEK: u64 = 7 * DAY;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// The tag of a sequence.
pub(super) const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The tag of the version.
pub(super) const VERSION: u8 = 0xa0;
const UNIQUE_IDENTIFIERS: [u8; 2] = [0x81, 0x82];
const EXTENSIONS: u8 = 0xa3;

/// 2.5.29.37 (section 4.2.1.12).
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// 1.3.6.1.5.5.7.3.1.
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
/// 2.5.29.37.0.
const ANY_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0];

/// The parts of a DER certificate. What is in them has not been looked at.
pub(super) struct Parts<'a> {
    /// The serial number.
    pub(super) serial_number: &'a [u8],
    validity: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> Parts<'a> {
    /// None when it is no certificate.
    pub(super) fn of(certificate: &'a [u8]) -> Option<Self> {
        let (certificate, _) = element(certificate, SEQUENCE)?;
        let (rest, _) = element(certificate, SEQUENCE)?;
        let rest = element(rest, VERSION).map_or(rest, |(_, rest)| rest);
        let (serial_number, rest) = element(rest, INTEGER)?;
        let (_signature, rest) = element(rest, SEQUENCE)?;
        let (_issuer, rest) = element(rest, SEQUENCE)?;
        let (validity, rest) = element(rest, SEQUENCE)?;
        let (_subject, rest) = element(rest, SEQUENCE)?;
        let (_public_key, mut rest) = element(rest, SEQUENCE)?;
        for tag in UNIQUE_IDENTIFIERS {
            if let Some((_, after)) = element(rest, tag) {
                rest = after;
            }
        }
        let extensions = element(rest, EXTENSIONS).and_then(|(extensions, _)| element(extensions, SEQUENCE));
        Some(Self {
            serial_number,
            validity,
            extensions: extensions.map_or(&[], |(extensions, _)| extensions),
        })
    }

    /// What is in the extension of this name, if it is there.
    pub(super) fn extension(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut extensions = self.extensions;
        while let Some((extension, others)) = element(extensions, SEQUENCE) {
            extensions = others;
            let (found, value) = element(extension, OBJECT_IDENTIFIER)?;
            if found == name {
                let value = element(value, BOOLEAN).map_or(value, |(_critical, value)| value);
                return Some(element(value, OCTET_STRING)?.0);
            }
        }
        None
    }

    /// Whether it may be that of a TLS server: whoever issued it says so, or says nothing of what it is for
    /// (section 4.2.1.12).
    pub(super) fn is_for_servers(&self) -> bool {
        let Some(usage) = self.extension(EXTENDED_KEY_USAGE) else {
            return true;
        };
        let mut purposes = element(usage, SEQUENCE).map_or(&[][..], |(purposes, _)| purposes);
        while let Some((purpose, others)) = element(purposes, OBJECT_IDENTIFIER) {
            if purpose == SERVER_AUTH || purpose == ANY_KEY_USAGE {
                return true;
            }
            purposes = others;
        }
        false
    }
}

/// When a certificate is valid, in seconds since the epoch, both ends included (RFC 5280 section 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: u64,
    /// The last second.
    pub not_after: u64,
}

impl Validity {
    /// Reads it from a DER certificate.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (not_before, rest) = moment(Parts::of(certificate)?.validity)?;
        let (not_after, _) = moment(rest)?;
        Some(Self {
            not_before,
            not_after,
        })
    }
}

/// Why somebody has to see to a certificate at the moment when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lapse {
    /// Its period of validity cannot be read.
    Unreadable,
    /// It is not valid any more.
    Expired,
    /// It is not valid yet.
    Early,
    /// It expires within a day and the last third of its life, in so many hours.
    LastDay(u64),
    /// It expires within a week and the last third of its life, in so many hours.
    LastWeek(u64),
}

impl Lapse {
    /// That of a certificate at `now`, in seconds since the epoch; none when all is well.
    pub fn at(now: u64, validity: Option<Validity>) -> Option<Self> {
        let Some(validity) = validity else {
            return Some(Self::Unreadable);
        };
        if validity.not_after < now {
            return Some(Self::Expired);
        }
        if validity.not_before > now {
            return Some(Self::Early);
        }
        // Who has certificates for days renews them after two thirds of these.
        let third = (validity.not_after - validity.not_before) / 3;
        match validity.not_after - now {
            rest if rest >= LAST_WEEK.min(third) => None,
            rest if rest < DAY => Some(Self::LastDay(rest / HOUR)),
            rest => Some(Self::LastWeek(rest / HOUR)),
        }
    }

    /// Whether clients refuse the certificate already.
    pub fn is_refused(self) -> bool {
        match self {
            Self::Unreadable | Self::Expired | Self::Early => true,
            Self::LastDay(_) | Self::LastWeek(_) => false,
        }
    }
}

impl fmt::Display for Lapse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RENEW: &str = "renew it; the new file is read within a minute, or at once on SIGHUP";
        match self {
            Self::Unreadable => f.write_str("the certificate's period of validity cannot be read"),
            Self::Expired => write!(f, "the certificate has expired and clients refuse it: {RENEW}"),
            Self::Early => f.write_str(
                "the certificate is not valid yet and clients refuse it: see that the clock is right",
            ),
            Self::LastDay(hours) | Self::LastWeek(hours) => {
                write!(f, "the certificate expires in {hours} hours: {RENEW}")
            }
        }
    }
}

/// Whether a DER certificate is of the first version of X.509, which has no room for names (RFC 5280 section 4.1.2.1).
pub(super) fn is_version_1(certificate: &[u8]) -> bool {
    element(certificate, SEQUENCE)
        .and_then(|(certificate, _)| element(certificate, SEQUENCE))
        .is_some_and(|(to_be_signed, _)| element(to_be_signed, INTEGER).is_some())
}

/// The contents of the DER element that `input` begins with, and what follows it.
pub(super) fn element(input: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, input) = input.split_first()?;
    let (&first, input) = input.split_first()?;
    if found != tag {
        return None;
    }
    if first < 0x80 {
        return input.split_at_checked(usize::from(first));
    }
    let (length, input) = input.split_at_checked(usize::from(first & 0x7f))?;
    if length.len() > 4 {
        return None;
    }
    let length = length
        .iter()
        .fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
    input.split_at_checked(length)
}

/// The time that `input` begins with, in seconds since the epoch, and what follows it.
fn moment(input: &[u8]) -> Option<(u64, &[u8])> {
    let (year_digits, (text, rest)) = match element(input, UTC_TIME) {
        Some(found) => (2, found),
        None => (4, element(input, GENERALIZED_TIME)?),
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != year_digits + 10 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, others) = text.split_at_checked(year_digits)?;
    let year: i32 = year.parse().ok()?;
    let year = match year_digits {
        2 if year < 50 => 2000 + year,
        2 => 1900 + year,
        _ => year,
    };
    let two = |at: usize| others.get(at..at + 2)?.parse::<u8>().ok();
    let date = Date::from_calendar_date(year, Month::try_from(two(0)?).ok()?, two(2)?).ok()?;
    let time = Time::from_hms(two(4)?, two(6)?, two(8)?).ok()?;
    let seconds = OffsetDateTime::new_utc(date, time).unix_timestamp();
    Some((u64::try_from(seconds).unwrap_or(0), rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn certificate(purposes: &[ExtendedKeyUsagePurpose]) -> Vec<u8> {
        let mut params = CertificateParams::new(["id.example".to_owned()]).unwrap();
        params.extended_key_usages = purposes.to_vec();
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn both_ways_to_write_a_time_are_read() {
        assert_eq!(moment(b"\x17\x0d700101000001Z-").unwrap(), (1, &b"-"[..]));
        assert_eq!(moment(b"\x17\x0d491231235959Z").unwrap().0, 2_524_607_999);
        assert_eq!(moment(b"\x18\x0f20500101000000Z").unwrap().0, 2_524_608_000);
        assert_eq!(moment(b"\x17\x0d500101000000Z").unwrap().0, 0);
        for wrong in [
            "\x17\x0d701301000001Z",
            "\x17\x0b7001010000Z",
            "\x18\x0d700101000001Z",
            "\x17\x0d70010100000+Z",
        ] {
            assert_eq!(moment(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_certificate_that_is_cut_off_is_none() {
        let der = certificate(&[]);
        assert!(Parts::of(&der).is_some() && Validity::of(&der).is_some());
        for length in 0..der.len() {
            assert_eq!(Validity::of(&der[..length]), None);
        }
        assert_eq!(element(b"\x30\x84\xff\xff\xff\xff", SEQUENCE), None);
        assert_eq!(element(b"\x30\x85\0\0\0\0\x01a", SEQUENCE), None);
    }

    #[test]
    fn a_certificate_is_for_servers_unless_it_says_that_it_is_for_others_only() {
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, CodeSigning, ServerAuth};
        let is_for_servers =
            |purposes: &[_]| Parts::of(&certificate(purposes)).is_some_and(|parts| parts.is_for_servers());
        assert!(is_for_servers(&[]));
        assert!(is_for_servers(&[ClientAuth, ServerAuth]));
        assert!(is_for_servers(&[Any]));
        assert!(!is_for_servers(&[ClientAuth]));
        assert!(!is_for_servers(&[ClientAuth, CodeSigning]));
    }

    #[test]
    fn a_certificate_that_clients_refuse_is_warned_of_with_the_remedy() {
        let validity = Validity {
            not_before: NOW,
            not_after: NOW + 364 * DAY,
        };
        let lapse = |now| Lapse::at(now, Some(validity));
        assert_eq!((lapse(NOW), lapse(NOW + 357 * DAY)), (None, None));
        for (now, kind, is_refused, part) in [
            (NOW + 364 * DAY + 1, Lapse::Expired, true, "renew it"),
            (
                NOW + 363 * DAY + 1,
                Lapse::LastDay(23),
                false,
                "in 23 hours: renew",
            ),
            (
                NOW + 360 * DAY,
                Lapse::LastWeek(96),
                false,
                "in 96 hours: renew it",
            ),
            (NOW - 1, Lapse::Early, true, "clock"),
        ] {
            let lapse = lapse(now).unwrap();
            assert_eq!((lapse, lapse.is_refused()), (kind, is_refused));
            assert!(lapse.to_string().contains(part), "{lapse}");
        }
        assert_eq!(Lapse::at(NOW, None), Some(Lapse::Unreadable));
    }

    #[test]
    fn a_certificate_that_lives_for_days_or_hours_is_warned_of_in_the_last_third_of_its_life() {
        let left = |life: u64, left: u64| {
            let validity = Validity {
                not_before: NOW - life,
                not_after: NOW,
            };
            Lapse::at(NOW - left, Some(validity))
        };
        assert_eq!(left(6 * DAY, 6 * DAY), None);
        assert_eq!(left(6 * DAY, 2 * DAY), None);
        assert_eq!(left(6 * DAY, 2 * DAY - HOUR), Some(Lapse::LastWeek(47)));
        assert_eq!(left(6 * DAY, DAY - HOUR), Some(Lapse::LastDay(23)));
        assert_eq!(left(12 * HOUR, 4 * HOUR), None);
        assert_eq!(left(12 * HOUR, 3 * HOUR), Some(Lapse::LastDay(3)));
    }
}
