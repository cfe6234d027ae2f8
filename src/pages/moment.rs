//! Times of the past and times to wait, told in words.
//!
//! A text for a number has one form for every number, or two (1, more), or four (1, 2, 3 to 10, more), as the language
//! needs them. With any other number of forms, the last one counts.

use maud::{Markup, html};

use super::Text;
use super::text::PLACE;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// From this age on a date says more than a number of days.
const LONG_AGO: u64 = 31 * DAY;

/// A time of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time as RFC 3339 writes it.
    pub rfc3339: String,
    /// How many seconds ago it was.
    pub seconds_ago: u64,
}

impl Moment {
    /// How long ago it was; the date if that is long ago.
    pub fn ago(&self, text: &Text<'_>) -> String {
        let (forms, number) = match self.seconds_ago {
            ..MINUTE => return text.just_now.to_owned(),
            age @ ..HOUR => (text.minutes_ago, age / MINUTE),
            age @ ..DAY => (text.hours_ago, age / HOUR),
            age @ ..LONG_AGO => (text.days_ago, age / DAY),
            _ => return self.date().to_owned(),
        };
        form(forms, number).replace(PLACE, &number.to_string())
    }

    /// The same as an element that has the exact time. The digits of a date are written from left to right everywhere.
    pub fn draw(&self, text: &Text<'_>) -> Markup {
        let time = self.rfc3339.split_once('T').map_or("", |(_, time)| time);
        let exact = format!("{} {} UTC", self.date(), time.get(..5).unwrap_or_default());
        let direction = (self.seconds_ago >= LONG_AGO).then_some("ltr");
        html! { time datetime=(self.rfc3339) title=(exact) dir=[direction] { (self.ago(text)) } }
    }

    fn date(&self) -> &str {
        self.rfc3339.split('T').next().unwrap_or_default()
    }
}

/// That too many attempts were made, and how long to wait, if that is known.
pub(super) fn throttled(retry_after: Option<u64>, text: &Text<'_>) -> String {
    match retry_after {
        Some(seconds) => {
            let minutes = seconds.div_ceil(MINUTE).max(1);
            form(text.problem_throttled_wait, minutes).replace(PLACE, &minutes.to_string())
        }
        None => text.problem_throttled.to_owned(),
    }
}

/// The form of a text for this number, which is at least 1.
pub(super) fn form(forms: &str, number: u64) -> &str {
    let count = forms.split('|').count();
    let index = match (count, number) {
        (2 | 4, 1) => 0,
        (4, 2) => 1,
        (4, 3..=10) => 2,
        _ => count - 1,
    };
    forms.split('|').nth(index).unwrap_or(forms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::text::{AR, DE, EN, JA};

    fn ago(seconds_ago: u64, text: &Text<'_>) -> String {
        let rfc3339 = "2026-11-20T08:15:00Z".to_owned();
        Moment { rfc3339, seconds_ago }.ago(text)
    }

    #[test]
    fn each_language_counts_in_its_own_forms() {
        for (seconds, en, de, ja, ar) in [
            (0, "just now", "gerade eben", "たった今", "الآن"),
            (59, "just now", "gerade eben", "たった今", "الآن"),
            (60, "1 minute ago", "vor 1 Minute", "1 分前", "قبل دقيقة"),
            (
                5 * MINUTE + 59,
                "5 minutes ago",
                "vor 5 Minuten",
                "5 分前",
                "قبل 5 دقائق",
            ),
            (
                HOUR - 1,
                "59 minutes ago",
                "vor 59 Minuten",
                "59 分前",
                "قبل 59 دقيقة",
            ),
            (2 * HOUR, "2 hours ago", "vor 2 Stunden", "2 時間前", "قبل ساعتين"),
            (DAY, "1 day ago", "vor 1 Tag", "1 日前", "قبل يوم"),
            (10 * DAY, "10 days ago", "vor 10 Tagen", "10 日前", "قبل 10 أيام"),
            (
                LONG_AGO - 1,
                "30 days ago",
                "vor 30 Tagen",
                "30 日前",
                "قبل 30 يومًا",
            ),
            (LONG_AGO, "2026-11-20", "2026-11-20", "2026-11-20", "2026-11-20"),
        ] {
            let told = [&EN, &DE, &JA, &AR].map(|text| ago(seconds, text));
            assert_eq!(told, [en, de, ja, ar]);
        }
    }

    #[test]
    fn a_time_to_wait_is_told_in_whole_minutes() {
        let told = |seconds| throttled(seconds, &EN);
        assert_eq!(told(Some(0)), "Too many attempts. Try again in 1 minute.");
        assert_eq!(told(Some(60)), "Too many attempts. Try again in 1 minute.");
        assert_eq!(told(Some(61)), "Too many attempts. Try again in 2 minutes.");
        assert_eq!(told(None), EN.problem_throttled);
        let arabic = throttled(Some(3 * MINUTE), &AR);
        assert!(arabic.contains("3 دقائق"), "{arabic}");
    }

    #[test]
    fn a_language_with_other_forms_uses_the_last_one() {
        assert_eq!(form("one|few|many", 1), "many");
        assert_eq!(form("all", 1), "all");
    }

    #[test]
    fn the_exact_time_is_in_the_element() {
        let moment = Moment {
            rfc3339: "2026-11-20T08:15:30Z".to_owned(),
            seconds_ago: 90,
        };
        assert_eq!(
            moment.draw(&EN).into_string(),
            "<time datetime=\"2026-11-20T08:15:30Z\" title=\"2026-11-20 08:15 UTC\">1 minute ago</time>"
        );
    }
}
