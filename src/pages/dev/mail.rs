//! The page with the mails of the development server.

use maud::{Markup, html};

use crate::pages::{Page, Text};

/// Lists the mails, the newest first, and shows one of them.
#[derive(Clone, Debug, Default)]
pub struct DevMails {
    pub mails: Vec<MailLine>,
    pub shown: Option<ShownMail>,
}

/// A mail in the list.
#[derive(Clone, Debug)]
pub struct MailLine {
    /// Where it is shown.
    pub href: String,
    pub subject: String,
    /// The address of the recipient.
    pub to: String,
    /// When it was caught.
    pub at: String,
}

#[derive(Clone, Debug)]
pub struct ShownMail {
    pub subject: String,
    /// The address of the recipient.
    pub to: String,
    /// The address of its HTML part.
    pub html_href: String,
    pub text: String,
    /// Header and body.
    pub source: String,
}

impl DevMails {
    /// The page with a mail, and without any.
    pub fn samples() -> Vec<Self> {
        let subject = "Confirm your email address for Acme".to_owned();
        let to = "alice@example.com".to_owned();
        let full = Self {
            mails: vec![MailLine {
                href: "/dev/mail?id=1".to_owned(),
                subject: subject.clone(),
                to: to.clone(),
                at: "2026-11-26T09:30:00Z".to_owned(),
            }],
            shown: Some(ShownMail {
                subject: subject.clone(),
                to,
                html_href: "/dev/mail?id=1&part=html".to_owned(),
                text: "Create the account:\nhttps://localhost:8443/link?t=1\n".to_owned(),
                source: format!("Subject: {subject}\n"),
            }),
        };
        vec![full, Self::default()]
    }
}

impl Page for DevMails {
    const NAME: &'static str = "dev-mail";
    const IS_ENGLISH: bool = true;

    fn title(&self, _text: &Text<'_>) -> String {
        "Mails".to_owned()
    }

    fn body(&self, _text: &Text<'_>) -> Markup {
        html! {
            h1 { "Mails" }
            p.lead { "Mails of this server are shown here and sent to nobody." }
            @if self.mails.is_empty() { p.note { "There is no mail yet." } }
            ul.rows {
                @for mail in &self.mails {
                    li {
                        a.row-name href=(mail.href) { bdi { (mail.subject) } }
                        p.meta { bdi { (mail.to) } " · " time dir="ltr" { (mail.at) } }
                    }
                }
            }
            @if let Some(mail) = &self.shown {
                section {
                    h2 { bdi { (mail.subject) } }
                    p.meta { bdi { (mail.to) } }
                    p.stack { a.button.button-quiet href=(mail.html_href) data-optional { "HTML" } }
                    pre dir="auto" { (with_links(&mail.text)) }
                    details {
                        summary { "Source" }
                        pre dir="ltr" { code { (mail.source) } }
                    }
                }
            }
        }
    }
}

/// A text whose addresses are links.
fn with_links(text: &str) -> Markup {
    let is_link = |word: &str| word.starts_with("https://") || word.starts_with("http://");
    html! {
        @for part in text.split_inclusive(char::is_whitespace) {
            @let word = part.trim_end();
            @if is_link(word) {
                a href=(word) data-optional { (word) } (part.get(word.len()..).unwrap_or_default())
            } @else {
                (part)
            }
        }
    }
}
