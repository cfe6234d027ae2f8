//! The rows of the account page: browsers, applications to open, and applications with access.

use maud::{Markup, html};
use minijinja::Value;

use super::consent::PageLink;
use super::moment::Moment;
use super::template_context;
use super::{Icon, Mark, ScopeLine, Text};

/// One browser in which the user is signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLine {
    /// The value of the button.
    pub id: String,
    /// The browser and its system, as far as they are known.
    pub device: Option<String>,
    /// The address of the last sign-in.
    pub address: Option<String>,
    /// When the user signed in last.
    pub signed_in_at: Moment,
    pub last_used_at: Moment,
    /// Whether it is the browser that shows the page.
    pub is_current: bool,
}

/// One application that the user may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherLine {
    pub mark: Mark,
    pub open: PageLink,
}

/// One application that may act for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationLine {
    /// The value of the button.
    pub id: String,
    pub name: String,
    /// The address of its logo, if it has one.
    pub logo: Option<String>,
    pub since: Moment,
    /// Where a sign-in at it begins, if it has such an address.
    pub open: Option<PageLink>,
    /// What it may do.
    pub scopes: Vec<ScopeLine>,
}

impl SessionLine {
    /// The button that ends this session, with its name.
    pub(super) fn sign_out(&self, text: &Text<'_>) -> Markup {
        html! {
            button.button.button-quiet.button-small type="submit" name="session" value=(self.id) { (text.sign_out) }
        }
    }

    pub(super) fn template_fields(&self, text: &Text<'_>) -> [(&'static str, Value); 8] {
        let or_nothing = |text: &Option<String>| Value::from(text.as_deref().unwrap_or_default());
        [
            ("id", Value::from(self.id.as_str())),
            ("device", or_nothing(&self.device)),
            ("address", or_nothing(&self.address)),
            ("signed_in_at", Value::from(self.signed_in_at.rfc3339.as_str())),
            ("signed_in_ago", Value::from(self.signed_in_at.ago(text))),
            ("last_used_at", Value::from(self.last_used_at.rfc3339.as_str())),
            ("last_used_ago", Value::from(self.last_used_at.ago(text))),
            ("is_current", Value::from(self.is_current)),
        ]
    }

    /// The kind of device, by the name of its system.
    fn icon(&self) -> Icon {
        let name = self.device.as_deref().unwrap_or_default();
        let is = |systems: &[&str]| systems.iter().any(|system| name.contains(system));
        if is(&["iPad"]) {
            Icon::Tablet
        } else if is(&["iOS", "Android"]) {
            Icon::Smartphone
        } else if is(&["Windows", "macOS", "Linux", "ChromeOS"]) {
            Icon::Desktop
        } else {
            Icon::Unknown
        }
    }

    pub(super) fn draw(&self, text: &Text<'_>) -> Markup {
        let name = self.device.as_deref().unwrap_or(text.account_unknown_device);
        let label = format!(
            "{}: {name}, {}",
            text.sign_out,
            self.address.as_deref().unwrap_or_default()
        );
        html! {
            li {
                (self.icon().draw())
                div {
                    p.row-name { bdi { (name) } @if self.is_current { " " span.badge { (text.account_this_browser) } } }
                    p.note.meta {
                        @if let Some(address) = &self.address { bdi { (address) } " " }
                        span { (text.account_signed_in) " " (self.signed_in_at.draw(text)) } " "
                        span { (text.account_last_used) " " (self.last_used_at.draw(text)) }
                    }
                }
                button.button.button-quiet.button-small type="submit" name="session" value=(self.id) aria-label=(label) {
                    (text.sign_out)
                }
            }
        }
    }
}

impl LauncherLine {
    pub(super) fn template_fields(&self) -> [(&'static str, Value); 4] {
        let logo = self.mark.logo.as_deref().unwrap_or_default();
        [
            ("name", Value::from(self.mark.name.as_str())),
            ("logo", Value::from(logo)),
            ("href", Value::from(self.open.href.as_str())),
            ("host", Value::from(self.open.host.as_str())),
        ]
    }

    pub(super) fn draw(&self, text: &Text<'_>) -> Markup {
        html! {
            li {
                (self.mark.draw())
                div {
                    p.row-name { bdi { (self.mark.name) } }
                    p.note { bdi { (self.open.host) } }
                }
                a.button.button-quiet.button-small href=(self.open.href) target="_blank" rel="noopener noreferrer"
                    aria-label={ (text.account_launch) ": " (self.mark.name) } data-optional { (text.account_launch) }
            }
        }
    }
}

impl ApplicationLine {
    fn mark(&self) -> Mark {
        Mark {
            name: self.name.clone(),
            logo: self.logo.clone(),
        }
    }

    pub(super) fn template_fields(&self, text: &Text<'_>) -> [(&'static str, Value); 7] {
        let open_href = self.open.as_ref().map(|link| link.href.as_str());
        let scopes = self.scopes.iter().map(|scope| scope.template_fields(text));
        [
            ("logo", Value::from(self.logo.as_deref().unwrap_or_default())),
            ("id", Value::from(self.id.as_str())),
            ("open_href", Value::from(open_href.unwrap_or_default())),
            ("name", Value::from(self.name.as_str())),
            ("since", Value::from(self.since.rfc3339.as_str())),
            ("since_ago", Value::from(self.since.ago(text))),
            ("scopes", template_context::entries(scopes)),
        ]
    }

    pub(super) fn draw(&self, text: &Text<'_>) -> Markup {
        html! {
            li {
                (self.mark().draw())
                div {
                    p.row-name { bdi { (self.name) } }
                    p.note { (text.account_since) " " (self.since.draw(text)) }
                    @if let Some(link) = &self.open { p.note { (link.draw(text.account_open)) } }
                    @if !self.scopes.is_empty() {
                        ul.plain {
                            @for scope in &self.scopes { li { bdi { (scope.text(text)) } } }
                        }
                    }
                }
                button.button.button-quiet.button-small type="submit" name="client" value=(self.id)
                    aria-label={ (text.account_disconnect) ": " (self.name) } { (text.account_disconnect) }
            }
        }
    }
}
