//! The cookie that says who has signed in in this browser before.
//!
//! It lets its user in while strangers fail at the sign-in page under the same name or from the same network.
//! It is sealed for the name that was typed and tells inside which password was right, so it says nothing to anybody else,
//! is good for nobody else and not beyond that password, and cannot be made without the master key: whoever knew the old
//! password, and kept as many cookies as they liked, guesses the new one like any stranger. It opens no session: it is a
//! place in another queue.

use std::time::Duration;

use ::http::header::HeaderValue;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{Digest, SHA256, digest};
use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::flow::login::password;
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::identity::LoginName;

/// How long a browser stays known after its last sign-in.
const REMEMBERED: Duration = Duration::from_hours(365 * 24);
const ID_LEN: usize = 16;
/// For how many names a browser is known at most: whose family shares one, too.
const MOST_NAMES: usize = 4;
/// Between the seals of several names.
const BETWEEN: char = '.';

/// The cookie for a browser in which somebody has just proven the password of this name. It goes on to be known for other
/// names, the last ones first.
pub fn cookie(context: &RequestContext, name: &LoginName) -> Option<HeaderValue> {
    let (sealer, random) = (&context.app.core.sealer, &context.app.core.random);
    let until = context.now + REMEMBERED;
    let mut plain = random.bytes::<ID_LEN>().to_vec();
    plain.extend_from_slice(&until.seconds().to_be_bytes());
    plain.extend_from_slice(mark_of_password(context, name)?.as_ref());
    let sealing_context = sealing_context(name);
    let newest = URL_SAFE_NO_PAD.encode(sealer.seal(&sealing_context, &plain, random));
    let is_others =
        |seal: &&str| seal.len() == newest.len() && open(context, &sealing_context, seal).is_none();
    let others = seals(context).filter(is_others).take(MOST_NAMES - 1);
    let value = others.fold(newest.clone(), |value, seal| format!("{value}{BETWEEN}{seal}"));
    Cookie::Known.set(&value, Some(REMEMBERED))
}

/// What names this browser, if somebody has proven the password of this name in it that is still in force.
pub fn browser(context: &RequestContext, name: &LoginName) -> Option<[u8; ID_LEN]> {
    let sealing_context = sealing_context(name);
    let plain = seals(context).find_map(|seal| open(context, &sealing_context, seal))?;
    let (id, rest) = plain.split_first_chunk::<ID_LEN>()?;
    let (until, mark) = rest.split_first_chunk()?;
    let until = Timestamp::from_seconds(u64::from_be_bytes(*until));
    let is_current = context.now < until && !(until - REMEMBERED).is_ahead_of(context.now);
    (is_current && mark_of_password(context, name)?.as_ref() == mark).then_some(*id)
}

/// The seals that the browser presents.
fn seals(context: &RequestContext) -> impl Iterator<Item = &str> {
    let cookie = context.cookie(Cookie::Known).into_iter();
    cookie.flat_map(|value| value.split(BETWEEN)).take(MOST_NAMES)
}

fn open(context: &RequestContext, sealing_context: &str, seal: &str) -> Option<Zeroizing<Vec<u8>>> {
    let sealed = URL_SAFE_NO_PAD.decode(seal).ok()?;
    context.app.core.sealer.open(sealing_context, &sealed).ok()
}

fn sealing_context(name: &LoginName) -> String {
    format!("known browser of {}", name.as_str())
}

/// What tells one password of a user from the next. None for somebody without one, and where the store cannot be read:
/// then no browser is known. A hash that is made anew at another cost keeps its salt, and so the browsers of its user stay
/// known.
fn mark_of_password(context: &RequestContext, name: &LoginName) -> Option<Digest> {
    let user = password::user_named(&context.app.core, name).ok()??;
    let password = user.password?;
    Some(match password.salt() {
        Some(salt) => digest(&SHA256, &salt),
        None => digest(&SHA256, password.as_str().as_bytes()),
    })
}
