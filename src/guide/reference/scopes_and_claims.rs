//! Scope values, the claims that each releases, and the members of tokens and answers.

use super::{code, codes, meanings, table};
use crate::federation::provider::Provider;
use crate::oauth::access_token::{AccessTokenClaims, CommonClaims};
use crate::oauth::introspection::Active;
use crate::oauth::openid::claims::BY_SCOPE;
use crate::oauth::openid::id_token::IdTokenClaims;
use crate::oauth::openid::logout_token::LogoutTokenClaims;
use crate::oauth::scope::Scope;
use crate::oauth::token::TokenResponse;

const SCOPES: &str = "\
## Scopes

A client may ask for the scope values that `--scope` of `idsvc client add` named. Values that are not in this table have the meaning that your APIs give them, or release the claims that `idsvc scope show` lists.

Discovery lists the first six and every value that an enabled client may ask for in `scopes_supported`. So `groups` is there only if a client may ask for it. `claims_supported` always has `groups`, and the claims that your scope values release.

";

const TOKEN_RESPONSE: &str = "\
## Token response

`/oauth2/token` and `/v4/tokens` answer with a JSON object of these members.

";

const COMMON: &str = "It has these members too, which the access token repeats.\n\n";

const ACCESS_TOKEN: &str = "\
## Access token

An access token is a JWT (RFC 9068). Its header has `typ`, `alg` and `kid`. `--access-token-typ` and `--access-token-alg` of the API decide the first two, else those of the client, else `signing.access_token_typ` and `signing.access_token_alg`. Its claims are the members that the token response shares with it, and these.

";

const ID_TOKEN: &str = "\
## ID token

An ID token is a JWT (OpenID Connect Core section 2), signed with RS256 unless `--id-token-alg` of the client says otherwise. It has the claims of the scope. For a client with `--id-token-claims requested`, as one that registered itself, these claims are at UserInfo. Its ID token has a claim of the scope only if the parameter `claims` requests it (OpenID Connect Core section 5.5), or if the claim is `groups`. For an anonymous user and after a token exchange, it has all of them.

";

const LOGOUT_TOKEN: &str = "\
## Logout token

A logout token is a JWT with the `typ` `logout+jwt` (OpenID Connect Back-Channel Logout 1.0 section 2.4), signed with the algorithm of the client's ID tokens. The service posts it to `backchannel_logout_uri` of a client.

";

const USERINFO: &str = "\
## UserInfo

`/oauth2/userinfo` answers with `sub`, the claims of the scope, and those that the parameter `claims` asks for. A claim without a value is left out. A standard claim has the type of OpenID Connect Core section 5.1. Any other claim has the JSON type of its stored value. A registered scope value releases the claims that `idsvc scope show` lists.

";

const INTROSPECTION: &str = "\
## Introspection

`/oauth2/introspect` answers with these members for a token in force, and with `{\"active\": false}` for any other.

";

pub(super) fn text() -> String {
    let claims = BY_SCOPE.map(|(scope, claims)| [code(scope), codes(claims.iter().copied())]);
    let upstream = [(
        Provider::EMBEDDED_TOKEN,
        "The access token of the provider where the user signed in, while it lasts. The operator may rename the claim or leave it out.",
    )];
    let members = |members: &[(&'static str, &'static str)]| meanings(["member", "value"], members.to_vec());
    let access_token = [AccessTokenClaims::MEMBERS, &upstream].concat();
    [
        SCOPES,
        &meanings(["scope", "meaning"], Scope::MEANINGS),
        TOKEN_RESPONSE,
        &members(TokenResponse::MEMBERS),
        COMMON,
        &members(CommonClaims::MEMBERS),
        ACCESS_TOKEN,
        &members(&access_token),
        ID_TOKEN,
        &members(IdTokenClaims::MEMBERS),
        LOGOUT_TOKEN,
        &members(LogoutTokenClaims::MEMBERS),
        USERINFO,
        &table(["scope", "claims"], claims),
        INTROSPECTION,
        &members(Active::MEMBERS),
    ]
    .concat()
}
