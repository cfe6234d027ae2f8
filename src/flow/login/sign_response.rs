//! Signs an authorization response: JWT Secured Authorization Response Mode (JARM).

use crate::clock::Timestamp;
use crate::flow::{Core, Failure};
use crate::oauth::authorize::AuthorizationResponse;

/// The response as it is sent. If the client asked for a signed one, its only parameter is a JWT with the others (JARM
/// section 2.3).
pub fn sign_response(
    core: &Core,
    response: AuthorizationResponse,
    now: Timestamp,
) -> Result<AuthorizationResponse, Failure> {
    let Some(signing) = &response.signing else {
        return Ok(response);
    };
    let claims = signing.claims(&response.parameters, now);
    let jwt = core
        .catalog()
        .id_token_encoder(signing.algorithm)?
        .encode(&claims)?;
    Ok(AuthorizationResponse {
        signing: None,
        parameters: vec![("response", jwt)],
        ..response
    })
}
