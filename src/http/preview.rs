//! The web server of `idsvc theme preview`: every page in every state and language, with made-up people.

use std::sync::Arc;

use ::http::header::{CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue};
use ::http::{Method, Request, StatusCode};

use super::headers;
use super::request::Parameters;
use super::response::{self, HttpResponse};
use super::screen::asset;
use crate::pages::Locale;
use crate::pages::mail::{Mail, MailKind};
use crate::route::Route;
use crate::themes::Finding;
use crate::themes::Theme;
use crate::themes::preview::{Preview, SCRIPT, STYLE};
use crate::themes::sample;
use crate::themes::sample::Sample;
use crate::themes::theme_set::Themes;

/// The policy of the frame around the shown page. Only the preview's own style, script and pages are loaded.
const FRAME_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'",
);

/// What the HTML of a mail may load.
const MAIL_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; frame-ancestors 'self'; sandbox allow-popups",
);
/// The addresses of mails begin with this.
const MAILS: &str = "/mails/";

/// The theme in the preview. The folder is read again with every request.
#[derive(Debug)]
pub struct Previewed {
    /// The themes of the folder.
    pub themes: Themes,
    /// The name of the theme that is shown.
    pub name: String,
}

/// The theme that is shown, and what is wrong with the one in the preview.
struct ShownTheme {
    theme: Arc<Theme>,
    findings: Vec<Finding>,
}

impl Previewed {
    /// The theme and its findings; the default theme if this one cannot be used.
    fn theme(&self) -> ShownTheme {
        self.themes.refresh();
        let theme_set = self.themes.current();
        let mut findings = theme_set.findings(&self.name);
        let theme = match (theme_set.theme(&self.name), theme_set.refused(&self.name)) {
            (Some(theme), None) => theme,
            (_, refused) => {
                if refused.is_none() {
                    findings.push(Finding::refused(&self.name, "there is no such theme"));
                }
                theme_set.default_theme()
            }
        };
        ShownTheme {
            theme: Arc::clone(theme),
            findings,
        }
    }
}

/// Answers one request.
pub fn respond<B>(previewed: &Previewed, request: &Request<B>) -> HttpResponse {
    let mut answer = if matches!(*request.method(), Method::GET | Method::HEAD) {
        show(previewed, request)
    } else {
        // A form of a page was sent. The preview signs no user in.
        response::redirect_303("/")
    };
    headers::secure(answer.headers_mut(), "preview", false);
    answer
}

fn show<B>(previewed: &Previewed, request: &Request<B>) -> HttpResponse {
    let ShownTheme { theme, findings } = previewed.theme();
    let query = Parameters::parse(request.uri().query().unwrap_or_default().as_bytes()).unwrap_or_default();
    let locale = theme.locale(query.get("locale"), None);
    let state = format!("{} {}", theme.version(), findings.len());
    if let Some(mail) = request.uri().path().strip_prefix(MAILS) {
        return mail_part(&theme, mail, locale).unwrap_or_else(|| response::empty(StatusCode::NOT_FOUND));
    }
    match request.uri().path() {
        "/" => frame(&theme, &findings, query.get("page"), locale, &state),
        "/preview.css" => response::no_store(response::with_body(
            StatusCode::OK,
            "text/css; charset=utf-8",
            STYLE.into(),
        )),
        "/preview.js" => response::no_store(response::with_body(
            StatusCode::OK,
            "text/javascript; charset=utf-8",
            SCRIPT.into(),
        )),
        "/state" => response::no_store(response::text(StatusCode::OK, state)),
        path => match Route::recognise(path) {
            Some(Route::Asset(file)) => asset::find(&file),
            Some(Route::ClientLogo(_) | Route::FederationLogo(_)) => {
                sample_logo(previewed, request.headers())
            }
            Some(Route::ThemeFile(path)) => asset::find_of_theme(&previewed.themes, &path, request.headers()),
            _ => page(&theme, path, locale),
        }
        .unwrap_or_else(|| response::empty(StatusCode::NOT_FOUND)),
    }
}

/// The logo of the sample application and the sample provider.
fn sample_logo(previewed: &Previewed, headers: &HeaderMap) -> Option<HttpResponse> {
    let theme_set = previewed.themes.current();
    let theme = theme_set.default_theme();
    let path = format!("{}/{}/logo.svg", theme.name(), theme.version());
    asset::find_of_theme(&previewed.themes, &path, headers)
}

/// The address of a sample: its page and its state.
fn address(sample: &Sample) -> String {
    match sample.state {
        "" => format!("/pages/{}", sample.page.name()),
        state => format!("/pages/{}/{state}", sample.page.name()),
    }
}

fn frame(
    theme: &Theme,
    findings: &[Finding],
    shown: Option<&str>,
    locale: &Locale,
    state: &str,
) -> HttpResponse {
    let pages: Vec<_> = sample::all()
        .iter()
        .map(|sample| {
            let name = format!("{} {}", sample.page.name(), sample.state);
            (address(sample), name.trim().to_owned())
        })
        .chain(mails())
        .collect();
    let known = pages.iter().map(|(page, _)| page.as_str());
    let first = known.clone().next().unwrap_or_default();
    let locales: Vec<_> = theme
        .locales()
        .iter()
        .map(|locale| locale.tag().to_owned())
        .collect();
    let preview = Preview {
        theme: theme.name(),
        pages: &pages,
        locales: &locales,
        findings,
        shown: known
            .into_iter()
            .find(|page| shown == Some(*page))
            .unwrap_or(first),
        locale: locale.tag(),
        state,
    };
    let mut answer = response::no_store(response::html(StatusCode::OK, preview.render()));
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, FRAME_POLICY);
    answer
}

/// The addresses and names of all mails.
fn mails() -> impl Iterator<Item = (String, String)> {
    let kinds = MailKind::ALL.into_iter().map(MailKind::name);
    kinds.flat_map(|kind| {
        ["html", "txt"].map(|part| (format!("{MAILS}{kind}.{part}"), format!("mail {kind}.{part}")))
    })
}

/// A part of a mail, as `KIND.html` or `KIND.txt`.
fn mail_part(theme: &Theme, name: &str, locale: &Locale) -> Option<HttpResponse> {
    let (kind, part) = name.split_once('.')?;
    let mail = Mail::samples()
        .into_iter()
        .find(|mail| mail.kind.name() == kind)?;
    let drawn = theme.draw_mail(&mail, locale);
    let mut answer = match part {
        "html" => response::html(StatusCode::OK, drawn.html),
        "txt" => response::text(StatusCode::OK, format!("{}\n\n{}", drawn.subject, drawn.text)),
        _ => return None,
    };
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, MAIL_POLICY);
    Some(response::no_store(answer))
}

/// A page as visitors get it, except that the preview may show it in its frame.
fn page(theme: &Theme, path: &str, locale: &Locale) -> Option<HttpResponse> {
    let all = sample::all();
    let sample = all.iter().find(|sample| address(sample) == path)?;
    let mut answer = response::no_store(response::html(
        StatusCode::OK,
        sample.page.draw(theme, locale).html,
    ));
    let policy = theme
        .policy()
        .replace("frame-ancestors 'none'", "frame-ancestors 'self'");
    headers::page(answer.headers_mut(), &policy);
    Some(answer)
}
