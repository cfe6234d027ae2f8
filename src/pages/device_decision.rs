//! The page on which a person decides about a device (RFC 8628 section 3.3).

use maud::{Markup, html};

use super::consent::{ApplicationPages, draw_person, draw_scopes};
use super::form::{Person, sentence, transaction_fields};
use super::{Consent, Icon, Mark, Moment, Page, PageAddress, ScopeLine, TemplateContext, Text};

/// Asks whether a device may have what it asked for. A code can be sent to a person by a swindler (RFC 8628 section 5.4),
/// so the page says where and when the device asked. Afterwards it says what was decided.
#[derive(Clone, Debug)]
pub struct DeviceDecision {
    /// Where the form is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The application on the device.
    pub mark: Mark,
    /// The name of the service, whose operator has not verified the application; none if the operator registered it.
    pub unverified_by: Option<String>,
    /// What the application says about itself.
    pub pages: ApplicationPages,
    /// Who is signed in.
    pub user: Person,
    /// The page on which another user signs in.
    pub other_user: String,
    /// The code that the device shows.
    pub user_code: String,
    /// The address that the device asked from.
    pub address: String,
    /// The address of the browser, if it is another one.
    pub own_address: Option<String>,
    pub asked_at: Moment,
    /// The scopes that the application asks for.
    pub scopes: Vec<ScopeLine>,
    /// Whether the person has allowed the device; none before the decision.
    pub is_allowed: Option<bool>,
}

impl DeviceDecision {
    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let consent = Consent::sample();
        let first = Self {
            action: "/device".to_owned(),
            transaction: consent.transaction,
            csrf: consent.csrf,
            mark: consent.mark,
            unverified_by: None,
            pages: ApplicationPages::default(),
            user: consent.user,
            other_user: consent.other_user,
            user_code: "WDJB-MJHT".to_owned(),
            address: "192.0.2.7".to_owned(),
            own_address: None,
            asked_at: Moment {
                rfc3339: "2026-11-27T09:30:00Z".to_owned(),
                seconds_ago: 90,
            },
            scopes: consent.scopes,
            is_allowed: None,
        };
        let elsewhere = Self {
            unverified_by: Some("Acme".to_owned()),
            pages: ApplicationPages::sample(),
            own_address: Some("2001:db8::7".to_owned()),
            ..first.clone()
        };
        let decided = [true, false].map(|is_allowed| Self {
            is_allowed: Some(is_allowed),
            ..first.clone()
        });
        let mut samples = vec![first, elsewhere];
        samples.extend(decided);
        samples
    }

    fn lead<'a>(&self, text: &Text<'a>) -> &'a str {
        match self.is_allowed {
            None => text.device_compare,
            Some(true) => text.device_allowed_lead,
            Some(false) => text.device_denied_lead,
        }
    }

    /// Where and when the device asked.
    fn facts(&self, text: &Text<'_>) -> Markup {
        html! {
            dl.facts {
                dt { (text.device_address) }
                dd {
                    bdi dir="ltr" { (self.address) }
                    @if let Some(own) = &self.own_address { " " span.note { (sentence(text.device_other_address, own)) } }
                }
                dt { (text.device_asked) }
                dd { (self.asked_at.draw(text)) }
            }
        }
    }

    fn warning(&self, text: &Text<'_>) -> Markup {
        html! {
            p.note.host.unverified { (Icon::Warning.draw()) span { (text.device_warning) } }
            @if let Some(service) = &self.unverified_by {
                p.note.host.unverified { (Icon::Warning.draw()) span { (sentence(text.consent_unverified, service)) } }
            }
            (self.pages.draw(text))
        }
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        html! {
            form.stack method="post" action=(self.action) {
                (transaction_fields(&self.transaction, &self.csrf))
                div.pair {
                    button.button.button-quiet type="submit" name="decision" value="deny" { (text.deny) }
                    button.button type="submit" name="decision" value="allow" { (text.allow) }
                }
            }
        }
    }
}

impl Page for DeviceDecision {
    const NAME: &'static str = "device-decision";

    fn title(&self, text: &Text<'_>) -> String {
        let title = match self.is_allowed {
            None => text.device_decision_title,
            Some(true) => text.device_allowed_title,
            Some(false) => text.device_denied_title,
        };
        title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            (self.mark.draw())
            h1 { (self.title(text)) }
            p.lead { (self.lead(text)) }
            @if self.is_allowed.is_none() {
                p.user-code dir="ltr" { (self.user_code) }
                (self.warning(text))
                (self.facts(text))
                p { (sentence(text.consent_lead, &self.mark.name)) }
                (draw_scopes(&self.scopes, text))
                (draw_person(&self.user, &self.other_user, text))
                (self.form(text))
            }
        }
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        self.is_allowed.is_none().then(|| PageAddress {
            path: &self.action,
            parameters: vec![("transaction", &self.transaction)],
        })
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("mark", || self.mark.draw());
        context.part("warning", || self.warning(text));
        context.part("facts", || self.facts(text));
        context.part("scope_list", || draw_scopes(&self.scopes, text));
        context.part("person", || draw_person(&self.user, &self.other_user, text));
        context.part("form", || self.form(text));
        context.part("hidden", || transaction_fields(&self.transaction, &self.csrf));
        context.flag("is_decided", self.is_allowed.is_some());
        context.text("heading", &self.title(text));
        context.text("lead", self.lead(text));
        context.text("action", &self.action);
        context.text("transaction", &self.transaction);
        context.text("csrf", &self.csrf);
        context.text("client_name", &self.mark.name);
        context.text("user_code", &self.user_code);
        context.text("user", &self.user.name);
        context.text("account_id", &self.user.account_id);
        context.text("other_user_href", &self.other_user);
        context.text("address", &self.address);
        context.text("own_address", self.own_address.as_deref().unwrap_or_default());
        context.text("asked_at", &self.asked_at.rfc3339);
        context.text("asked_ago", &self.asked_at.ago(text));
        context.list(
            "scopes",
            self.scopes.iter().map(|scope| scope.template_fields(text)),
        );
    }
}
