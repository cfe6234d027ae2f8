//! Mails, drawn by a theme: with its product name and colours, or by its templates.

use super::finding::Finding;
use super::template::{Templates, html_escaped};
use super::tokens::Palette;
use super::{TemplateContext, Theme};
use crate::pages::Locale;
use crate::pages::mail::{Mail, MailColours, MailKind, MailStyle};

/// The folder of the templates of mails.
pub(super) const FOLDER: &str = "mail/";

/// A mail that was drawn.
#[derive(Debug)]
pub struct RenderedMail {
    pub subject: String,
    pub text: String,
    /// The HTML document.
    pub html: String,
    /// Why templates of the theme were not used, if they were not.
    pub faults: Vec<Finding>,
}

/// One of the two parts of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailPart {
    Text,
    /// The HTML document.
    Html,
}

impl MailPart {
    fn extension(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Html => "html",
        }
    }
}

impl Theme {
    /// Draws a mail. A part without a template, or whose template fails, is drawn as the service has it.
    pub fn draw_mail(&self, mail: &Mail, locale: &Locale) -> RenderedMail {
        let (text, style) = (locale.text(), self.mail_style());
        let mut faults = Vec::new();
        let mut by_template = |part| match self.draw_mail_by_template(mail, part, locale) {
            Ok(drawn) => drawn,
            Err(fault) => {
                faults.push(fault);
                None
            }
        };
        let plain = by_template(MailPart::Text);
        let html = by_template(MailPart::Html);
        RenderedMail {
            subject: mail.subject(&text, &style.product),
            text: plain.unwrap_or_else(|| mail.text(&text, &style.product)),
            html: html.unwrap_or_else(|| mail.html(locale, &style)),
            faults,
        }
    }

    /// Draws a part of a mail by the theme's template and checks it; `None` if the theme has no template for it.
    fn draw_mail_by_template(
        &self,
        mail: &Mail,
        part: MailPart,
        locale: &Locale,
    ) -> Result<Option<String>, Finding> {
        let Some(templates) = &self.templates else {
            return Ok(None);
        };
        let Some(name) = template_name(templates, mail.kind, part) else {
            return Ok(None);
        };
        let mut context = templates.context();
        mail.fill_context(locale, &self.mail_style(), &mut context);
        let drawn = templates.draw(&name, context)?;
        match missing(mail, part, &drawn) {
            Some(missing) => Err(Finding::refused(&name, missing)),
            None => Ok(Some(drawn)),
        }
    }

    /// The faults of the templates of mails, each drawn with samples in English.
    pub(super) fn check_mails(&self) -> Vec<Finding> {
        let samples = Mail::samples();
        let drawn = samples.iter().map(|mail| self.draw_mail(mail, Locale::english()));
        let mut faults: Vec<Finding> = Vec::new();
        for fault in drawn.flat_map(|drawn| drawn.faults) {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        faults
    }

    fn mail_style(&self) -> MailStyle {
        let tokens = &self.manifest.tokens;
        MailStyle {
            product: self.product_name().to_owned(),
            light: colours(&tokens.light),
            dark: colours(&tokens.dark),
        }
    }

    pub fn mail_context(&self, mail: &Mail, locale: &Locale) -> TemplateContext {
        let mut context = TemplateContext::default();
        mail.fill_context(locale, &self.mail_style(), &mut context);
        context
    }
}

/// The template of mails without one of their own.
const LAYOUT: &str = "layout";

fn path(name: &str, part: MailPart) -> String {
    format!("{FOLDER}{name}.{}", part.extension())
}

fn template_name(templates: &Templates, kind: MailKind, part: MailPart) -> Option<String> {
    let names = [kind.name(), LAYOUT].map(|name| path(name, part));
    names.into_iter().find(|name| templates.has(name))
}

/// The names that templates of mails can have.
pub(super) fn template_names() -> impl Iterator<Item = String> {
    let names = MailKind::ALL.map(MailKind::name).into_iter().chain([LAYOUT]);
    names.flat_map(|name| [MailPart::Text, MailPart::Html].map(|part| path(name, part)))
}

/// What a reader needs and this part of the mail does not have.
fn missing(mail: &Mail, part: MailPart, drawn: &str) -> Option<String> {
    let has = |value: &String| match part {
        MailPart::Text => drawn.contains(value.as_str()),
        MailPart::Html => drawn.contains(&html_escaped(value)) || drawn.contains(value.as_str()),
    };
    if mail.link.as_ref().is_some_and(|link| !has(link)) {
        return Some("the link is missing: print {{ link }}".to_owned());
    }
    if mail.code.as_ref().is_some_and(|code| !has(code)) {
        return Some("the code is missing: print {{ code }}".to_owned());
    }
    let forbidden = ["<script", "<form", "<iframe", "<object"];
    let lower = drawn.to_ascii_lowercase();
    let found = forbidden
        .into_iter()
        .find(|tag| part == MailPart::Html && lower.contains(tag));
    found.map(|tag| format!("{tag}>: readers of mail drop it"))
}

fn colours(palette: &Palette) -> MailColours {
    let colour = |name| palette.colour(name).unwrap_or_default().to_string();
    MailColours {
        ground: colour("ground"),
        surface: colour("surface"),
        ink: colour("ink"),
        muted: colour("muted"),
        line: colour("line"),
        accent: colour("accent"),
        on_accent: colour("on-accent"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::pages::mail::MailFactor;
    use crate::themes::Source;
    use crate::themes::theme_set::Themes;

    fn theme(files: &[(&str, &str)]) -> Theme {
        let default = Themes::built_in("").theme(None);
        let mut source = Source {
            name: "acme".to_owned(),
            files: BTreeMap::new(),
            languages: BTreeMap::new(),
        };
        let manifest = (
            "theme.toml",
            "contract = 1\nproduct_name = \"Acme & Co\"\n[light]\naccent = \"#0c655c\"\n",
        );
        for (name, text) in files.iter().chain([&manifest]) {
            source
                .files
                .insert((*name).to_owned(), text.as_bytes().to_vec().into());
        }
        Theme::load(&source, "", Some(default)).unwrap()
    }

    fn sign_up() -> Mail {
        Mail::samples()
            .into_iter()
            .find(|mail| mail.kind == MailKind::SignUp)
            .unwrap()
    }

    #[test]
    fn a_mail_has_the_name_and_the_colour_of_the_theme() {
        let drawn = theme(&[]).draw_mail(&sign_up(), Locale::english());
        assert_eq!(drawn.subject, "Confirm your email address for Acme & Co");
        assert!(drawn.html.contains("background:#0c655c") && drawn.html.contains("Acme &amp; Co"));
        assert!(drawn.text.contains("Acme & Co"));
    }

    #[test]
    fn a_template_draws_its_part_and_only_html_is_escaped() {
        let theme = theme(&[
            (
                "mail/sign-up.txt",
                "{{ product }} {{ text.mail_test_lead|with(product) }} {{ link }} {{ code }}",
            ),
            ("mail/layout.html", "<p>{{ product }}</p>{{ content }}"),
        ]);
        assert_eq!(theme.findings(), []);
        let drawn = theme.draw_mail(&sign_up(), Locale::english());
        assert!(
            drawn
                .text
                .starts_with("Acme & Co This is a test. Mails from Acme & Co reach this address. https://"),
            "{}",
            drawn.text
        );
        assert!(drawn.html.starts_with("<p>Acme &amp; Co</p><p"), "{}", drawn.html);
    }

    /// The operator wrote the templates. What is printed in them comes from others.
    #[test]
    fn hostile_values_stay_text_in_the_templates_of_mails() {
        const EVIL: &str =
            "\"><script>{{ 7 * 7 }}{% include 'mail/layout.html' %}</script><a href='//evil.example'>";
        let every = "{{ product }}{{ link }}{{ code }}{{ expires }}{% for fact in facts %}\
            {{ fact.name }}: {{ fact.value }} {{ text.mail_test_lead|with(fact.value) }}{% endfor %}{{ content }}";
        let html = format!("<p title=\"{{{{ link }}}}\">{every}</p>");
        let theme = theme(&[("mail/layout.html", &html), ("mail/layout.txt", every)]);
        let mail = Mail {
            kind: MailKind::AddressChanged,
            link: Some(EVIL.to_owned()),
            code: Some(EVIL.to_owned()),
            expires: Some(EVIL.to_owned()),
            device: Some(EVIL.to_owned()),
            network: Some(EVIL.to_owned()),
            time: Some(EVIL.to_owned()),
            factors: vec![MailFactor {
                kind: "passkey".to_owned(),
                name: Some(EVIL.to_owned()),
            }],
            new_address: Some(EVIL.to_owned()),
            account_id: Some(EVIL.to_owned()),
        };
        let drawn = theme.draw_mail(&mail, Locale::english());
        assert_eq!(drawn.faults, []);
        for tag in ["<script", "<a href='", "title=\"\"", "49"] {
            assert!(!drawn.html.contains(tag), "{tag}: {}", drawn.html);
        }
        assert!(drawn.html.matches("7 * 7").count() >= 10, "{}", drawn.html);
        assert!(drawn.text.contains(EVIL), "a text is not escaped: {}", drawn.text);
        assert!(!drawn.subject.contains("evil"));
    }

    #[test]
    fn a_template_that_leaves_out_the_link_or_the_code_is_not_used() {
        for (name, template, place) in [
            ("mail/sign-up.txt", "{{ code }}", "mail/sign-up.txt"),
            (
                "mail/sign-up.html",
                "<a href=\"{{ link }}\">x</a>",
                "mail/sign-up.html",
            ),
            (
                "mail/layout.html",
                "{{ content }}<script>x</script>",
                "mail/layout.html",
            ),
            ("mail/test.txt", "{{ nothing }}", "mail/test.txt"),
            ("mail/signup.txt", "{{ link }}", "mail/signup.txt"),
        ] {
            let theme = theme(&[(name, template)]);
            let places: Vec<_> = theme
                .findings()
                .iter()
                .map(|finding| finding.place.clone())
                .collect();
            assert!(
                places.iter().any(|found| found.starts_with(place)),
                "{name}: {places:?}"
            );
            let drawn = theme.draw_mail(&sign_up(), Locale::english());
            assert!(drawn.text.contains("402817") && drawn.html.contains("402817"));
        }
    }
}
