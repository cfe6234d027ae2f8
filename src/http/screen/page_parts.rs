//! What several pages show: a user, a client, a time, what a client may do.

use crate::clock::Timestamp;
use crate::http::context::RequestContext;
use crate::identity::User;
use crate::oauth::redirect_uri::page_host;
use crate::oauth::{Api, Client, Scope};
use crate::pages::consent::{ApplicationPages, PageLink, ScopeGroup, ScopeLine};
use crate::pages::text::PLACE;
use crate::pages::{Mark, Moment, Person};
use crate::route::Route;
use crate::text;

/// The user's names, as pages show them.
pub(super) fn person(user: &User) -> Person {
    Person {
        name: user.display_name().to_owned(),
        account_id: text::readable_address(&user.account_id).into_owned(),
    }
}

/// The client, as pages show it.
pub(super) fn mark(context: &RequestContext, client: &Client) -> Mark {
    let address = |version| {
        let logo = Route::ClientLogo(format!("{}.{version}", client.client_uuid));
        context.app.path(&logo)
    };
    Mark {
        name: client.display_name().to_owned(),
        logo: client.logo.as_ref().map(|logo| address(logo.version())),
    }
}

/// The service that has not verified the client, if the client registered itself.
pub(super) fn unverified_by(context: &RequestContext, client: &Client) -> Option<String> {
    let name = || context.with_page_style(None, |theme, _| theme.product_name().to_owned());
    client.registered_itself().then(name)
}

/// The client's pages about itself.
pub(super) fn application_pages(client: &Client) -> ApplicationPages {
    ApplicationPages {
        policy: client.policy_uri.as_deref().and_then(page_link),
        terms: client.tos_uri.as_deref().and_then(page_link),
    }
}

/// A link to an address that a client has registered.
pub(super) fn page_link(address: &str) -> Option<PageLink> {
    Some(PageLink {
        host: page_host(address)?,
        href: address.to_owned(),
    })
}

/// A time as pages show it now.
pub(super) fn moment(at: Timestamp, now: Timestamp) -> Moment {
    Moment {
        rfc3339: at.rfc3339(),
        seconds_ago: now.since(at).as_secs(),
    }
}

/// What a client may do, as pages show it. The line for the use of an API is left out beside lines of its scope values.
pub(super) fn scope_lines(
    context: &RequestContext,
    client: Option<&Client>,
    scope: &Scope,
) -> Vec<ScopeLine> {
    let catalog = context.app.core.catalog();
    let apis = catalog.apis();
    let is_said_by_values = |value: &str| {
        let of_api = |api: &Api| scope.iter().any(|other| api.scope.contains(other));
        apis.named(value).is_some_and(|api| of_api(api))
    };
    let shown = scope.iter().filter(|value| !is_said_by_values(value));
    shown.map(|value| scope_line(context, client, value)).collect()
}

/// A scope value, or the identifier of an API, as a page shows it. The description is the text of the client, else of
/// the API, else of the registered scope value, else of the theme in the language of pages.
fn scope_line(context: &RequestContext, client: Option<&Client>, scope: &str) -> ScopeLine {
    let catalog = context.app.core.catalog();
    let apis = catalog.apis();
    let own = client.and_then(|client| client.scope_texts.get(scope));
    let of_api = || apis.of_scope(scope)?.metadata.scope_texts.get(scope);
    let of_operator = || catalog.scopes().text(scope);
    let of_theme = || {
        context.with_page_style(None, |_, locale| match apis.named(scope) {
            Some(api) => Some(locale.text().scope_api.replacen(PLACE, api.display_name(), 1)),
            None => locale.scope(scope).map(ToOwned::to_owned),
        })
    };
    let tells_of_user =
        |scope: &str| Scope::is_built_in(scope) || catalog.scopes().claims_of(scope).next().is_some();
    let group = match apis.named(scope).or_else(|| apis.of_scope(scope)) {
        Some(api) => ScopeGroup::Api(api.display_name().to_owned()),
        None if scope == Scope::OFFLINE_ACCESS => ScopeGroup::Offline,
        None if tells_of_user(scope) => ScopeGroup::Identity,
        None => ScopeGroup::Other,
    };
    ScopeLine {
        group,
        name: scope.to_owned(),
        description: own
            .or_else(of_api)
            .or_else(of_operator)
            .cloned()
            .or_else(of_theme)
            .unwrap_or_default(),
    }
}
