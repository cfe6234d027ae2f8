//! Time as people in a time zone read it.
//!
//! The time zones are those of the system (`/usr/share/zoneinfo`). A system without them, as a container with nothing
//! else in it, has UTC only.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use tz::TimeZone;

use super::Timestamp;

const FOLDER: &str = "/usr/share/zoneinfo";
/// The most bytes of a file there.
const MAX_BYTES: u64 = 64 * 1024;

impl Timestamp {
    /// To the minute in this time zone, as in `2026-11-26 10:30 (Europe/Brussels)`. In UTC if the zone is unknown.
    pub fn in_zone(self, zone: Option<&str>) -> String {
        let local = zone.and_then(|zone| Some(format!("{} ({zone})", self.minute_in(zone)?)));
        local.unwrap_or_else(|| self.in_utc())
    }

    fn minute_in(self, zone: &str) -> Option<String> {
        let offset = offset_of(zone, self)?;
        let amount = Duration::from_secs(offset.unsigned_abs().into());
        let local = if offset < 0 {
            Self::from_seconds(self.seconds().checked_sub(amount.as_secs())?)
        } else {
            self + amount
        };
        Some(local.rfc3339().get(..16)?.replace('T', " "))
    }
}

/// The seconds by which clocks in this zone are ahead of UTC.
fn offset_of(zone: &str, at: Timestamp) -> Option<i32> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+');
    let is_name = |part: &str| !part.is_empty() && part.bytes().all(is_plain);
    // No name leads out of the folder.
    if zone.len() > 64 || !zone.split('/').all(is_name) {
        return None;
    }
    let file = File::open(Path::new(FOLDER).join(zone)).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let zone = TimeZone::from_tz_data(&bytes).ok()?;
    let seconds = i64::try_from(at.seconds()).ok()?;
    Some(zone.find_local_time_type(seconds).ok()?.ut_offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system may have no time zones: then the time is in UTC, and says so.
    #[test]
    fn a_time_is_told_in_the_zone_of_the_reader_winter_and_summer() {
        let winter = Timestamp::from_seconds(1_796_380_200);
        let summer = Timestamp::from_seconds(1_783_330_200);
        for (zone, at, local) in [
            ("Europe/Brussels", winter, "2026-12-04 11:30 (Europe/Brussels)"),
            ("Europe/Brussels", summer, "2026-07-06 11:30 (Europe/Brussels)"),
            ("America/New_York", winter, "2026-12-04 05:30 (America/New_York)"),
            ("Asia/Kolkata", winter, "2026-12-04 16:00 (Asia/Kolkata)"),
        ] {
            let told = at.in_zone(Some(zone));
            let is_known = Path::new(FOLDER).join(zone).exists();
            assert_eq!(told, if is_known { local.to_owned() } else { at.in_utc() });
        }
    }

    #[test]
    fn a_zone_that_is_none_is_utc() {
        let at = Timestamp::from_seconds(1_796_380_200);
        for zone in [
            "",
            "Mars/Olympus",
            "../../../etc/passwd",
            "/etc/localtime",
            "Europe//Brussels",
            "tzdata.zi",
            "zone.tab",
            "Europe",
        ] {
            assert_eq!(at.in_zone(Some(zone)), "2026-12-04 10:30 UTC", "{zone}");
        }
        assert_eq!(at.in_zone(None), "2026-12-04 10:30 UTC");
    }
}
