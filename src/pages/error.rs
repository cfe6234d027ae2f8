//! The page for a request that cannot be answered and must not be sent back.

use maud::{Markup, html};

use super::{Page, TemplateContext, Text};

/// Tells a person what was wrong with the request that brought them here (RFC 6749 section 4.1.2.1).
#[derive(Clone, Debug)]
pub struct ErrorPage {
    /// What kind of fault it is.
    pub heading: Heading,
    /// What is wrong, in English, for the developer of the application.
    pub message: String,
    /// Finds the request in the log.
    pub request_id: String,
    /// The address of the account page, where a sign-in can begin without an application.
    pub account: Option<String>,
}

/// What an error page says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// The request is at fault: "Request error".
    Request,
    /// There is no such page.
    NotFound,
    /// The sign-in has expired, or belongs to another browser.
    Stale,
    /// The same, and the browser sent no cookie at all.
    Cookies,
    /// A limit is exceeded, or the service is busy.
    Busy,
    /// The service is at fault.
    Server,
}

impl Heading {
    /// Every heading, for tests and previews.
    pub const ALL: [Self; 6] = [
        Self::Request,
        Self::NotFound,
        Self::Stale,
        Self::Cookies,
        Self::Busy,
        Self::Server,
    ];

    /// The word for it that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::NotFound => "not-found",
            Self::Stale => "stale",
            Self::Cookies => "cookies",
            Self::Busy => "busy",
            Self::Server => "server",
        }
    }

    fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Request => text.error_request,
            Self::NotFound => text.error_not_found,
            Self::Stale => text.error_stale,
            Self::Cookies => text.error_cookies,
            Self::Busy => text.error_busy,
            Self::Server => text.error_server,
        }
    }

    /// What the reader can do.
    fn advice<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Stale => text.error_stale_advice,
            Self::Cookies => text.error_cookies_advice,
            Self::Request | Self::NotFound | Self::Busy | Self::Server => text.error_advice,
        }
    }

    /// Whether it is about a sign-in that cannot go on.
    pub fn is_about_a_sign_in(self) -> bool {
        matches!(self, Self::Stale | Self::Cookies)
    }
}

impl ErrorPage {
    /// The page under each heading. It has no link to the account page: older themes need not have that link.
    pub fn samples() -> Vec<Self> {
        Heading::ALL
            .map(|heading| Self {
                heading,
                message: "redirect_uri is not registered for this client".to_owned(),
                request_id: "0199f3a2-7c41-7d8e-9b60-2f1c5a7e3d94".to_owned(),
                account: None,
            })
            .to_vec()
    }
}

impl Page for ErrorPage {
    const NAME: &'static str = "error";

    fn title(&self, text: &Text<'_>) -> String {
        self.heading.text(text).to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (self.heading.text(text)) }
            @if !self.message.is_empty() {
                p.problem lang="en" dir="ltr" { (self.message) }
            }
            p.note { (self.heading.advice(text)) }
            @if let Some(account) = &self.account {
                p { a.button.button-quiet href=(account) { (text.account_title) } }
            }
            dl.facts {
                dt { (text.request_id) }
                dd { code dir="ltr" { (self.request_id) } }
            }
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.text("heading", self.heading.text(text));
        context.text("kind", self.heading.kind());
        context.text("message", &self.message);
        context.text("request_id", &self.request_id);
        context.text("advice", self.heading.advice(text));
        context.text("account", self.account.as_deref().unwrap_or_default());
    }
}
