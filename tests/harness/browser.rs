//! A browser: it keeps cookies, follows redirects as long as they stay on the service, and sends forms as
//! browsers send them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use super::html::Form;
use super::relying_party::AuthorizationRequest;
use super::reply::{Callback, Reply};
use super::server::ISSUER;
use super::wire::{Call, Wire};

/// More redirects than any way through the service has.
const MOST_REDIRECTS: usize = 5;

/// The browser of one person. A clone is the same browser.
#[derive(Clone)]
pub(crate) struct Browser {
    wire: Wire,
    username: String,
    password: String,
    address: Option<String>,
    cookies: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Browser {
    /// The same browser, whose person has this password.
    pub(crate) fn knowing(&self, password: &str) -> Self {
        Self {
            password: password.to_owned(),
            ..self.clone()
        }
    }

    pub(crate) fn new(wire: &Wire, username: &str, password: &str) -> Self {
        Self {
            wire: wire.clone(),
            username: username.to_owned(),
            password: password.to_owned(),
            address: None,
            cookies: Arc::default(),
        }
    }

    /// The same browser at another address, as the proxy in front of the service tells it.
    pub(crate) fn at(&self, address: &str) -> Self {
        Self {
            address: Some(address.to_owned()),
            ..self.clone()
        }
    }

    /// The same browser at another service on the host.
    pub(crate) fn visiting(&self, other: &Self) -> Self {
        Self {
            wire: other.wire.clone(),
            ..self.clone()
        }
    }

    /// Keeps the cookies under other names.
    pub(crate) fn rename_cookies(&self, new_name: impl Fn(&str) -> String) {
        let mut jar = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        *jar = std::mem::take(&mut *jar)
            .into_iter()
            .map(|(name, value)| (new_name(&name), value))
            .collect();
    }

    /// The value of a cookie.
    pub(crate) fn cookie(&self, name: &str) -> Option<String> {
        self.cookies
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    /// All cookies.
    pub(crate) fn cookies(&self) -> BTreeMap<String, String> {
        self.cookies
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets a cookie, as a thief of the cookie would.
    pub(crate) fn set_cookie(&self, name: &str, value: &str) {
        self.cookies
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), value.to_owned());
    }

    /// Requests an address and returns any answer, also a redirect.
    pub(crate) async fn fetch(&self, path: &str) -> Screen {
        self.send(Call::get(&self.wire, path).header("sec-fetch-site", "none"), path)
            .await
    }

    /// Goes to an address and on to wherever the service sends it, up to the client's door.
    pub(crate) async fn visit(&self, path: &str) -> Screen {
        self.fetch(path).await.follow().await
    }

    /// Sends a form from the page it stands on.
    pub(crate) async fn submit(&self, form: &Form) -> Screen {
        let call = self
            .form(form)
            .header("origin", form.origin)
            .header("sec-fetch-site", "same-origin");
        self.send(call, &form.action).await.follow().await
    }

    /// Sends a form with headers of one's own choice, and follows nowhere.
    pub(crate) async fn submit_with(&self, form: &Form, headers: &[(&str, &str)]) -> Screen {
        let call = headers
            .iter()
            .fold(self.form(form), |call, (name, value)| call.header(name, value));
        self.send(call, &form.action).await
    }

    fn form(&self, form: &Form) -> Call {
        assert_eq!(form.method, "post");
        Call::post(&self.wire, &form.action).fields(&form.fields)
    }

    async fn send(&self, call: Call, path: &str) -> Screen {
        let cookies = {
            let jar = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
            jar.iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join("; ")
        };
        let call = if cookies.is_empty() {
            call
        } else {
            call.header("cookie", &cookies)
        };
        let call = match &self.address {
            Some(address) => call.header("x-forwarded-for", address),
            None => call,
        };
        let reply = call.await;
        self.keep_cookies(&reply);
        Screen {
            reply,
            path: path.to_owned(),
            browser: self.clone(),
        }
    }

    /// Keeps cookies by the rules of RFC 6265bis for names that begin with `__Host-`.
    fn keep_cookies(&self, reply: &Reply) {
        for line in reply.cookies() {
            let mut parts = line.split("; ");
            let (name, value) = parts.next().unwrap().split_once('=').unwrap();
            let attributes: Vec<_> = parts.collect();
            assert!(name.starts_with("__Host-"), "{line}");
            for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
                assert!(attributes.contains(&attribute), "{line}");
            }
            assert!(
                !attributes.iter().any(|attribute| attribute.starts_with("Domain")),
                "{line}"
            );
            let mut jar = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
            if attributes.contains(&"Max-Age=0") {
                jar.remove(name);
            } else {
                jar.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// Lets a client send this browser to the service.
    pub(crate) async fn authorize(&self, request: &AuthorizationRequest) -> Screen {
        self.visit(&request.path()).await
    }
}

/// The page that a browser shows.
#[derive(Clone)]
pub(crate) struct Screen {
    reply: Reply,
    /// The address it came from.
    pub(crate) path: String,
    browser: Browser,
}

impl Deref for Screen {
    type Target = Reply;

    fn deref(&self) -> &Reply {
        &self.reply
    }
}

impl Screen {
    /// Follows redirects as long as they stay on the service.
    pub(crate) async fn follow(self) -> Self {
        let mut screen = self;
        for _ in 0..MOST_REDIRECTS {
            let next = screen.reply.header("location").and_then(|location| {
                let path = location.strip_prefix(ISSUER).unwrap_or(location);
                path.starts_with('/').then(|| path.to_owned())
            });
            let Some(path) = next else { return screen };
            screen = Box::pin(screen.browser.clone().fetch(&path)).await;
        }
        panic!("a redirect loop at {}", screen.path)
    }

    /// The browser that has it in front of it.
    pub(crate) fn browser(&self) -> &Browser {
        &self.browser
    }

    /// The path without its query.
    pub(crate) fn page(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// The form that asks for a name and a password.
    pub(crate) fn login_form(&self) -> Form {
        let form = self
            .forms()
            .into_iter()
            .find(|form| form.value("password").is_some());
        form.unwrap_or_else(|| panic!("no sign-in on {}", self.text()))
    }

    /// What a sign-in page shows, without what is different each time.
    pub(crate) fn shown(&self) -> String {
        let form = self.login_form();
        let mut text = self.text().to_owned();
        for changing in ["transaction", "csrf", "username"] {
            text = text.replace(form.value(changing).unwrap(), "");
        }
        // Each page has a challenge for passkeys of its own.
        if let Some((before, passkey)) = text.split_once("<form class=\"stack passkey\"") {
            let (_, after) = passkey.split_once("</form>").unwrap();
            text = format!("{before}{after}");
        }
        text
    }

    /// The form with this button.
    pub(crate) fn decision_form(&self, decision: &str) -> Form {
        let pressed = ("decision".to_owned(), decision.to_owned());
        let form = self
            .forms()
            .into_iter()
            .find(|form| form.buttons.contains(&pressed));
        form.unwrap_or_else(|| panic!("no button {decision} on {}", self.text()))
            .with("decision", decision)
    }

    /// Types a name and a password.
    pub(crate) async fn type_in(self, username: &str, password: &str) -> Self {
        let form = self
            .login_form()
            .with("username", username)
            .with("password", password);
        self.browser.submit(&form).await
    }

    /// Signs in as the person whose browser this is.
    pub(crate) async fn sign_in(self) -> Self {
        let (username, password) = (self.browser.username.clone(), self.browser.password.clone());
        self.type_in(&username, &password).await
    }

    /// The form of the account page with this value of `decision`, with the person's password if it asks for one.
    pub(crate) fn account_form(&self, decision: &str) -> Form {
        let mut forms = self.forms().into_iter();
        let found = forms.find(|form| form.value("decision") == Some(decision));
        let form = found.unwrap_or_else(|| panic!("no form {decision} on {}", self.text()));
        match form.value("current-password") {
            Some(_) => form.with("current-password", &self.browser.password),
            None => form,
        }
    }

    /// Presses the button that decides so.
    pub(crate) async fn decide(self, decision: &str) -> Self {
        let form = self.decision_form(decision);
        self.browser.submit(&form).await
    }

    /// Says yes on the consent page.
    pub(crate) async fn allow(self) -> Self {
        assert_eq!(self.page(), "/consent");
        self.decide("allow").await
    }

    /// Completes all steps until the client has its answer.
    pub(crate) async fn through(self) -> Callback {
        let mut screen = self;
        if screen.page() == "/login" {
            screen = screen.sign_in().await;
        }
        if screen.page() == "/consent" {
            screen = screen.allow().await;
        }
        screen.callback()
    }
}
