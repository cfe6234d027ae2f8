//! The consent page.

use maud::{Markup, html};

use super::form::{Person, sentence, transaction_fields};
use super::{Icon, Mark, Page, PageAddress, TemplateContext, Text};

/// Asks whether an application may have what it asked for (OpenID Connect Core section 3.1.2.4).
#[derive(Clone, Debug)]
pub struct Consent {
    /// Where the form is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The application that asks.
    pub mark: Mark,
    /// The host of the application's metadata document, if its identifier is the address of one.
    pub document_host: Option<String>,
    /// Who gets access.
    pub redirect_target: RedirectTarget,
    /// The name of the service, whose operator has not verified the application; none if the operator registered it.
    pub unverified_by: Option<String>,
    /// What the application says about itself.
    pub pages: ApplicationPages,
    /// Who is signed in.
    pub user: Person,
    /// The page on which another user signs in.
    pub other_user: String,
    /// Whether the page is shown again because consent was given in another session, which does not count.
    pub is_repeated: bool,
    /// The scopes that the application asks for.
    pub scopes: Vec<ScopeLine>,
}

/// The pages of an application about itself, as its registration names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplicationPages {
    pub policy: Option<PageLink>,
    pub terms: Option<PageLink>,
}

/// A link to another site. Its text names the host, because the address comes from the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLink {
    pub href: String,
    pub host: String,
}

impl PageLink {
    /// The link with a text that names the host. It opens beside the page, whose form is not lost.
    pub(super) fn draw(&self, template: &str) -> Markup {
        html! { a href=(self.href) target="_blank" rel="noopener noreferrer" { (sentence(template, &self.host)) } }
    }
}

impl ApplicationPages {
    /// The links to the pages; nothing if there is none.
    pub(super) fn draw(&self, text: &Text<'_>) -> Markup {
        let policy = self.policy.as_ref().map(|link| link.draw(text.consent_policy));
        let terms = self.terms.as_ref().map(|link| link.draw(text.consent_terms));
        let links: Vec<_> = policy.into_iter().chain(terms).collect();
        html! {
            @if !links.is_empty() {
                p.note { @for link in &links { (link) " " } }
            }
        }
    }

    /// Pages of a made-up application.
    pub(super) fn sample() -> Self {
        let link = |path: &str| PageLink {
            href: format!("https://notes.example/{path}"),
            host: "notes.example".to_owned(),
        };
        Self {
            policy: Some(link("privacy")),
            terms: Some(link("terms")),
        }
    }
}

/// Where the browser is sent with the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectTarget {
    /// The host of the redirect URI.
    Host(String),
    /// An application on the user's device (RFC 8252 section 7).
    Device,
}

/// One scope, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeLine {
    /// The scope's name (RFC 6749 section 3.3).
    pub name: String,
    /// The text of the client or the theme; empty if neither has one. A standard scope then has a built-in text in each
    /// language.
    pub description: String,
    /// With which others it is shown.
    pub group: ScopeGroup,
}

/// What scopes have in common, in the order in which they are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeGroup {
    /// They tell who the user is.
    Identity,
    /// They give access to the API with this name.
    Api(String),
    /// They give access to something else.
    Other,
    /// They let the application act without the user.
    Offline,
}

impl ScopeGroup {
    /// The word that templates can compare.
    fn kind(&self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Api(_) => "api",
            Self::Other => "other",
            Self::Offline => "offline",
        }
    }

    /// The rank among the groups. APIs have the same one.
    fn rank(&self) -> u8 {
        match self {
            Self::Identity => 0,
            Self::Api(_) => 1,
            Self::Other => 2,
            Self::Offline => 3,
        }
    }

    fn heading(&self, text: &Text<'_>) -> Markup {
        html! {
            @match self {
                Self::Identity => (text.scopes_identity),
                Self::Api(name) => bdi { (name) },
                Self::Other => (text.scopes_other),
                Self::Offline => (text.scopes_offline),
            }
        }
    }
}

impl ScopeLine {
    pub(super) fn template_fields<'a>(&'a self, text: &Text<'a>) -> [(&'static str, &'a str); 3] {
        [
            ("name", self.name.as_str()),
            ("text", self.text(text)),
            ("group", self.group.kind()),
        ]
    }

    fn icon(&self) -> Icon {
        match self.name.as_str() {
            "openid" => Icon::Identity,
            "profile" => Icon::Account,
            "email" => Icon::Email,
            "phone" => Icon::Phone,
            "address" => Icon::Address,
            "offline_access" => Icon::Clock,
            "groups" => Icon::Groups,
            _ => Icon::Check,
        }
    }

    pub(super) fn text<'a>(&'a self, text: &Text<'a>) -> &'a str {
        if !self.description.is_empty() {
            return &self.description;
        }
        match self.name.as_str() {
            "openid" => text.scope_openid,
            "profile" => text.scope_profile,
            "email" => text.scope_email,
            "phone" => text.scope_phone,
            "address" => text.scope_address,
            "offline_access" => text.scope_offline_access,
            "groups" => text.scope_groups,
            other => other,
        }
    }
}

impl Consent {
    /// Why the page is shown again; empty the first time.
    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if self.is_repeated { p.problem role="alert" { (text.problem_consent_again) } }
        }
    }

    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let again = Self {
            is_repeated: true,
            ..Self::sample()
        };
        let host = Self {
            unverified_by: Some("Acme".to_owned()),
            pages: ApplicationPages::sample(),
            ..Self::sample()
        };
        let documented = Self {
            document_host: Some("notes.example".to_owned()),
            redirect_target: RedirectTarget::Device,
            ..host.clone()
        };
        vec![Self::sample(), again, host, documented]
    }

    /// Who is signed in, which host describes the application, and who gets access if the application registered itself.
    fn who(&self, text: &Text<'_>) -> Markup {
        html! {
            (self.user.in_sentence(text.consent_user))
            @if let Some(host) = &self.document_host { " " (sentence(text.consent_document, host)) }
            @if self.unverified_by.is_some() { " " (self.target(text)) }
        }
    }

    /// Who gets access.
    fn target(&self, text: &Text<'_>) -> Markup {
        match &self.redirect_target {
            RedirectTarget::Host(host) => sentence(text.consent_host, host),
            RedirectTarget::Device => html! { (text.consent_device) },
        }
    }

    /// Who gets access, and whether the operator knows the application.
    fn origin(&self, text: &Text<'_>) -> Markup {
        html! {
            p.note.host { (Icon::Unknown.draw()) span { (self.target(text)) } }
            @if let Some(host) = &self.document_host {
                p.note.host { (Icon::Address.draw()) span { (sentence(text.consent_document, host)) } }
            }
            @if let Some(service) = &self.unverified_by {
                p.note.host.unverified { (Icon::Warning.draw()) span { (sentence(text.consent_unverified, service)) } }
            }
            (self.pages.draw(text))
        }
    }

    /// The application and the user, as marks.
    fn marks(&self) -> Markup {
        html! { div.marks { (self.mark.draw()) (self.user.avatar()) } }
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

    /// The page with standard scopes and one of the operator's.
    pub fn sample() -> Self {
        let in_group = |name: &str, description: &str, group| ScopeLine {
            name: name.to_owned(),
            description: description.to_owned(),
            group,
        };
        let scope = |name, description| in_group(name, description, ScopeGroup::Identity);
        let notes = ScopeGroup::Api("Notes".to_owned());
        Self {
            action: "/consent".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            mark: Mark::sample(),
            document_host: None,
            redirect_target: RedirectTarget::Host("notes.example".to_owned()),
            unverified_by: None,
            pages: ApplicationPages::default(),
            user: Person::sample(),
            other_user: "/login?transaction=4lQ0bI2xQ9mN&other_user=1".to_owned(),
            is_repeated: false,
            scopes: vec![
                scope("openid", ""),
                scope("profile", ""),
                scope("email", ""),
                scope("phone", ""),
                scope("address", ""),
                in_group("offline_access", "", ScopeGroup::Offline),
                in_group("notes.write", "Write and share notes in your name", notes),
            ],
        }
    }
}

/// Who is signed in, and a way to sign in as another user.
pub(super) fn draw_person(user: &Person, other_user: &str, text: &Text<'_>) -> Markup {
    html! {
        div.person {
            (user.avatar())
            div {
                p.row-name { bdi { (user.name) } }
                @if user.account_id != user.name { p.note { bdi { (user.account_id) } } }
            }
            p.note { a href=(other_user) data-optional { (text.consent_not_you) } }
        }
    }
}

/// The scopes, group by group. A single group needs no heading.
pub(super) fn draw_scopes(scopes: &[ScopeLine], text: &Text<'_>) -> Markup {
    let mut groups: Vec<(&ScopeGroup, Vec<&ScopeLine>)> = Vec::new();
    for scope in scopes {
        match groups.iter_mut().find(|(group, _)| **group == scope.group) {
            Some((_, lines)) => lines.push(scope),
            None => groups.push((&scope.group, vec![scope])),
        }
    }
    groups.sort_by_key(|(group, _)| group.rank());
    html! {
        @for (group, lines) in &groups {
            @if groups.len() > 1 { h2.scope-group { (group.heading(text)) } }
            ul.scopes {
                @for scope in lines {
                    li { (scope.icon().draw()) bdi { (scope.text(text)) } }
                }
            }
        }
    }
}

impl Page for Consent {
    const NAME: &'static str = "consent";

    fn title(&self, text: &Text<'_>) -> String {
        text.consent_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            (self.marks())
            h1 { (text.consent_title) }
            p.lead { (sentence(text.consent_lead, &self.mark.name)) }
            (self.problem(text))
            (draw_scopes(&self.scopes, text))
            (self.origin(text))
            (draw_person(&self.user, &self.other_user, text))
            (self.form(text))
            p.note { (text.consent_trust) }
        }
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        Some(PageAddress {
            path: &self.action,
            parameters: vec![("transaction", &self.transaction)],
        })
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("lead", || sentence(text.consent_lead, &self.mark.name));
        context.part("problem", || self.problem(text));
        context.part("who", || self.who(text));
        context.part("scope_list", || draw_scopes(&self.scopes, text));
        context.part("form", || self.form(text));
        context.part("hidden", || transaction_fields(&self.transaction, &self.csrf));
        context.text("action", &self.action);
        context.text("transaction", &self.transaction);
        context.text("csrf", &self.csrf);
        context.text("client_name", &self.mark.name);
        context.text("client_logo", self.mark.logo.as_deref().unwrap_or_default());
        context.part("marks", || self.marks());
        context.part("origin", || self.origin(text));
        context.part("person", || draw_person(&self.user, &self.other_user, text));
        context.text("other_user_href", &self.other_user);
        context.text("user", &self.user.name);
        context.text("account_id", &self.user.account_id);
        context.list(
            "scopes",
            self.scopes.iter().map(|scope| scope.template_fields(text)),
        );
    }
}
