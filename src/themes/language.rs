//! Reads `locales/TAG.toml`, which adds a language, and the texts of a language in `theme.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::finding::Finding;
use super::reader::Reader;
use crate::pages::language::Direction;
use crate::pages::language::{Language, Words};
use crate::pages::text::{Form, PLACE, Sentence};

pub(super) type RawWords = BTreeMap<String, Spanned<String>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLanguage {
    name: Option<Spanned<String>>,
    direction: Option<Spanned<String>>,
    #[serde(default)]
    texts: RawWords,
    #[serde(default)]
    scopes: RawWords,
}

const MAX_TEXT_BYTES: usize = 1000;

/// Texts that the pages of an earlier version had. Language files may have them still, and no page shows them.
const FORMER: [&str; 21] = [
    "copied",
    "copy",
    "dev_mail_lead",
    "dev_mail_none",
    "dev_mail_source",
    "dev_mail_title",
    "home_commands",
    "home_device",
    "home_device_lead",
    "home_device_wait",
    "home_endpoints",
    "home_lead",
    "home_password",
    "home_title",
    "home_user",
    "token_header",
    "token_payload",
    "token_raw",
    "token_response",
    "tokens_lead",
    "tokens_title",
];

impl Reader<'_> {
    /// Reads texts of pages. Each must have a known name, and the places that its form has.
    pub(super) fn texts(&mut self, mut raw: RawWords) -> Words {
        raw.retain(|name, _| !FORMER.contains(&name.as_str()));
        self.words(raw, |name, value| {
            let Some(sentence) = Sentence::named(name) else {
                return Some(format!("{name} is unknown: no page has this text"));
            };
            let has = value.matches(PLACE).count();
            let (wants, is_complete) = match sentence.form {
                Form::Plain => (0, has == 0),
                Form::Place => (1, has == 1),
                Form::OptionalPlace => (1, has <= 1),
                Form::Plural => (1, has > 0),
            };
            (!is_complete).then(|| format!("{name} has {PLACE} {has} times and needs it {wants} times"))
        })
    }

    /// Reads texts for scopes, which may have any name.
    pub(super) fn scopes(&mut self, raw: RawWords) -> Words {
        self.words(raw, |_, _| None)
    }

    fn words(&mut self, raw: RawWords, problem: impl Fn(&str, &str) -> Option<String>) -> Words {
        let mut words = Words::new();
        for (name, value) in raw {
            let offset = value.span().start;
            let value = value.into_inner();
            let is_fit = !value.trim().is_empty() && value.len() <= MAX_TEXT_BYTES;
            let length = || format!("{name} must have 1 to {MAX_TEXT_BYTES} bytes");
            match problem(&name, &value).or_else(|| (!is_fit).then(length)) {
                Some(problem) => self.fault(offset, problem),
                None => drop(words.insert(name, value)),
            }
        }
        words
    }
}

/// Reads the file of a language. `file` is its name in findings.
pub fn parse_language(file: &str, text: &str) -> Result<Language, Vec<Finding>> {
    let mut reader = Reader::new(file, text);
    let Some(raw) = reader.parse::<RawLanguage>() else {
        return reader.finish(Language::default());
    };
    let is_direction = |text: &str| Direction::of(text).is_some();
    let direction = reader.checked(raw.direction, is_direction, "ltr or rtl");
    let is_name = |name: &str| !name.trim().is_empty() && name.len() <= 100;
    let name = reader.checked(raw.name, is_name, "a name of 1 to 100 bytes");
    let language = Language {
        name,
        direction: direction.as_deref().and_then(Direction::of),
        texts: reader.texts(raw.texts),
        scopes: reader.scopes(raw.scopes),
    };
    reader.finish(language)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::pages::text::{BUILT_IN, SENTENCES};

    /// Names each text that is missing, that no page has, or that has other places or forms than the page needs.
    #[test]
    fn the_file_of_each_built_in_language_is_complete() {
        let mut faults = Vec::new();
        for built_in in &BUILT_IN {
            let file = format!("assets/locales/{}.toml", built_in.tag);
            let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file)).unwrap();
            let texts = match parse_language(&file, &text) {
                Ok(language) => language.texts,
                Err(found) => {
                    faults.extend(found.iter().map(ToString::to_string));
                    continue;
                }
            };
            let mut forms = BTreeSet::new();
            for sentence in SENTENCES {
                let Some(text) = texts.get(sentence.name) else {
                    faults.push(format!("{file}: {} is missing", sentence.name));
                    continue;
                };
                if sentence.form == Form::Plural {
                    forms.insert(text.split('|').count());
                }
                assert_eq!(sentence.of(built_in.text), text, "{file}: {}", sentence.name);
            }
            if forms.len() != 1 || !forms.is_subset(&BTreeSet::from([1, 2, 4])) {
                faults.push(format!("{file}: texts with a number have {forms:?} forms"));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn a_language_file_says_how_it_is_written() {
        let language = parse_language(
            "fa.toml",
            "name = \"فارسی\"\ndirection = \"rtl\"\n[texts]\nsign_in = \"ورود\"",
        )
        .unwrap();
        assert_eq!(language.direction, Some(Direction::Rtl));
        assert_eq!(language.name.as_deref(), Some("فارسی"));
        assert_eq!(language.texts["sign_in"], "ورود");
        let found = parse_language("fa.toml", "direction = \"up\"").unwrap_err();
        assert_eq!(found[0].place, "fa.toml line 1");
        assert!(found[0].message.contains("\"up\""), "{}", found[0]);
    }

    /// Such a file may come from `idsvc theme new` of an earlier version.
    #[test]
    fn a_text_that_no_page_has_any_more_is_passed_over() {
        let language = parse_language("nl.toml", "[texts]\nhome_title = \"Ontwikkeling\"").unwrap();
        assert_eq!(language.texts, Words::new());
    }

    /// A new placeholder in an existing text would refuse language files that are valid today. So texts may only be added
    /// to these two lists, and only new texts to the first.
    #[test]
    fn the_places_of_a_text_are_those_that_its_contract_began_with() {
        let of_form = |form: Form| -> Vec<_> {
            let sentences = SENTENCES.iter().filter(|sentence| sentence.form == form);
            sentences.map(|sentence| sentence.name).collect()
        };
        let of_names = [
            "sign_in_to",
            "continue_as",
            "problem_elsewhere",
            "continue_with",
            "check_mail_reset",
            "check_mail_sign_up",
            "new_password_lead",
            "other_password_lead",
            "new_account_lead",
            "sign_in_by_link_lead",
            "secure_lead",
            "secure_restores_address",
            "secured_lead",
            "consent_lead",
            "consent_user",
            "consent_document",
            "consent_host",
            "consent_unverified",
            "consent_policy",
            "consent_terms",
            "scope_api",
            "no_access_title",
            "logout_user",
            "logged_out_of",
            "back_to",
            "error_elsewhere_advice",
            "strength_missing",
            "mail_test_subject",
            "mail_test_lead",
            "mail_test_why",
            "mail_confirm_subject",
            "mail_sign_up_lead",
            "mail_sign_up_why",
            "mail_known_subject",
            "mail_known_lead",
            "mail_known_why",
            "mail_invitation_subject",
            "mail_invitation_lead",
            "mail_invitation_why",
            "mail_reset_subject",
            "mail_reset_lead",
            "mail_reset_why",
            "mail_sign_in_subject",
            "mail_sign_in_lead",
            "mail_sign_in_why",
            "mail_verify_lead",
            "mail_verify_why",
            "mail_device_subject",
            "mail_device_lead",
            "mail_password_subject",
            "mail_password_lead",
            "mail_factor_added_subject",
            "mail_factor_added_lead",
            "mail_factor_removed_subject",
            "mail_factor_removed_lead",
            "mail_factors_end_subject",
            "mail_factors_end_lead",
            "mail_address_subject",
            "mail_address_lead",
            "mail_address_why",
            "mail_notice_why",
            "mail_expires",
            "account_open",
            "account_email_present",
            "second_factor_wait",
            "factor_codes_left",
            "account_delete_confirm",
            "verify_address_lead",
            "address_verified_lead",
            "account_password_rule",
            "device_other_address",
        ];
        assert_eq!(of_form(Form::Place), of_names);
        assert_eq!(of_form(Form::OptionalPlace), ["problem_too_long"]);
        for (written, is_right) in [("Te lang", true), ("Te lang: {}", true), ("{} {}", false)] {
            let read = parse_language("nl.toml", &format!("[texts]\nproblem_too_long = \"{written}\""));
            assert_eq!(read.is_ok(), is_right, "{written}");
        }
        for (written, is_right) in [
            ("{} minuten geleden", true),
            ("{}|{}|{}", true),
            ("geleden", false),
        ] {
            let read = parse_language("nl.toml", &format!("[texts]\nminutes_ago = \"{written}\""));
            assert_eq!(read.is_ok(), is_right, "{written}");
        }
    }
}
