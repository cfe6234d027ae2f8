//! Checks the addresses of a client.

use std::collections::BTreeSet;

use crate::flow::logout_notice::logout_address;
use crate::oauth::client::{Client, GrantType};
use crate::oauth::redirect_uri::{
    LOGIN_PARAMETERS, LOGOUT_PARAMETERS, RESPONSE_PARAMETERS, RedirectUriProblem, check_query,
    check_registrable, is_origin, page_host,
};
use crate::oauth::registration::RegistrationPolicy;
use crate::oauth::{Fault, FaultCode};

const MOST_URIS: usize = 100;
const MAX_URI_BYTES: usize = 2048;

type AddressList = fn(&Client) -> &Vec<String>;
type AddressCheck<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// Checks redirect URIs and origins. An address that an earlier release accepted is not refused when something else
/// is changed, or when the same file is applied again.
///
/// `schemes` decides about the private-use schemes of a client that describes itself.
pub(super) fn check_addresses(
    before: Option<&Client>,
    client: &Client,
    schemes: Option<&RegistrationPolicy>,
    faults: &mut Vec<Fault>,
) {
    let allows_private = client.may_have_private_schemes();
    let before = before.filter(|before| {
        let loses_schemes = before.may_have_private_schemes() && !allows_private;
        before.is_public() == client.is_public() && !loses_schemes
    });
    let check_redirect = |uri: &str, added| {
        let is_listed = |()| match schemes {
            Some(schemes) if allows_private && !schemes.allows_scheme(uri) => {
                Err(RedirectUriProblem::Unlisted)
            }
            _ => check_query(uri, added),
        };
        let checked = check_registrable(uri, allows_private).and_then(is_listed);
        checked.map_err(|error| error.to_string())
    };
    let check_origin = |origin: &str| {
        let rule = "an origin is scheme, host and port in lower-case letters, without a wildcard, as in \
                    https://app.example or capacitor://localhost";
        is_origin(origin).then_some(()).ok_or_else(|| rule.to_owned())
    };
    let lists: [(&str, &str, AddressList, AddressCheck<'_>); 3] = [
        (
            "redirect_uris",
            "redirect URI",
            |client| &client.redirect_uris,
            &|uri| check_redirect(uri, RESPONSE_PARAMETERS),
        ),
        (
            "post_logout_redirect_uris",
            "post-logout redirect URI",
            |client| &client.post_logout_redirect_uris,
            &|uri| check_redirect(uri, LOGOUT_PARAMETERS),
        ),
        (
            "cors_origins",
            "origin",
            |client| &client.cors_origins,
            &check_origin,
        ),
    ];
    for (field, name, list, check) in lists {
        if list(client).len() > MOST_URIS {
            let detail = format!("there are more than {MOST_URIS} addresses of the kind {name}");
            faults.push(FaultCode::TooMany.at([field], detail));
        }
        let is_new = |address: &&String| before.is_none_or(|before| !list(before).contains(*address));
        for address in list(client).iter().filter(is_new) {
            if address.len() > MAX_URI_BYTES {
                let detail = format!("{name} is longer than {MAX_URI_BYTES} bytes");
                faults.push(FaultCode::TooLong.at([field], detail));
            } else if let Err(rule) = check(address) {
                faults.push(FaultCode::Invalid.at([field], format!("{name} {address:?}: {rule}")));
            }
        }
    }
}

/// Checks the address for back-channel logout. A session names the client only after a sign-in by the browser.
pub(super) fn check_logout_uri(client: &Client, faults: &mut Vec<Fault>) {
    let Some(uri) = &client.backchannel_logout_uri else {
        return;
    };
    let field = ["backchannel_logout_uri"];
    if logout_address(client).is_none() || uri.len() > MAX_URI_BYTES {
        let more = if client.registered_itself() {
            let hosts: BTreeSet<_> = client
                .redirect_uris
                .iter()
                .filter_map(|uri| page_host(uri))
                .collect();
            let hosts: Vec<_> = hosts.into_iter().collect();
            format!(
                ", with the host of a redirect URI of this client: {}",
                hosts.join(", ")
            )
        } else {
            "; a confidential client may have http on a loopback address".to_owned()
        };
        let detail = format!(
            "back-channel logout URI {uri:?} is not an https address without fragment, of at most {MAX_URI_BYTES} bytes{more}"
        );
        faults.push(FaultCode::Invalid.at(field, detail));
    }
    if !client.may_use(GrantType::AuthorizationCode) {
        let detail = "a back-channel logout URI is for the grant authorization_code";
        faults.push(FaultCode::NotAllowed.at(field, detail));
    }
}

/// Checks the addresses that pages of the service link to.
pub(super) fn check_links(client: &Client, faults: &mut Vec<Fault>) {
    for (field, uri) in [
        ("policy_uri", &client.policy_uri),
        ("tos_uri", &client.tos_uri),
        ("initiate_login_uri", &client.initiate_login_uri),
        ("home_uri", &client.home_uri),
    ] {
        let Some(uri) = uri else { continue };
        if page_host(uri).is_none() || uri.len() > MAX_URI_BYTES {
            let detail = format!(
                "{field} {uri:?}: it has to begin with https://, name a host, and have at most {MAX_URI_BYTES} bytes. http:// is for localhost, 127.0.0.1 and [::1] only"
            );
            faults.push(FaultCode::Invalid.at([field], detail));
        }
    }
    if client.home_uri.is_some() && client.registered_itself() {
        let detail = "a client that registered itself has chosen its own name, so people cannot open it from the account page";
        faults.push(FaultCode::NotAllowed.at(["home_uri"], detail));
    }
    let Some(uri) = &client.initiate_login_uri else {
        return;
    };
    let field = ["initiate_login_uri"];
    if uri.contains('#') {
        let detail = format!("initiate_login_uri {uri:?} has a fragment, but gets parameters");
        faults.push(FaultCode::Invalid.at(field, detail));
    }
    if let Err(problem) = check_query(uri, LOGIN_PARAMETERS) {
        let detail = format!("initiate_login_uri {uri:?}: {problem}");
        faults.push(FaultCode::Invalid.at(field, detail));
    }
}
