//! The device cookie: it names the users who have signed in in this browser before.
//!
//! A browser with this cookie gets a limit of its own for wrong passwords. So its user can sign in while others fail
//! under the same name or from the same network. It opens no session.
//!
//! It is sealed for the typed name, and contains a digest that identifies the password. So it is valid for one user and
//! one password, and cannot be made without the master key.

use std::time::Duration;

use ::http::header::HeaderValue;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::identity::{LoginName, User};

/// How long a browser stays known after its last sign-in.
const LIFETIME: Duration = Duration::from_hours(365 * 24);
const ID_LEN: usize = 16;
/// The most names of one cookie: families share a browser.
const MAX_NAMES: usize = 4;
/// Between the seals of several names.
const SEPARATOR: char = '.';

/// The cookie for a browser in which this user has just signed in under this name with a password. The seals of other
/// names stay in it, the latest first.
pub fn issue(context: &RequestContext, name: &LoginName, user: &User) -> Option<HeaderValue> {
    let (sealer, random) = (&context.app.core.sealer, &context.app.core.random);
    let until = context.now + LIFETIME;
    let mut plain = random.bytes::<ID_LEN>().to_vec();
    plain.extend_from_slice(&until.seconds().to_be_bytes());
    plain.extend_from_slice(&user.password.as_ref()?.fingerprint());
    let sealing_context = sealing_context(name);
    let newest = URL_SAFE_NO_PAD.encode(sealer.seal(&sealing_context, &plain, random));
    let is_others =
        |seal: &&str| seal.len() == newest.len() && open(context, &sealing_context, seal).is_none();
    let others = seals(context).filter(is_others).take(MAX_NAMES - 1);
    let value = others.fold(newest.clone(), |value, seal| format!("{value}{SEPARATOR}{seal}"));
    context.set_cookie(Cookie::Device, &value)
}

/// The id of this browser, if this user has signed in in it under this name with the present password.
pub fn device_id(context: &RequestContext, name: &LoginName, user: Option<&User>) -> Option<[u8; ID_LEN]> {
    let sealing_context = sealing_context(name);
    let plain = seals(context).find_map(|seal| open(context, &sealing_context, seal))?;
    let (id, rest) = plain.split_first_chunk::<ID_LEN>()?;
    let (until, fingerprint) = rest.split_first_chunk()?;
    let until = Timestamp::from_seconds(u64::from_be_bytes(*until));
    let is_current = context.now < until && !(until - LIFETIME).is_ahead_of(context.now);
    (is_current && user?.password.as_ref()?.fingerprint() == fingerprint).then_some(*id)
}

/// The seals that the browser presents.
fn seals(context: &RequestContext) -> impl Iterator<Item = &str> {
    let cookie = context.cookie(Cookie::Device).into_iter();
    cookie.flat_map(|value| value.split(SEPARATOR)).take(MAX_NAMES)
}

fn open(context: &RequestContext, sealing_context: &str, seal: &str) -> Option<Zeroizing<Vec<u8>>> {
    let sealed = URL_SAFE_NO_PAD.decode(seal).ok()?;
    context.app.core.sealer.open(sealing_context, &sealed).ok()
}

fn sealing_context(name: &LoginName) -> String {
    format!("known browser of {}", name.as_str())
}
