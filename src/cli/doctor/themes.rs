//! Checks themes: whether each can be used, and whether the named ones exist.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, Level};
use crate::admin::client::ClientView;
use crate::config::Settings;
use crate::themes::folder::{LANGUAGES, ThemeFolder};
use crate::themes::theme_set::{ThemeSet, Themes};
use crate::themes::{DEFAULT, Severity};

/// Checks every existing theme, and every theme that the settings or a client name.
pub(super) fn examine(settings: &Settings, clients: &[ClientView], findings: &mut Vec<Finding>) {
    let brand = settings.brand.read();
    let themes = Themes::open_branded(
        "",
        &settings.theme,
        Some(ThemeFolder::new(&settings.theme_dir, &settings.data_dir)),
        brand.unwrap_or_else(|_| settings.brand.without_logo()),
    );
    if themes.theme(None).given_name().is_none() {
        findings.push(Finding::advice(
            "theme",
            "name",
            "people read \"idsvc\" on pages and in mails, not the name of your company",
            "set brand.name, brand.logo and brand.accent, and start the service again",
        ));
    }
    let theme_set = themes.current();
    let mut named: BTreeMap<&str, String> = BTreeMap::new();
    for client in clients.iter().rev() {
        if let Some(theme) = &client.theme {
            let remedy = format!("or idsvc client update {} --theme OTHER", client.client_id);
            named.insert(theme, remedy);
        }
    }
    named.insert(&settings.theme, "or name another in the setting theme".to_owned());
    let known = theme_set.names().into_iter();
    for name in known.chain(named.keys().copied()).collect::<BTreeSet<_>>() {
        findings.extend(match (first_fault(&theme_set, name), named.get(name)) {
            (Some(fault), remedy) => {
                let level = if remedy.is_some() {
                    Level::Mend
                } else {
                    Level::Advice
                };
                let message = format!("it cannot be used, and the default theme is used instead: {fault}");
                Some(Finding::good("theme", name, message).at_level(level, check_command(name)))
            }
            (None, Some(remedy)) if theme_set.theme(name).is_none() => {
                let folder = settings.theme_dir.join(name);
                let message = "it does not exist, and the default theme is used instead";
                let remedy = format!("put it into {}, {remedy}", folder.display());
                Some(Finding::mend("theme", name, message, remedy))
            }
            (None, Some(_)) => Some(Finding::good("theme", name, "it can be used")),
            (None, None) => None,
        });
    }
    if let Some(fault) = theme_set.unread_languages().first() {
        let message = format!("a file is not read, and its texts are missing in every theme: {fault}");
        findings.push(Finding::advice(
            "language",
            LANGUAGES,
            message,
            check_command(DEFAULT),
        ));
    }
}

fn check_command(name: &str) -> String {
    format!("idsvc theme check {name} shows every fault; the service reads the files again by itself")
}

/// The first reason why a theme, or a page of it, is not used.
fn first_fault(theme_set: &ThemeSet, name: &str) -> Option<String> {
    let findings = match (theme_set.refused(name), theme_set.theme(name)) {
        (Some(findings), _) => findings,
        (None, theme) => theme?.findings(),
    };
    let refusing = findings
        .iter()
        .find(|finding| finding.severity == Severity::Refused);
    refusing.map(ToString::to_string)
}
