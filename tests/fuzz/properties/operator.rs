//! What the operator writes: settings and themes. Their author is trusted, but may make mistakes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use idsvc::config::Sources;
use idsvc::config::file;
use idsvc::config::reference::find;
use idsvc::config::resolve::{resolve, resolve_settings};
use idsvc::config::source::Origin;
use idsvc::themes::check::{check_content, check_forms};
use idsvc::themes::language::parse_language;
use idsvc::themes::manifest;
use idsvc::themes::manifest::Manifest;
use idsvc::themes::template::Templates;
use idsvc::themes::tokens::is_length;
use idsvc::themes::{ContentSecurityPolicy, ResourceKind, TemplateContext, style};

/// Every value of a file is one that the reference names, and every fault names a line of it.
pub(super) fn config_file(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let path = Path::new("idsvc.toml");
    let parsed = file::parse(text, path);
    assert_eq!(file::parse(text, path), parsed);
    let most = text.matches('\n').count() + 1;
    for setting in &parsed.values {
        assert_eq!(find(setting.key).unwrap().key, setting.key);
        let Origin::File(_, line) = &setting.origin else {
            panic!("{:?}", setting.origin)
        };
        assert!((1..=most).contains(line));
    }
    for fault in &parsed.faults {
        let place = fault.place.strip_prefix("idsvc.toml line ").unwrap();
        let (line, column) = place.split_once(" column ").unwrap_or((place, "1"));
        let line: usize = line.parse().unwrap();
        assert!((1..=most).contains(&line), "{}", fault.place);
        let longest = text.split('\n').nth(line - 1).unwrap().chars().count() + 1;
        assert!(
            (1..=longest).contains(&column.parse().unwrap()),
            "{}",
            fault.place
        );
        assert!(!fault.message.is_empty());
    }
    let is_sound = parsed.faults.is_empty();
    let is_toml = toml::from_str::<toml::Table>(text).is_ok();
    assert!(is_toml || !is_sound, "accepted what is no TOML");
    let mut is_accepted = false;
    for is_dev in [false, true] {
        let sources = Sources {
            values: parsed.values.clone(),
            faults: parsed.faults.clone(),
            unread: parsed.unread.clone(),
            is_dev,
            ..Sources::default()
        };
        let settings = resolve_settings(&sources);
        match resolve(&sources) {
            Ok(config) => {
                assert!(is_sound && settings.is_ok());
                assert!(config.issuer.starts_with("https://") || config.issuer.starts_with("http://"));
                assert!(!config.listen.is_empty());
                is_accepted = true;
            }
            Err(error) => assert!(!error.faults.is_empty() && !error.to_string().is_empty()),
        }
    }
    is_accepted
}

/// A theme's manifest yields values that stylesheets and headers can hold, and nothing that could leave them.
pub(super) fn theme_manifest(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let is_accepted = match manifest::parse(text, &Manifest::default()) {
        Ok(manifest) => {
            assert!(manifest.product_name.len() <= 200);
            let css = manifest.tokens.css();
            let marks = |css: &str| css.chars().filter(|c| "{};@<\\".contains(*c)).collect::<String>();
            assert_eq!(marks(&css), marks(&Manifest::default().tokens.css()), "{css}");
            assert!(!css.contains("url(") && !css.contains("/*"), "{css}");
            assert!(manifest.tokens.radius.is_empty() || is_length(&manifest.tokens.radius));
            let policy = manifest.policy.text();
            assert!(http::HeaderValue::from_str(&policy).is_ok(), "{policy}");
            let mut words = policy.split([' ', ';']);
            let is_tame = |word: &str| !word.contains('\'') || matches!(word, "'none'" | "'self'");
            assert!(words.all(is_tame) && !policy.contains(','), "{policy}");
            assert!(
                !manifest
                    .policy
                    .allows(ResourceKind::Script, "javascript:alert(1)")
            );
            for link in &manifest.links {
                assert!(
                    !link.href.to_ascii_lowercase().starts_with("javascript:"),
                    "{}",
                    link.href
                );
                assert!(
                    !link.href.to_ascii_lowercase().starts_with("data:"),
                    "{}",
                    link.href
                );
            }
            let findings = style::inspect("theme.css", text, &manifest.policy, |_| false);
            assert!(findings.iter().all(|finding| !finding.to_string().is_empty()));
            true
        }
        Err(findings) => {
            assert!(!findings.is_empty());
            false
        }
    };
    if let Err(findings) = parse_language("locales/nl.toml", text) {
        assert!(!findings.is_empty());
    }
    is_accepted
}

/// A letter that no template contains. The text before it on a page therefore came from a value.
const MARK: char = '\u{E000}';
const HOSTILE: &str = "<\u{E000}script>\"\u{E000}'\u{E000}&\u{E000}";

/// A template can be drawn within bounds or is refused, and a value that it prints never becomes markup.
pub(super) fn theme_template(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let sources = BTreeMap::from([
        ("page.html".to_owned(), text.to_owned()),
        (
            "layout.html".to_owned(),
            "<main>{% block content %}{% endblock %}</main>".to_owned(),
        ),
    ]);
    let assets = BTreeMap::from([("a.css".to_owned(), "/theme/x/1/a.css".to_owned())]);
    let (templates, findings) = Templates::compile(sources, Arc::new(assets));
    assert!(templates.has("layout.html"));
    assert!(!templates.has("page.html") || findings.is_empty());
    assert!(templates.has("page.html") || !findings.is_empty());
    let mut context = TemplateContext::default();
    context.text("name", HOSTILE);
    context.text("phrase", "to {} now");
    context.flag("yes", true);
    context.list("things", (0..3).map(|_| [("text", HOSTILE)]));
    let Ok(page) = templates.draw("page.html", context) else {
        return false;
    };
    assert!(page.len() <= 256 * 1024);
    let is_marked = text.contains(MARK) || text.contains("\\u");
    let as_markup = ['<', '"', '\'', '&'].map(|sign| format!("{sign}{MARK}"));
    assert!(
        is_marked || !as_markup.iter().any(|markup| page.contains(markup)),
        "{page}"
    );
    let findings = check_forms("page.html", &page, "", None, None);
    let lower = page.to_ascii_lowercase();
    let is_form =
        |after: &str| after.starts_with(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>'));
    let has_form = lower.split("<form").skip(1).any(is_form);
    assert!(!has_form || !findings.is_empty(), "a form is not seen: {page}");
    check_content("page.html", &page, &ContentSecurityPolicy::default());
    true
}
