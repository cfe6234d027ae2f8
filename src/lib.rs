//! idsvc: an OAuth 2.1 and OpenID Connect identity and token service in one executable.
//!
//! This page is the architecture document: what lives where, what always holds, and two requests followed
//! from the socket to the disk and back. `tests/it/tidy.rs` holds every room to the table below.
//!
//! # The house
//!
//! A request crosses each layer once going down and once coming back. Bytes are parsed into types at the edge and are
//! not checked again. Rules are plain functions of state, request and time. Every change of state is one transaction.
//!
//! A token request goes through `net/connection.rs`, [`http::respond`], `http/endpoint/token.rs`, the file of its grant
//! in `flow/token/`, and [`store`]. What it answers is made in [`flow::token::issue`].
//!
//! | room | what it holds | may import |
//! |---|---|---|
//! | [`clock`] | the only reader of time | nothing |
//! | [`random`] | the only reader of entropy | nothing |
//! | [`hex`] | bytes as hexadecimal digits | nothing |
//! | [`text`] | the one form of a name, an address, a password or a code, before it is compared | nothing |
//! | [`secret`] | secrets in the clear and their digests, as different types | random |
//! | [`seal`] | encryption at rest under the master key | hex, random |
//! | [`age`] | files encrypted to recipients or with a passphrase, as the tool age does | random, text |
//! | [`described`] | enums and records whose doc comments are text at run time too | nothing |
//! | [`background`] | threads for long work, which requests come before | nothing |
//! | [`route`] | every path of the service, once | described |
//! | [`files`] | files and folders, opened without following links; who owns them | nothing |
//! | [`limit`] | rate limits and concurrency limits by address and by name, bounded in memory | clock, random |
//! | [`mail`] | mails as data, and the connection to the mail server | clock, net, text |
//! | [`jose`] | JWS, JWT, JWK and signing keys on ring | clock, random |
//! | [`password`] | password hashes, the pool that computes them, hashes of other systems, strength | limit, text |
//! | [`webauthn`] | registrations and assertions of passkeys, verified | jose |
//! | [`identity`] | users, sessions, consents | clock, password, secret, text |
//! | [`oauth`] | the RFCs as types and pure decisions | clock, described, identity, jose, password, secret, text, webauthn |
//! | [`federation`] | upstream providers: whom they vouch for, what they publish; what clients publish: metadata and keys | clock, identity, jose, net, oauth, random, route, text |
//! | [`store`] | typed tables on a byte-level waist; redb behind it | clock, federation, files, identity, jose, oauth, random, text |
//! | [`observe`] | the log, the audit events, the metrics | clock, config, described, files |
//! | [`data_dir`] | the files of one installation: lock, master key, free room, atomic writes, restore | admin, clock, control, files, flow, hex, random, seal, store |
//! | [`flow`] | the use cases: one verb a file, one transaction each | clock, federation, identity, jose, limit, mail, oauth, observe, password, random, route, seal, secret, store, text, webauthn |
//! | [`admin`] | the operations of administration, one file and one line in a list each | clock, federation, flow, identity, jose, limit, mail, oauth, observe, password, random, secret, store, text |
//! | [`pages`] | what people see: one struct a page, drawn with maud from what `http/screen` hands it; texts | hex |
//! | [`themes`] | what a theme is, and the themes of one installation | files, hex, oauth, pages |
//! | [`net`] | sockets, TLS, certificates by ACME, HTTP connections, draining; the one HTTPS client | files, limit, random |
//! | [`app`] | the running service, built once | data_dir, flow, hex, limit, mail, oauth, observe, pages, route, themes |
//! | [`http`] | endpoints for programs, screens for people | app, clock, federation, flow, identity, limit, mail, net, oauth, observe, pages, password, route, secret, store, text, themes, webauthn |
//! | [`config`] | flag before environment before file before default | age, identity, jose, limit, mail, net, oauth, password, store, text, themes |
//! | [`control`] | administration of a running service over a unix socket | admin, background, files |
//! | [`guide`] | the guide that `idsvc help` prints: handwritten pages, and reference pages made from the code | config, federation, http, oauth, observe, route |
//! | [`server`] | what `serve` does: listen, answer, housekeeping, mails, backups, certificates, shutdown | admin, age, app, background, clock, config, control, data_dir, files, flow, http, mail, net, oauth, observe, pages, password, random, route, store, themes |
//! | [`cli`] | the commands: parsing and printing; composes everything | admin, age, background, clock, config, control, data_dir, described, federation, files, flow, guide, http, identity, jose, mail, net, oauth, observe, pages, password, random, route, seal, server, store, text, themes |
//!
//! No two rooms import each other, not by way of others either. Two imports may surprise. [`federation`] imports `net`,
//! because [`federation::Upstreams`] fetches and caches what providers and clients publish; the rules beside it stay pure. `net`
//! imports [`limit`], so that one piece counts the connections, bodies and passwords of an address.
//!
//! # What always holds
//!
//! 1. **A refusal is an answer, a failure is an error.** The closure of a write returns one result, whose error is
//!    [`store::TxError`]: *refused* commits, so revoking a family when a token is replayed needs no special path, and
//!    *failed* rolls back. [`store::Store::write`] is the only place that tells them apart. Flows return the same with
//!    [`flow::FlowError`], endpoints and screens with [`http::error::HttpError`], so `?` leaves each of them.
//! 2. **An answer with a token in it is sent after the commit that allows it.** A write is one closure.
//!    The store commits everything that waits together. The closure may run twice, so it reads neither clock nor
//!    entropy: both are drawn before it.
//! 3. **Nothing slow happens inside a transaction.** Passwords are hashed on threads of their own, tokens are
//!    signed after the commit. Commands run on threads that may block, and what concerns all users goes in pages and
//!    batches of a hundred. Removing a client or a provider removes its row. Grants record which client and which
//!    provider they are of, so that no later one inherits them, and the sweep removes them.
//! 4. **Who presents something is settled before anything is consumed.** A code or refresh token in another
//!    client's hands changes nothing.
//! 5. **Addresses come from the configuration.** Neither `Host` nor a forwarded header makes a URL. A redirect
//!    URI matches by equality; a client's [`oauth::redirect_uri::MatchedRedirectUri`] exists only after that match, and before
//!    it exists no error is sent anywhere but to the person at the browser.
//! 6. **Of a secret, only the digest is kept**, and neither type can be printed. Refresh tokens are not kept at all. Two
//!    secrets are kept sealed: the code of a link, and a mail with its link until it is sent.
//! 7. **One policy for all grants.** [`flow::grant_policy`] decides for every grant whether this subject may get a token for this
//!    client now, inside the transaction that issues; introspection and `UserInfo` ask it too.
//!
//! # A sign-in
//!
//! `net` hands hyper's request to [`http::respond`], which names the [`route::Route`] and calls
//! `http::endpoint::authorize`. [`flow::login::authorize`] lets [`flow::client_lookup`] find the client: in the in-memory
//! [`flow::Catalog`], or by its metadata document. It matches the redirect URI, parses the rest into an
//! [`oauth::authorize::AuthorizationRequest`], reads the session from a snapshot and asks
//! [`oauth::login::ResolvedPurpose::next_step`]. Nobody is signed in: a login transaction is sealed, bound to the digest
//! of a cookie, and the browser goes with it to `/login`. `http::screen::login` draws [`pages::Login`]; the form comes back;
//! [`flow::login::password`] checks the password on the pool and then, in one transaction, starts the session, asks
//! `next_step` again, and writes the code and an [`oauth::login::LoginRecord`]. The browser goes to the client with
//! `code`, `state` and `iss`. The client redeems the code: [`flow::token::authorization_code`] consumes it and starts a
//! refresh family in one transaction, [`oauth::resource::Apis::target`] decides which APIs the token is for, and
//! [`flow::token::issue`] signs.
//!
//! If the user has to be asked first, the browser goes to `/consent`. The transaction that writes the code stores the
//! consent too, and the client that a metadata document describes.
//!
//! At a provider it goes on like this: the page links to `/federation/{provider}/start`, where
//! [`flow::login::begin_federation`] seals the question (digest of `state`, `nonce`, verifier), which the browser keeps
//! beside the transaction in cookies. The answer comes to `…/callback`; [`flow::login::finish_federation`] opens the
//! question, redeems the code, has [`federation::id_token`] check the token against the provider's record and
//! [`federation::account`] decide whose account it is, and joins the way of the password in
//! [`flow::login::start_session`]. The same transaction marks the answer as used. An exchanged token meets the same two
//! rules in [`flow::token::jwt_bearer`].
//!
//! Until a user has authenticated, only a requested mail and its link are stored: the browser keeps the sign-in in
//! addresses, forms and cookies. A browser may send again what it keeps. Before the user has authenticated, that is the same as to begin again. After
//! that, the record says in which session the sign-in was settled, when it was answered, and what was refused: a form from
//! the history signs nobody in again, and a refusal stays. A code is issued only after the session was checked in the same
//! transaction, so a page that is sent again in a live session gives no more than a new authorization request.
//!
//! A sign-in can be for the account page as well: [`oauth::login::LoginPurpose`] says what it is for, and all that differs
//! between purposes is a method of it. A sign-in for the account page ends in the session, without a code. What users do
//! there is in [`flow::account`].
//!
//! Other ways through the same steps are described where they are: [`flow::login::passkey`], [`flow::login::passkey_offer`],
//! [`flow::login::push_request`], [`flow::login::anonymous_upgrade`], [`flow::one_time_link`], [`flow::device`],
//! [`oauth::profile`], [`http::client_certificate`]. A sign-out is [`flow::login::sign_out`]; all ends of sessions go through
//! [`flow::login::session`], and [`flow::logout_notice`] tells the clients.
//!
//! # A refresh
//!
//! The token names its family, its generation and the family's lineage, and contains an HMAC over them. It is derived,
//! not stored. [`flow::token::refresh_token`] verifies the HMAC and reads the row of the family, and
//! [`oauth::refresh::RefreshFamily::refresh`] decides. The newest generation rotates, and the row is written back. The
//! one before it is a retry while its successor is unused and the retry window is open: it gets that successor, and
//! nothing is written. Anything older is a replay and revokes the family. The commit is shared with the other requests
//! that wait. The new token is derived and the access token is signed after it. One get, one put, no index of old
//! tokens. The user's row is read too, for what tokens say of the user, and the consent, if the client needs one. For
//! which APIs the new token is, [`oauth::resource::Apis::target`] decides anew.
//!
//! A retry is decided by a transaction too. So it comes after the rotation that it repeats, or after the revocation, and
//! its answer follows a commit that includes them. A transaction without changes costs no write.
//!
//! A refresh with a DPoP proof records the use of the proof in the same transaction, also if it is a retry. The tokens of a
//! family that is bound to a key are accepted only with a proof by this key. Without the key, a token from before
//! the binding ends the family, and a later one changes nothing.
//!
//! [`flow::rotate_keys::refresh_keys`] says which key derives a token, and [`store`] how rows are kept: in the file of one
//! node, or in a database that several nodes share.

#[cfg(all(test, feature = "postgres"))]
extern crate self as idsvc;

pub mod admin;
pub mod age;
pub mod app;
pub mod background;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod data_dir;
pub mod described;
pub mod federation;
pub mod files;
pub mod flow;
pub mod guide;
pub mod hex;
pub mod http;
pub mod identity;
pub mod jose;
pub mod limit;
pub mod mail;
pub mod net;
pub mod oauth;
pub mod observe;
pub mod pages;
pub mod password;
pub mod random;
pub mod route;
pub mod seal;
pub mod secret;
pub mod server;
pub mod store;
pub mod text;
pub mod themes;
pub mod webauthn;
