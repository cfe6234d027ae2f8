//! Reads the `id_token_hint` of a request to sign in or out.

use crate::flow::catalog::{Catalog, ID_TOKEN_TYP};
use crate::jose::alg::Algorithm;
use crate::jose::jwt::{self, ExpectedTyp};
use crate::oauth::openid::id_token::IdTokenHint;

/// Reads an ID token that this service issued, even if it has expired (OpenID Connect Core 3.1.2.1).
pub(super) fn read_hint(catalog: &Catalog, issuer: &str, token: &str) -> Option<IdTokenHint> {
    let verified = jwt::verify::<IdTokenHint>(
        token,
        ExpectedTyp::Exactly(ID_TOKEN_TYP),
        &Algorithm::SIGNING,
        |kid, _| catalog.verifier(kid?),
    );
    verified
        .ok()
        .filter(|hint| hint.iss == issuer && hint.azp == hint.aud)
}
