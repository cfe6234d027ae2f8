//! `/dev/mail`: the mails of the development server.

use ::http::StatusCode;
use ::http::header::{CONTENT_SECURITY_POLICY, HeaderValue};

use crate::http::context::RequestContext;
use crate::http::response::{self, HttpResponse};
use crate::mail::catcher::CaughtMail;
use crate::pages::dev::mail::{DevMails, MailLine, ShownMail};
use crate::route::Route;

/// What the HTML of a mail may do: look as it is written, and have links.
const MAIL_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; frame-ancestors 'none'; sandbox allow-popups",
);

/// Lists the mails and shows one; 404 on servers that catch none.
pub fn respond(context: &RequestContext) -> HttpResponse {
    let Some(catcher) = &context.app.caught_mail else {
        return context.not_found();
    };
    let query = context.query().unwrap_or_default();
    let found = query
        .get("id")
        .map(|id| id.parse().ok().and_then(|id| catcher.mail(id)));
    let shown = match found {
        Some(None) => return context.not_found(),
        Some(Some(mail)) if query.get("part") == Some("html") => return html_part(&mail),
        Some(shown) => shown,
        None => None,
    };
    let path = context.app.path(&Route::DevMail);
    let href = |mail: &CaughtMail| format!("{path}?id={}", mail.id);
    let mails = catcher.mails();
    let page = DevMails {
        mails: mails
            .iter()
            .map(|mail| MailLine {
                href: href(mail),
                subject: mail.subject.clone(),
                to: mail.to.clone(),
                at: mail.at.rfc3339(),
            })
            .collect(),
        shown: shown.map(|mail| ShownMail {
            subject: mail.subject.clone(),
            to: mail.to.clone(),
            html_href: format!("{}&part=html", href(&mail)),
            text: mail.text.clone(),
            source: mail.source.clone(),
        }),
    };
    context.page(StatusCode::OK, &page, None)
}

fn html_part(mail: &CaughtMail) -> HttpResponse {
    let mut answer = response::no_store(response::html(StatusCode::OK, mail.html.clone()));
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, MAIL_POLICY);
    answer
}
