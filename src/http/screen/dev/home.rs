//! `/` and `/dev/callback`: the development server's own relying party. On other servers `/` redirects browsers to the
//! account page, and everything else is 404.

use ::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use url::Url;
use zeroize::Zeroizing;

use crate::app::DevSite;
use crate::clock::Timestamp;
use crate::flow::FlowError;
use crate::flow::authenticate_client::authenticate_client;
use crate::flow::token::authorization_code::redeem_code;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::request::Parameters;
use crate::http::response::{self, HttpResponse};
use crate::oauth::client_auth::{AuthenticatedClient, BasicCredentials, Credentials};
use crate::oauth::code::CodeExchange;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::pkce::challenge_of;
use crate::oauth::redirect_uri::with_query;
use crate::oauth::resource::Resources;
use crate::oauth::token::TokenResponse;
use crate::pages::dev::{DevClaim, DevToken, DevTokens, Home};
use crate::route::Route;

/// Offers to sign in with the example client. Without `--dev`, a browser is redirected to the account page. A program
/// is told what this service is: with a redirect, each probe would begin a sign-in.
pub fn respond(context: &RequestContext) -> HttpResponse {
    let Some(dev) = &context.app.dev else {
        if context.accepts_html() {
            return response::redirect_303(&context.app.path(&Route::Account));
        }
        let discovery = context.app.url(&Route::OpenidConfiguration);
        let line = format!("idsvc, an OAuth 2.1 and OpenID Connect service: {discovery}\n");
        return response::no_store(response::text(StatusCode::OK, line));
    };
    let [state, verifier] =
        [(); 2].map(|()| Zeroizing::new(URL_SAFE_NO_PAD.encode(context.app.core.random.bytes::<32>())));
    let challenge = challenge_of(&verifier);
    let parameters = [
        ("response_type", "code"),
        ("client_id", dev.client_id.as_str()),
        ("redirect_uri", &context.app.url(&Route::DevCallback)),
        ("scope", SCOPE),
        ("state", state.as_str()),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    if context.method() == Method::GET {
        dev.remember(state.to_string(), verifier.clone());
    }
    let endpoints = [
        ("Discovery", Route::OpenidConfiguration),
        ("Authorization endpoint", Route::Authorize),
        ("Device authorization endpoint", Route::DeviceAuthorization),
        ("Token endpoint", Route::Token),
        ("UserInfo endpoint", Route::UserInfo),
        ("Keys", Route::Jwks),
        ("Account page", Route::Account),
    ];
    let page = Home {
        sign_in_href: with_query(&context.app.path(&Route::Authorize), &parameters),
        device_href: context.app.path(&Route::DevDevice),
        mail_href: context
            .app
            .caught_mail
            .as_ref()
            .map(|_| context.app.path(&Route::DevMail)),
        user: dev.username.clone(),
        endpoints: endpoints
            .map(|(name, route)| (name.to_owned(), context.app.url(&route)))
            .to_vec(),
        commands: [("Discovery", Route::OpenidConfiguration), ("Keys", Route::Jwks)]
            .map(|(name, route)| (name.to_owned(), format!("{CURL} {}", context.app.url(&route))))
            .to_vec(),
    };
    context.page(StatusCode::OK, &page, None)
}

/// Receives the code, redeems it as the example client, and shows the tokens.
pub async fn callback(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let Some(dev) = &context.app.dev else {
        return Ok(context.not_found());
    };
    let exchange = exchange(context, dev, &context.query()?)?;
    let client = example_client(context, dev).await?;
    let core = &context.app.core;
    let tokens = redeem_code(core, &client, exchange, Resources::new(), None, context.arrival).await?;
    Ok(show(context, dev, &tokens))
}

fn exchange(
    context: &RequestContext,
    dev: &DevSite,
    parameters: &Parameters,
) -> Result<CodeExchange, Refusal> {
    if let Some(error) = parameters.get("error") {
        let description = parameters.get("error_description").unwrap_or_default();
        return Err(Refusal::naming(
            ErrorCode::AccessDenied,
            &format!("{error}: {description}"),
        ));
    }
    let verifier = parameters
        .get("state")
        .and_then(|state| dev.recall(state))
        .ok_or(Refusal::invalid_request("this sign-in is unknown; start again"))?;
    let code = parameters
        .get("code")
        .ok_or(Refusal::invalid_request("code is missing"))?;
    let callback = context.app.url(&Route::DevCallback);
    CodeExchange::parse(code, Some(&callback), Some(&verifier)).map_err(|_| crate::oauth::code::UNKNOWN)
}

/// Authenticates the example client.
pub(super) async fn example_client(
    context: &RequestContext,
    dev: &DevSite,
) -> Result<AuthenticatedClient, FlowError> {
    let basic = BasicCredentials {
        user: dev.client_id.clone(),
        password: dev.client_secret.clone(),
    };
    let credentials = Credentials::parse(Some(&basic), &Parameters::default(), None)?;
    let (core, endpoints) = (&context.app.core, [context.app.url(&Route::Token)]);
    let admit = |_: &Url| Ok(());
    authenticate_client(core, &credentials, &endpoints, admit, context.now).await
}

/// The scope that the example client asks for.
pub(super) const SCOPE: &str = "openid profile email phone address offline_access";
/// The development server has a certificate that it signed itself.
const CURL: &str = "curl --insecure";
/// The claims that are times (RFC 7519 section 4.1, OpenID Connect Core section 2).
const TIMES: [&str; 4] = ["auth_time", "exp", "iat", "nbf"];

pub(super) fn show(context: &RequestContext, dev: &DevSite, tokens: &TokenResponse) -> HttpResponse {
    let mut shown = vec![decoded("Access token", "ACCESS_TOKEN", &tokens.access_token)];
    let mut sign_out = vec![];
    if let Some(id_token) = tokens.id_token.as_deref() {
        shown.push(decoded("ID token", "ID_TOKEN", id_token));
        sign_out.push(("id_token_hint", id_token));
    }
    let mut response = serde_json::to_value(tokens).unwrap_or_default();
    let refresh_token = response.get("refresh_token").and_then(Value::as_str);
    shown.extend(refresh_token.map(|token| decoded("Refresh token", "REFRESH_TOKEN", token)));
    let has_refresh_token = refresh_token.is_some();
    if let Some(members) = response.as_object_mut() {
        // Each token is shown once.
        members.retain(|name, _| !name.ends_with("_token"));
    }
    let page = DevTokens {
        tokens: shown,
        response: claims(&response),
        commands: commands(context, dev, has_refresh_token),
        sign_out_href: with_query(&context.app.path(&Route::EndSession), &sign_out),
    };
    context.page(StatusCode::OK, &page, None)
}

/// Commands that do with the tokens what an application does.
fn commands(context: &RequestContext, dev: &DevSite, has_refresh_token: bool) -> Vec<(String, String)> {
    let url = |route: Route| context.app.url(&route);
    let client = format!("--user {}:{}", dev.client_id, &*dev.client_secret);
    let mut commands = vec![
        (
            "Ask who the user is",
            format!(
                "{CURL} --header \"Authorization: Bearer $ACCESS_TOKEN\" {}",
                url(Route::UserInfo)
            ),
        ),
        (
            "Ask whether the access token is valid",
            format!(
                "{CURL} {client} --data \"token=$ACCESS_TOKEN\" {}",
                url(Route::Introspect)
            ),
        ),
    ];
    if has_refresh_token {
        commands.extend([
            (
                "Get new tokens",
                format!(
                    "{CURL} {client} --data grant_type=refresh_token --data \"refresh_token=$REFRESH_TOKEN\" {}",
                    url(Route::Token)
                ),
            ),
            (
                "Revoke the refresh token",
                format!("{CURL} {client} --data \"token=$REFRESH_TOKEN\" {}", url(Route::Revoke)),
            ),
        ]);
    }
    let named = |(name, command): (&str, String)| (name.to_owned(), command);
    commands.into_iter().map(named).collect()
}

fn decoded(title: &str, variable: &str, token: &str) -> DevToken {
    let mut parts = token.split('.').map(|part| {
        let bytes = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
        claims(&serde_json::from_slice(&bytes).unwrap_or_default())
    });
    DevToken {
        title: title.to_owned(),
        variable: variable.to_owned(),
        raw: token.to_owned(),
        header: parts.next().unwrap_or_default(),
        claims: parts.next().unwrap_or_default(),
    }
}

/// The members of an object; none of any other value.
fn claims(value: &Value) -> Vec<DevClaim> {
    let members = value.as_object().into_iter().flatten();
    let claim = |(name, value): (&String, &Value)| {
        let seconds = value.as_u64().filter(|_| TIMES.contains(&name.as_str()));
        let time = seconds.map(|seconds| Timestamp::from_seconds(seconds).rfc3339());
        DevClaim {
            name: name.clone(),
            value: value
                .as_str()
                .map_or_else(|| value.to_string(), ToOwned::to_owned),
            time: time.map(|time| time.replace('T', " ").replace('Z', " UTC")),
        }
    };
    members.map(claim).collect()
}
