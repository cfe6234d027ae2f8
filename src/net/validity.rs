//! The validity of a certificate, and the warnings about its end.

use std::fmt;

use x509_parser::certificate::X509Certificate;
use x509_parser::time::ASN1Time;

const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;
/// A certificate with less time left than this causes a warning, unless its whole life is short.
const LAST_WEEK: u64 = 7 * DAY;

/// When a certificate is valid, in seconds since the epoch, both ends included (RFC 5280 section 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: u64,
    /// The last second.
    pub not_after: u64,
}

impl Validity {
    /// Whether it includes this second.
    pub fn includes(self, now: u64) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

impl From<&X509Certificate<'_>> for Validity {
    fn from(certificate: &X509Certificate<'_>) -> Self {
        let seconds = |moment: ASN1Time| u64::try_from(moment.timestamp()).unwrap_or(0);
        let validity = certificate.validity();
        Self {
            not_before: seconds(validity.not_before),
            not_after: seconds(validity.not_after),
        }
    }
}

/// A warning about the validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryWarning {
    /// Its period of validity cannot be read.
    Unreadable,
    /// It is not valid any more.
    Expired,
    NotYetValid,
    /// It expires within a day, in this number of hours, and is in the last third of its life.
    LastDay(u64),
    /// It expires within a week, in this number of hours, and is in the last third of its life.
    LastWeek(u64),
}

impl ExpiryWarning {
    /// The warning at `now`, in seconds since the epoch. None if no warning is due.
    pub fn at(now: u64, validity: Option<Validity>) -> Option<Self> {
        let Some(validity) = validity else {
            return Some(Self::Unreadable);
        };
        if validity.not_after < now {
            return Some(Self::Expired);
        }
        if validity.not_before > now {
            return Some(Self::NotYetValid);
        }
        // Certificates that live for days are renewed after two thirds of their life.
        let third = (validity.not_after - validity.not_before) / 3;
        match validity.not_after - now {
            rest if rest >= LAST_WEEK.min(third) => None,
            rest if rest < DAY => Some(Self::LastDay(rest / HOUR)),
            rest => Some(Self::LastWeek(rest / HOUR)),
        }
    }

    /// The hours until the certificate expires, if it is still valid.
    pub fn hours_left(self) -> Option<u64> {
        match self {
            Self::LastDay(hours) | Self::LastWeek(hours) => Some(hours),
            Self::Unreadable | Self::Expired | Self::NotYetValid => None,
        }
    }

    /// Whether clients refuse the certificate now.
    pub fn is_refused(self) -> bool {
        match self {
            Self::Unreadable | Self::Expired | Self::NotYetValid => true,
            Self::LastDay(_) | Self::LastWeek(_) => false,
        }
    }
}

impl fmt::Display for ExpiryWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RENEW: &str = "renew it; the new file is read within a minute, or at once on SIGHUP";
        match self {
            Self::Unreadable => f.write_str("the certificate's period of validity cannot be read"),
            Self::Expired => write!(f, "the certificate has expired and clients refuse it: {RENEW}"),
            Self::NotYetValid => f.write_str(
                "the certificate is not valid yet and clients refuse it: see that the clock is right",
            ),
            Self::LastDay(hours) | Self::LastWeek(hours) => {
                write!(f, "the certificate expires in {hours} hours: {RENEW}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_certificate_that_clients_refuse_is_warned_of_with_the_remedy() {
        let validity = Validity {
            not_before: NOW,
            not_after: NOW + 364 * DAY,
        };
        let warning = |now| ExpiryWarning::at(now, Some(validity));
        assert_eq!((warning(NOW), warning(NOW + 357 * DAY)), (None, None));
        for (now, kind, is_refused, part) in [
            (NOW + 364 * DAY + 1, ExpiryWarning::Expired, true, "renew it"),
            (
                NOW + 363 * DAY + 1,
                ExpiryWarning::LastDay(23),
                false,
                "in 23 hours: renew",
            ),
            (
                NOW + 360 * DAY,
                ExpiryWarning::LastWeek(96),
                false,
                "in 96 hours: renew it",
            ),
            (NOW - 1, ExpiryWarning::NotYetValid, true, "clock"),
        ] {
            let warning = warning(now).unwrap();
            assert_eq!((warning, warning.is_refused()), (kind, is_refused));
            assert!(warning.to_string().contains(part), "{warning}");
        }
        assert_eq!(ExpiryWarning::at(NOW, None), Some(ExpiryWarning::Unreadable));
    }

    #[test]
    fn a_certificate_that_lives_for_days_or_hours_is_warned_of_in_the_last_third_of_its_life() {
        let left = |life: u64, left: u64| {
            let validity = Validity {
                not_before: NOW - life,
                not_after: NOW,
            };
            ExpiryWarning::at(NOW - left, Some(validity))
        };
        assert_eq!(left(6 * DAY, 6 * DAY), None);
        assert_eq!(left(6 * DAY, 2 * DAY), None);
        assert_eq!(left(6 * DAY, 2 * DAY - HOUR), Some(ExpiryWarning::LastWeek(47)));
        assert_eq!(left(6 * DAY, DAY - HOUR), Some(ExpiryWarning::LastDay(23)));
        assert_eq!(left(12 * HOUR, 4 * HOUR), None);
        assert_eq!(left(12 * HOUR, 3 * HOUR), Some(ExpiryWarning::LastDay(3)));
    }
}
