//! The page for a request that cannot be answered and must not be sent back.

use maud::{Markup, html};

use super::form::{ApplicationLink, sentence_with_link};
use super::text::PLACE;
use super::{Page, PageAddress, TemplateContext, Text};

/// Tells a person what went wrong and how to go on (RFC 6749 section 4.1.2.1).
#[derive(Clone, Debug)]
pub struct ErrorPage {
    /// What went wrong.
    pub kind: ErrorKind,
    /// The same in English, for the developer of the application. Only a development server shows it.
    pub details: Option<String>,
    /// Finds the request in the log.
    pub request_id: String,
    /// The address of the service.
    pub issuer: String,
    /// The application that the person came from, if it is registered.
    pub application: Option<ApplicationLink>,
    /// The address of this request, if it may be sent again.
    pub retry: Option<String>,
    /// The path of this request and its login transaction, if the page can be shown again in another language.
    pub own: Option<(String, Option<String>)>,
    /// The address of the account page, where a sign-in can begin without an application.
    pub account: Option<String>,
    /// Where the operator gives help.
    pub contact: Option<String>,
}

/// What people can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The application sent a wrong request.
    Request,
    /// There is no such page.
    NotFound,
    /// The sign-in has expired, or belongs to another browser.
    Stale,
    /// The same, and the browser sent no cookie at all.
    Cookies,
    /// A link from a mail cannot be used, and no more is known.
    Link,
    /// A link from a mail was used.
    LinkUsed,
    /// A link from a mail has expired.
    LinkExpired,
    /// The operator has revoked an invitation.
    InvitationRevoked,
    /// A newer invitation has replaced this one.
    InvitationReplaced,
    /// A link from a mail undoes nothing any more: the account has changed since.
    LinkUndoesNothing,
    /// A link from a mail works only in another browser.
    OtherBrowser,
    /// The page was opened under another address than the service's own.
    Elsewhere,
    /// The browser does not say that a page of this service sent the form.
    ForeignForm,
    /// A limit is exceeded.
    Throttled,
    /// The service is busy.
    Busy,
    /// The service is at fault.
    Server,
}

impl ErrorKind {
    /// Every kind, for tests and previews.
    pub const ALL: [Self; 16] = [
        Self::Request,
        Self::NotFound,
        Self::Stale,
        Self::Cookies,
        Self::Link,
        Self::LinkUsed,
        Self::LinkExpired,
        Self::InvitationRevoked,
        Self::InvitationReplaced,
        Self::LinkUndoesNothing,
        Self::OtherBrowser,
        Self::Elsewhere,
        Self::ForeignForm,
        Self::Throttled,
        Self::Busy,
        Self::Server,
    ];

    /// The word for it that templates can compare.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::NotFound => "not-found",
            Self::Stale => "stale",
            Self::Cookies => "cookies",
            Self::Link => "link",
            Self::LinkUsed => "link-used",
            Self::LinkExpired => "link-expired",
            Self::InvitationRevoked => "invitation-revoked",
            Self::InvitationReplaced => "invitation-replaced",
            Self::LinkUndoesNothing => "link-undoes-nothing",
            Self::OtherBrowser => "other-browser",
            Self::Elsewhere => "elsewhere",
            Self::ForeignForm => "foreign-form",
            Self::Throttled => "throttled",
            Self::Busy => "busy",
            Self::Server => "server",
        }
    }

    fn heading<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Request => text.error_request,
            Self::NotFound => text.error_not_found,
            Self::Stale => text.error_stale,
            Self::Cookies => text.error_cookies,
            Self::Link
            | Self::LinkUsed
            | Self::LinkExpired
            | Self::InvitationRevoked
            | Self::InvitationReplaced
            | Self::LinkUndoesNothing => text.error_link,
            Self::OtherBrowser => text.error_other_browser,
            Self::Elsewhere => text.error_elsewhere,
            Self::ForeignForm => text.error_foreign_form,
            Self::Throttled => text.error_throttled,
            Self::Busy => text.error_busy,
            Self::Server => text.error_server,
        }
    }

    /// What happened, and what the reader can do.
    fn advice<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Request => text.error_request_advice,
            Self::NotFound => text.error_not_found_advice,
            Self::Stale => text.error_stale_advice,
            Self::Cookies => text.error_cookies_advice,
            Self::Link => text.error_link_advice,
            Self::LinkUsed => text.error_link_used,
            Self::LinkExpired => text.error_link_expired,
            Self::InvitationRevoked => text.error_invitation_revoked,
            Self::InvitationReplaced => text.error_invitation_replaced,
            Self::LinkUndoesNothing => text.error_link_undoes_nothing,
            Self::OtherBrowser => text.error_other_browser_advice,
            Self::Elsewhere => text.error_elsewhere_advice,
            Self::ForeignForm => text.error_foreign_form_advice,
            Self::Throttled => text.error_throttled_advice,
            Self::Busy => text.problem_busy,
            Self::Server => text.error_server_advice,
        }
    }

    /// Whether the same request may succeed later.
    pub fn may_pass(self) -> bool {
        matches!(self, Self::Throttled | Self::Busy | Self::Server)
    }

    /// Whether the account page is a way on beside the application.
    pub fn leads_to_account(self) -> bool {
        matches!(
            self,
            Self::NotFound
                | Self::Stale
                | Self::Cookies
                | Self::Link
                | Self::LinkUsed
                | Self::LinkExpired
                | Self::InvitationRevoked
                | Self::InvitationReplaced
                | Self::LinkUndoesNothing
                | Self::OtherBrowser
                | Self::ForeignForm
        )
    }
}

impl ErrorPage {
    /// The page of each kind. The first one has every part.
    pub fn samples() -> Vec<Self> {
        let sample = |kind: ErrorKind| Self {
            kind,
            details: None,
            request_id: "0199f3a2-7c41-7d8e-9b60-2f1c5a7e3d94".to_owned(),
            issuer: "https://id.example.com".to_owned(),
            application: (kind == ErrorKind::Stale).then(ApplicationLink::sample),
            retry: kind.may_pass().then(|| "/account".to_owned()),
            own: (kind == ErrorKind::Stale).then(|| ("/login".to_owned(), Some("4lQ0bI2xQ9mN".to_owned()))),
            account: (!kind.may_pass()).then(|| "/account".to_owned()),
            contact: Some("mailto:help@example.com".to_owned()),
        };
        let mut samples = ErrorKind::ALL.map(sample).to_vec();
        if let Some(first) = samples.first_mut() {
            first.details = Some("redirect_uri is not registered for this client".to_owned());
            first.application = Some(ApplicationLink::sample());
        }
        samples
    }

    fn advice(&self, text: &Text<'_>) -> Markup {
        sentence_with_link(self.kind.advice(text), &self.issuer)
    }

    /// The buttons that lead on, the best one first, and the operator's contact.
    fn ways(&self, text: &Text<'_>) -> Markup {
        let application = self
            .application
            .as_ref()
            .map(|link| (&link.href, link.label(text)));
        let retry = self.retry.as_ref().map(|href| (href, html! { (text.try_again) }));
        let account = self
            .account
            .as_ref()
            .map(|href| (href, html! { (text.account_title) }));
        let ways = [application, retry, account].into_iter().flatten();
        html! {
            div.stack {
                @for (index, (href, label)) in ways.enumerate() {
                    a.button.button-quiet[index > 0] href=(href) data-optional { (label) }
                }
            }
            @if let Some(contact) = &self.contact {
                p.note { a href=(contact) data-optional { (text.contact) } }
            }
        }
    }

    fn details(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(details) = &self.details {
                details {
                    summary { (text.error_details) }
                    p.note lang="en" dir="ltr" { (details) }
                }
            }
        }
    }
}

impl Page for ErrorPage {
    const NAME: &'static str = "error";

    fn title(&self, text: &Text<'_>) -> String {
        self.kind.heading(text).to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (self.kind.heading(text)) }
            p.lead { (self.advice(text)) }
            (self.ways(text))
            (self.details(text))
            dl.facts {
                dt { (text.request_id) }
                dd { code dir="ltr" { (self.request_id) } }
            }
        }
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        let (path, transaction) = self.own.as_ref()?;
        let transaction = transaction.iter().map(|sealed| ("transaction", sealed.as_str()));
        Some(PageAddress {
            path,
            parameters: transaction.collect(),
        })
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("ways", || self.ways(text));
        context.part("details", || self.details(text));
        context.text("heading", self.kind.heading(text));
        context.text("kind", self.kind.name());
        context.text("message", self.details.as_deref().unwrap_or_default());
        context.text("request_id", &self.request_id);
        context.text("advice", &self.kind.advice(text).replace(PLACE, &self.issuer));
        context.text("account", self.account.as_deref().unwrap_or_default());
        context.text("retry", self.retry.as_deref().unwrap_or_default());
        context.text("contact", self.contact.as_deref().unwrap_or_default());
        ApplicationLink::fill_context(self.application.as_ref(), context);
    }
}
