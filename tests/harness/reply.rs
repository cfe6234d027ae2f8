//! Answers, and the properties that all answers of a kind share.

use bytes::Bytes;
use http::HeaderMap;
use http::response::Parts;
use idsvc::flow::login::transaction::LoginTransactionError;
use idsvc::oauth::Refusal;
use idsvc::pages::text::EN;
use serde_json::Value;

use super::html::{self, Form};
use super::parse_form;
use super::server::ISSUER;
use super::token::Tokens;

/// An answer of the service.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    /// Reads an answer, and checks the properties that every answer must have.
    pub(crate) fn new(parts: Parts, body: Bytes, is_tls: bool) -> Self {
        let reply = Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        };
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert!(reply.header("x-request-id").is_some_and(|id| !id.is_empty()));
        assert_eq!(reply.header("strict-transport-security").is_some(), is_tls);
        reply
    }

    /// A header's value, when it is there once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} is there more than once");
        value.to_str().ok()
    }

    /// The `Set-Cookie` lines.
    pub(crate) fn cookies(&self) -> Vec<&str> {
        self.headers
            .get_all("set-cookie")
            .iter()
            .map(|line| line.to_str().unwrap())
            .collect()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body of an answer that says it is JSON.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(
            self.header("content-type"),
            Some("application/json"),
            "{}",
            self.text()
        );
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Whether nobody may keep the answer (RFC 6749 section 5.1).
    pub(crate) fn is_not_stored(&self) -> bool {
        self.header("cache-control") == Some("no-store")
    }

    /// The successful answer of the token endpoint.
    pub(crate) fn tokens(&self) -> Tokens {
        assert_eq!(self.status, 200, "{}", self.text());
        assert!(self.is_not_stored());
        assert_eq!(self.header("pragma"), Some("no-cache"));
        Tokens(self.json())
    }

    /// A refusal of RFC 6749 section 5.2 as one line: status, code, description. Its form is checked. A test whose request
    /// has one fault compares the code, with [`Self::error`].
    pub(crate) fn refusal(&self) -> String {
        assert!(self.is_not_stored(), "{self:?}");
        let json = self.json();
        let members: Vec<_> = json.as_object().unwrap().keys().collect();
        assert_eq!(members, ["error", "error_description"]);
        let (error, description) = (text(&json["error"]), text(&json["error_description"]));
        assert!(is_description(description), "{description}");
        let is_limit = error == "temporarily_unavailable" && self.status == 429;
        assert_eq!(
            self.status,
            if is_limit { 429 } else { status_of(error) },
            "{error}"
        );
        format!("{} {error}: {description}", self.status)
    }

    /// The code of a refusal.
    pub(crate) fn error(&self) -> String {
        let line = self.refusal();
        line.split([' ', ':']).nth(1).unwrap().to_owned()
    }

    /// Where the answer sends the browser.
    pub(crate) fn location(&self) -> &str {
        assert_eq!(self.status, 303, "{}", self.text());
        assert!(self.is_not_stored());
        self.header("location").unwrap()
    }

    /// The answer to an authorization request, in the query of a redirect to `redirect_uri`.
    pub(crate) fn callback(&self) -> Callback {
        let location = self.location();
        assert!(
            !location.starts_with('/') && !location.starts_with(ISSUER),
            "not at the client yet: {location}"
        );
        assert!(!location.contains('#'));
        let (uri, query) = location.split_once('?').unwrap();
        Callback {
            uri: uri.to_owned(),
            parameters: parse_form(query),
        }
    }

    /// The answer to an authorization request in a form that the browser posts (OAuth 2.0 Form Post Response Mode).
    pub(crate) fn posted_callback(&self) -> Callback {
        assert_eq!((self.status, self.header("location")), (200, None));
        assert!(self.is_not_stored());
        let forms = self.forms();
        let [form] = forms.as_slice() else {
            panic!("not one form: {}", self.text())
        };
        assert_eq!(
            (form.method.as_str(), form.buttons.as_slice()),
            ("post", [].as_slice())
        );
        Callback {
            uri: form.action.clone(),
            parameters: form.fields.clone(),
        }
    }

    /// The forms of a page that change something. A browser that may send no referrer hides the origin too (Fetch standard, section 3.2).
    pub(crate) fn forms(&self) -> Vec<Form> {
        let is_hidden = self.header("referrer-policy") == Some("no-referrer");
        let mut forms = html::forms(self.text(), if is_hidden { "null" } else { ISSUER });
        forms.retain(|form| form.method == "post");
        forms
    }

    /// The heading of a page, which every page has once.
    pub(crate) fn heading(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("text/html; charset=utf-8"),
            "{self:?}"
        );
        assert!(self.is_not_stored());
        html::text_of(self.text(), "h1")
    }

    /// The page for a request that cannot be answered: its status and what it says to developers (RFC 6749 section
    /// 4.1.2.1).
    pub(crate) fn error_page(&self) -> String {
        assert_eq!(self.header("location"), None);
        let details = self.text().split_once("<details>").unwrap().1;
        let said = html::text_of(details, "p");
        let of_a_sign_in = [
            LoginTransactionError::Expired,
            LoginTransactionError::OtherBrowser,
        ];
        let headings: &[&str] = if of_a_sign_in.iter().any(|error| error.to_string() == said) {
            &[EN.error_stale, EN.error_cookies]
        } else {
            &[EN.error_request]
        };
        assert!(headings.contains(&&*self.heading()), "{}", self.heading());
        format!("{} {said}", self.status)
    }

    /// The status of that page.
    pub(crate) fn error_page_status(&self) -> u16 {
        self.error_page();
        self.status
    }

    /// The first challenge of a protected resource with the status (RFC 6750 section 3), without its `error_description`.
    /// The form of that is checked.
    pub(crate) fn challenge(&self) -> String {
        assert!(self.is_not_stored());
        let first = self.headers.get("www-authenticate");
        let challenge = first.map_or("no challenge", |line| line.to_str().unwrap());
        let Some((before, rest)) = challenge.split_once(", error_description=\"") else {
            assert!(!challenge.contains("error="), "{challenge}");
            return format!("{} {challenge}", self.status);
        };
        let (description, after) = rest.split_once('"').unwrap();
        assert!(is_description(description), "{challenge}");
        format!("{} {before}{after}", self.status)
    }
}

/// The text of a JSON string.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no string"))
}

/// The line of [`Reply::refusal`] for a refusal of the service, where several refusals share its code.
pub(crate) fn line_of(refusal: &Refusal) -> String {
    let code = refusal.code.as_str();
    format!("{} {code}: {}", status_of(code), refusal.description)
}

/// The status of a refusal with this code (RFC 6749 section 5.2, RFC 6750 section 3.1).
fn status_of(code: &str) -> u16 {
    match code {
        "invalid_client" | "invalid_token" => 401,
        "temporarily_unavailable" => 503,
        _ => 400,
    }
}

/// Whether it is a sentence of the characters that an `error_description` may contain (RFC 6749 sections 4.1.2.1 and 5.2).
fn is_description(text: &str) -> bool {
    let is_char = |byte| matches!(byte, 0x20 | 0x21 | 0x23..=0x5B | 0x5D..=0x7E);
    !text.is_empty() && text.bytes().all(is_char)
}

/// An answer to an authorization request, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callback {
    /// The address without its query.
    pub(crate) uri: String,
    /// The parameters of the query or form, in order.
    pub(crate) parameters: Vec<(String, String)>,
}

impl Callback {
    /// A parameter's value; it must not be there twice.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.parameters.iter().filter(|(known, _)| known == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there more than once");
        value
    }

    /// The names of the parameters in order.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.parameters.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The code (RFC 6749 section 4.1.2).
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.get("error"), None, "{self:?}");
        self.get("code").unwrap().to_owned()
    }

    /// The refusal (RFC 6749 section 4.1.2.1) as one line. Its form is checked, and `iss` (RFC 9207 section 2).
    pub(crate) fn refusal(&self) -> String {
        let ours = ["error", "error_description", "state", "iss"];
        assert!(self.names().iter().all(|name| ours.contains(name)), "{self:?}");
        assert_eq!(self.get("iss"), Some(ISSUER));
        let (error, description) = (self.get("error").unwrap(), self.get("error_description").unwrap());
        assert!(is_description(description), "{description}");
        format!("{error}: {description}")
    }

    /// The code of the refusal.
    pub(crate) fn error(&self) -> String {
        self.refusal().split(':').next().unwrap().to_owned()
    }
}
