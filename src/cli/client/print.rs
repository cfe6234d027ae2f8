//! Prints clients.

use std::collections::BTreeSet;

use crate::admin::SecretString;
use crate::admin::api::ListApis;
use crate::admin::client::{ClientView, ListClients};
use crate::cli::admin_connection::{AdminConnector, Opening};
use crate::cli::key::warn_of_new_keys;
use crate::cli::output::{CliError, Output, field_facts, moment, yes_no};
use crate::oauth::client::{AuthMethod, GrantType};
use crate::oauth::{ClientFields, Scope};
use crate::themes::folder::ThemeFolder;
use crate::themes::theme_set::Themes;

/// Runs `client list`. One record at a time is in memory.
pub(super) fn list(connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let connection = connector.connect(&Opening::Existing, output)?;
    let mut is_empty = true;
    connection.take_records(ListClients, "list", |records| {
        let views = records.inspect(|_| is_empty = false);
        if output.json {
            return output.array(views);
        }
        let rows = views.flat_map(|view| match view {
            Ok(view) => table_rows(&view).map(Ok).collect(),
            Err(error) => vec![Err(error)],
        });
        output.long_table(
            &[
                "CLIENT",
                "NAME",
                "KIND",
                "REGISTERED BY",
                "ENABLED",
                "REDIRECT URIS",
            ],
            rows,
        )
    })?;
    if is_empty {
        output.hint("no client yet: idsvc client add ID --redirect-uri URI");
    }
    Ok(())
}

fn table_rows(view: &ClientView) -> impl Iterator<Item = [String; 6]> {
    let mut uris = view.redirect_uris.iter().cloned();
    let first = [
        view.client_id.clone(),
        view.client_name.clone().unwrap_or_default(),
        if view.public { "public" } else { "confidential" }.to_owned(),
        view.origin.in_words().to_owned(),
        yes_no(view.enabled),
        uris.next().unwrap_or_default(),
    ];
    // Each further URI gets its own row, in the last column.
    let further = uris.map(|uri| std::array::from_fn(|at| if at == 5 { uri.clone() } else { String::new() }));
    std::iter::once(first).chain(further)
}

/// Whether a field has an effect on this client. The others are for grants or methods that it does not use.
fn applies(field: &str, view: &ClientView) -> bool {
    let may_use = |grant| view.grant_types.contains(&grant);
    let signs_people_in = may_use(GrantType::AuthorizationCode) || may_use(GrantType::DeviceCode);
    match field {
        "scope" | "default_scope" | "dpop_bound_access_tokens" => !view.grant_types.is_empty(),
        "scope_marker" => {
            signs_people_in || may_use(GrantType::JwtBearer) || may_use(GrantType::TokenExchange)
        }
        "consent" | "password_sign_in" | "acr" => signs_people_in,
        "pkce" | "require_pushed_authorization_requests" | "require_signed_request_object" => {
            may_use(GrantType::AuthorizationCode)
        }
        "backchannel_logout_session_required" => view.backchannel_logout_uri.is_some(),
        "token_exchange" => may_use(GrantType::TokenExchange),
        "embed_upstream_token" => view.public && !view.providers.is_empty(),
        "refresh_policy" => may_use(GrantType::RefreshToken),
        "id_token_on_refresh" => may_use(GrantType::RefreshToken) && view.scope.contains(Scope::OPENID),
        "id_token_claims" => signs_people_in && view.scope.contains(Scope::OPENID),
        "groups_claim" => view.scope.contains(Scope::GROUPS),
        "self_signed_tls_client_auth" => view.self_signed_tls_client_auth,
        "tls_client_certificate_bound_access_tokens" => view.tls_client_certificate_bound_access_tokens,
        "assertion_audience" => view.auth_methods.contains(&AuthMethod::PrivateKeyJwt),
        _ => true,
    }
}

/// Prints a client. `added` are the fields that were given for a new one.
pub(super) fn show(
    view: &ClientView,
    added: Option<&ClientFields>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if output.json {
        return output.document(view);
    }
    let secret_text = |secret: Option<&SecretString>| secret.map_or("", SecretString::reveal).to_owned();
    let kind = if view.public { "public" } else { "confidential" };
    let secrets = view.secrets.iter().map(|secret| match secret.expires_at {
        None => format!("since {}", moment(secret.created_at)),
        Some(end) => format!("until {}", moment(end)),
    });
    let methods = view.auth_methods.iter().map(|method| method.as_str());
    let mut facts = vec![
        ("client_id", view.client_id.clone()),
        ("client_secret", secret_text(view.client_secret.as_ref())),
        ("api_key", secret_text(view.api_key.as_ref())),
        ("client_uuid", view.client_uuid.to_string()),
        ("kind", kind.to_owned()),
        ("registered_by", view.origin.in_words().to_owned()),
        ("enabled", yes_no(view.enabled)),
        ("auth_methods", methods.collect::<Vec<_>>().join(" ")),
    ];
    let fields = field_facts(&view.metadata, ClientFields::FIELDS)?;
    let names = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let switch = |is_on| if is_on { "on" } else { "off" }.to_owned();
    facts.extend(fields.into_iter().filter_map(|(field, value)| match field {
        _ if !applies(field, view) => None,
        "logo" => Some((field, yes_no(view.has_logo))),
        "allowed_groups" => Some((field, names(&view.allowed_groups))),
        "scope_marker" => Some((field, switch(view.scope_marker))),
        "id_token_on_refresh" => Some((field, switch(view.id_token_on_refresh))),
        _ => Some((field, value)),
    }));
    facts.extend([
        ("secrets", secrets.collect::<Vec<_>>().join(", ")),
        ("created_at", moment(view.created_at)),
        ("updated_at", moment(view.updated_at)),
    ]);
    output.facts(&facts)?;
    introduce(view, added, output)
}

/// Prints the values for the application, and what is shown only this once.
fn introduce(
    view: &ClientView,
    added: Option<&ClientFields>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if added.is_some() {
        output.line("\nfor the application")?;
        let mut facts = vec![
            ("issuer", view.issuer.clone()),
            (
                "discovery",
                format!("{}/.well-known/openid-configuration", view.issuer),
            ),
            ("client_id", view.client_id.clone()),
        ];
        facts.extend(view.redirect_uris.iter().map(|uri| ("redirect_uri", uri.clone())));
        output.facts(&facts)?;
    }
    if view.client_secret.is_some() {
        output.hint("\nThe client_secret is shown this once; only its digest is kept.");
    }
    if view.api_key.is_some() {
        output.hint("\nThe api_key is shown this once; only its digest is kept.");
    }
    if let Some(fields) = added {
        advise(view, fields, output);
    }
    Ok(())
}

/// Warns if a client may act for itself, but all scope values that it may have are about users. A client with a secret
/// may have only `max_scope`.
pub(super) fn warn_of_scope(view: &ClientView, output: &mut Output<'_>) {
    let id = &view.client_id;
    let is_for_clients = |value: &str| !Scope::STANDARD.contains(&value) && !Scope::is_marker(value);
    let has_any = |scope: &Scope| scope.iter().any(is_for_clients);
    let uses_key = |method: &AuthMethod| *method == AuthMethod::PrivateKeyJwt || method.uses_certificate();
    let (is_of_use, flags) = if view.auth_methods.iter().any(uses_key) {
        (has_any(&view.scope) || !view.apis.is_empty(), "")
    } else {
        (
            view.max_scope.as_ref().is_some_and(has_any),
            " --allow-secret-credentials --max-scope NAME",
        )
    };
    if view.grant_types.contains(&GrantType::ClientCredentials) && !is_of_use {
        output.say(&format!(
            "warning: {id} may act for itself, but all scope values that it may have are about users. To allow a value of an API: idsvc client update {id} --add-api API --default-scope NAME{flags}"
        ));
    }
}

/// Warns of fields that have no effect, because the client may not refresh.
pub(super) fn warn_of_refresh(view: &ClientView, given: &ClientFields, output: &mut Output<'_>) {
    if view.grant_types.contains(&GrantType::RefreshToken) {
        return;
    }
    let is_given = [
        ("--refresh-policy", given.refresh_policy.is_some()),
        ("--refresh-token-lifetime", given.refresh_token_lifetime.is_some()),
        ("--id-token-on-refresh", given.id_token_on_refresh.is_some()),
    ];
    for (flag, _) in is_given.iter().filter(|(_, is_given)| *is_given) {
        let id = &view.client_id;
        output.say(&format!(
            "warning: {flag} has no effect, because {id} has no grant refresh_token: idsvc client update {id} --add-grant refresh_token"
        ));
    }
}

/// Prints advice about a new client, but none about a field that was given.
fn advise(view: &ClientView, given: &ClientFields, output: &mut Output<'_>) {
    let id = &view.client_id;
    let has_devices = view.grant_types.contains(&GrantType::Anonymous)
        && view.grant_types.contains(&GrantType::RefreshToken);
    if has_devices && given.refresh_policy.is_none() {
        output.hint(&format!(
            "A device loses its user if an answer is lost and it retries later than refresh.retry_window. If its network is unreliable: idsvc client update {id} --refresh-policy reuse"
        ));
    }
}

/// Warns if the theme of a client does not exist. The service would use the default theme.
pub(super) fn warn_of_theme(
    theme: Option<&str>,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let Some(theme) = theme.filter(|theme| !theme.is_empty()) else {
        return Ok(());
    };
    let settings = connector.settings(output)?;
    let folder = ThemeFolder::new(&settings.theme_dir, &settings.data_dir);
    let theme_set = Themes::open("", theme, Some(folder)).current();
    if !theme_set.names().contains(theme) {
        output.say(&format!(
            "warning: there is no theme {theme}, neither built in nor in {}",
            settings.theme_dir.display()
        ));
    }
    Ok(())
}

/// Says which scope values need an API, and which keys are new. `apis` are those that the client may name.
pub(super) fn warn_after_change(
    fields: &ClientFields,
    apis: &BTreeSet<String>,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) {
    let added = fields.edits.as_ref().and_then(|edits| edits.add.scope.as_deref());
    let scope = fields.scope.as_deref().or(added).unwrap_or_default();
    hint_at_apis(scope, apis, connector, output);
    warn_of_new_keys(&fields.signing_algs().collect::<Vec<_>>(), connector, output);
}

/// Tells which of these scope values belong to APIs that the client may not name.
fn hint_at_apis(
    scope: &[String],
    named: &BTreeSet<String>,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) {
    if scope.is_empty() {
        return;
    }
    let Ok(apis) = connector.call(ListApis, output) else {
        return;
    };
    for api in apis.iter().filter(|api| !api.open && !named.contains(&api.id)) {
        if let Some(value) = scope.iter().find(|value| api.scope.contains(value)) {
            let id = &api.id;
            output.hint(&format!(
                "The scope {value} belongs to API {id}: --add-api {id} lets the client name the API in resource."
            ));
        }
    }
}
