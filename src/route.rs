//! The table of all paths. Dispatch, 405 answers, metadata, metrics, links and tests read it.

use std::borrow::Cow;

use http::Method;

use crate::described::described;

described! {
    /// Which browsers' scripts may read an answer (Fetch standard, section 3.3).
    pub enum Cors {
        /// Scripts of any origin: the answer is the same for all senders.
        Public = "all",
        /// Scripts of the origins of public clients' redirect URIs, and of origins that the operator named for a client.
        Clients = "clients",
        /// No scripts of other origins.
        None = "none",
    }
}

described! {
    /// Who has to authenticate.
    pub enum Caller {
        /// Anyone may ask.
        Anyone = "nobody",
        /// The client, by its secret, a signed assertion or a certificate. A public client names itself.
        Client = "client",
        /// The client, by one of its API keys.
        ApiKey = "API key",
        /// A client that registers itself, by an initial access token if the operator requires one.
        Registrant = "initial access token",
        /// A client that registered itself, by its registration access token.
        Registered = "registration access token",
        /// The holder of an access token.
        Bearer = "access token",
        /// The user, on the pages of the service or by the session cookie of the browser.
        User = "user",
        /// The provider, at which the user signs in.
        Provider = "provider",
    }
}

/// A page or resource. HEAD is answered like GET (RFC 9110 section 9.1).
const READ: &[Method] = &[Method::GET, Method::HEAD];
/// A page with a form, or an endpoint that takes its parameters either way.
const READ_OR_SUBMIT: &[Method] = &[Method::GET, Method::HEAD, Method::POST];
/// An endpoint that changes something and is reached by a link or a form. HEAD is refused: scanners send it only to look,
/// but it would change something too.
const FOLLOW_OR_SUBMIT: &[Method] = &[Method::GET, Method::POST];
/// The same for an endpoint that is reached by links and redirects only.
const FOLLOW: &[Method] = &[Method::GET];
/// A record that its owner manages (RFC 7592 section 2).
const MANAGE: &[Method] = &[Method::GET, Method::PUT, Method::DELETE];
/// An endpoint that changes something.
const SUBMIT: &[Method] = &[Method::POST];

const REGISTER: &str = "/oauth2/register";
const ASSETS: &str = "/assets/";
const THEMES: &str = "/theme/";
const FEDERATION: &str = "/federation/";
const START: &str = "start";
const CALLBACK: &str = "callback";
const LOGO: &str = "logo";
const OPEN: &str = "/account/open/";
/// The logos of clients.
const LOGOS: &str = "/logos/";
const AUTHORIZATION_SERVER: &str = "/.well-known/oauth-authorization-server";
const CHANGE_PASSWORD: &str = "/.well-known/change-password";
const RELATED_ORIGINS: &str = "/.well-known/webauthn";

macro_rules! routes {
    (
        fixed: {
            $($(#[doc = $doc:literal])* $name:ident $path:expr, $methods:ident, $label:literal, $cors:ident, $caller:ident
                $(, $member:literal)?;)*
        }
        with_part: {
            $($(#[doc = $part_doc:literal])* $part_name:ident($part:ident) $part_path:expr, $part_methods:ident,
                $part_label:literal, $part_caller:ident;)*
        }
    ) => {
        /// A path that the service answers.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Route {
            $($(#[doc = $doc])* $name,)*
            $($(#[doc = $part_doc])* $part_name(String),)*
        }

        /// All routes that have one path each.
        pub const FIXED: &[Route] = &[$(Route::$name,)*];

        /// The members of the discovery document that name an endpoint (RFC 8414 section 2).
        pub const DISCOVERED: &[(&str, Route)] = &[$($(($member, Route::$name),)?)*];

        impl Route {
            /// All routes. What differs in a path is its name in braces.
            pub fn all() -> Vec<Self> {
                let mut all = FIXED.to_vec();
                $(all.push(Self::$part_name(concat!("{", stringify!($part), "}").to_owned()));)*
                all
            }

            /// The path, without that of the issuer.
            pub fn path(&self) -> Cow<'static, str> {
                match self {
                    $(Self::$name => Cow::Borrowed($path),)*
                    $(Self::$part_name($part) => Cow::Owned($part_path),)*
                }
            }

            /// The methods that are answered, and the value of `Allow` for any other. `OPTIONS` is not among them:
            /// [`Route::cors`] decides about it.
            pub fn methods(&self) -> &'static [Method] {
                match self {
                    $(Self::$name => $methods,)*
                    $(Self::$part_name(_) => $part_methods,)*
                }
            }

            /// The name in metrics and logs: one of a fixed set, never part of a request.
            pub fn label(&self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                    $(Self::$part_name(_) => $part_label,)*
                }
            }

            /// Which browsers' scripts may read the answer.
            pub fn cors(&self) -> Cors {
                match self {
                    $(Self::$name => Cors::$cors,)*
                    $(Self::$part_name(_))|* => Cors::None,
                }
            }

            /// Who has to authenticate.
            pub fn caller(&self) -> Caller {
                match self {
                    $(Self::$name => Caller::$caller,)*
                    $(Self::$part_name(_) => Caller::$part_caller,)*
                }
            }

            /// Whether it is answered where clients show certificates (RFC 8705 section 5). Pages are not: a browser would ask
            /// its user for a certificate.
            pub fn takes_certificates(&self) -> bool {
                let is_for_probes = matches!(self, Self::Healthz | Self::Readyz);
                let is_for_clients = matches!(self.caller(), Caller::Client | Caller::ApiKey);
                is_for_probes || is_for_clients || *self == Self::UserInfo
            }

            /// Whether a refusal or failure is shown as a page, to the person at the browser. Programs authenticate, and get JSON.
            pub fn answers_with_pages(&self) -> bool {
                matches!(self.caller(), Caller::Anyone | Caller::User | Caller::Provider)
            }

            pub fn purpose(&self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),*).trim_ascii(),)*
                    $(Self::$part_name(_) => concat!($($part_doc),*).trim_ascii(),)*
                }
            }
        }
    };
}

routes! {
    fixed: {
        /// The authorization endpoint: an application sends the browser here to sign the user in (RFC 6749 section 3.1).
        Authorize "/oauth2/authorize", FOLLOW_OR_SUBMIT, "authorize", None, User, "authorization_endpoint";
        /// A client sends its authorization request here first, and the browser then brings a `request_uri` (RFC 9126).
        PushedRequest "/oauth2/par", SUBMIT, "par", Clients, Client, "pushed_authorization_request_endpoint";
        /// A device without a browser gets its device code and user code (RFC 8628 section 3.1).
        DeviceAuthorization "/oauth2/device_authorization", SUBMIT, "device_authorization", Clients, Client,
            "device_authorization_endpoint";
        /// The token endpoint, for every grant (RFC 6749 section 3.2).
        Token "/oauth2/token", SUBMIT, "token", Clients, Client, "token_endpoint";
        /// The refresh endpoint, with an API key in place of the client's own authentication.
        Refresh "/v4/tokens", SUBMIT, "refresh", Clients, ApiKey;
        /// The discovery document (OpenID Connect Discovery 1.0 section 4).
        OpenidConfiguration "/.well-known/openid-configuration", READ, "openid_configuration", Public, Anyone;
        /// The same document where RFC 8414 section 3 looks for it. A path of the issuer is added at the end.
        OauthAuthorizationServer AUTHORIZATION_SERVER, READ, "oauth_authorization_server", Public, Anyone;
        /// The public keys (RFC 7517 section 5).
        Jwks "/oauth2/jwks", READ, "jwks", Public, Anyone, "jwks_uri";
        /// The claims of the user of an access token (OpenID Connect Core section 5.3).
        UserInfo "/oauth2/userinfo", READ_OR_SUBMIT, "userinfo", Clients, Bearer, "userinfo_endpoint";
        /// Whether a token is in force. Public clients may not ask (RFC 7662).
        Introspect "/oauth2/introspect", SUBMIT, "introspect", None, Client, "introspection_endpoint";
        /// Ends an access token, or a refresh token with its grant (RFC 7009).
        Revoke "/oauth2/revoke", SUBMIT, "revoke", Clients, Client, "revocation_endpoint";
        /// A client registers itself here, if `clients.registration` allows it (RFC 7591 section 3).
        Register REGISTER, SUBMIT, "register", Public, Registrant, "registration_endpoint";
        /// An application sends the browser here to sign the user out (OpenID Connect RP-Initiated Logout 1.0 section 2).
        EndSession "/oauth2/logout", FOLLOW_OR_SUBMIT, "end_session", None, User, "end_session_endpoint";
        /// The sign-in page.
        Login "/login", FOLLOW_OR_SUBMIT, "login", None, User;
        /// The page on which people who forgot the password request a mail.
        Recover "/recover", READ_OR_SUBMIT, "recover", None, User;
        /// The page on which people begin an account, if `accounts.sign_up` is `open`.
        SignUp "/sign-up", READ_OR_SUBMIT, "sign_up", None, User;
        /// The page on which people request a mail to sign in without a password, if `accounts.email_sign_in` allows it.
        SignInByMail "/sign-in-by-mail", READ_OR_SUBMIT, "sign_in_by_mail", None, User;
        /// The page on which people type the code of a mail.
        CheckMail "/check-mail", READ_OR_SUBMIT, "check_mail", None, User;
        /// The page for the second step of a sign-in.
        SecondFactor "/second-factor", READ_OR_SUBMIT, "second_factor", None, User;
        /// The page that offers a passkey after a sign-in with a password, if `passkeys.offer` allows it.
        PasskeyOffer "/passkey-offer", READ_OR_SUBMIT, "passkey_offer", None, User;
        /// The page that a link in a mail leads to.
        Link "/link", READ_OR_SUBMIT, "link", None, User;
        /// The page that asks whether a client may act for the user.
        Consent "/consent", FOLLOW_OR_SUBMIT, "consent", None, User;
        /// The page on which people type the code that a device shows, and decide about the device (RFC 8628 section 3.3).
        Device "/device", READ_OR_SUBMIT, "device", None, User;
        /// The page that asks whether the user wants to sign out.
        LogoutConfirm "/logout/confirm", READ_OR_SUBMIT, "logout_confirm", None, User;
        /// The page after signing out.
        LoggedOut "/logged-out", READ, "logged_out", None, Anyone;
        /// The page on which users manage their own account: its first section.
        Account "/account", FOLLOW_OR_SUBMIT, "account", None, User;
        /// The section of the account page with the names of the user.
        AccountProfile "/account/profile", FOLLOW_OR_SUBMIT, "account_profile", None, User;
        /// The section of the account page for the password.
        AccountPassword "/account/password", FOLLOW_OR_SUBMIT, "account_password", None, User;
        /// The section of the account page with the factors of the user.
        AccountSecurity "/account/security", FOLLOW_OR_SUBMIT, "account_security", None, User;
        /// The section of the account page with the sessions.
        AccountDevices "/account/devices", FOLLOW_OR_SUBMIT, "account_devices", None, User;
        /// The section of the account page with the applications.
        AccountApplications "/account/applications", FOLLOW_OR_SUBMIT, "account_applications", None, User;
        /// The section of the account page for the account as a whole.
        AccountData "/account/data", FOLLOW_OR_SUBMIT, "account_data", None, User;
        /// The address that password managers open to change a password, at the root of the host (W3C, A Well-Known URL for
        /// Changing Passwords).
        ChangePassword CHANGE_PASSWORD, READ, "change_password", None, Anyone;
        /// The further origins whose pages may use the passkeys, if there are any, at the root of the host (Web Authentication
        /// Level 3 section 5.11.1).
        RelatedOrigins RELATED_ORIGINS, READ, "related_origins", None, Anyone;
        /// The page that says what went wrong.
        Error "/error", READ, "error", None, Anyone;
        /// Whether the process is alive.
        Healthz "/healthz", READ, "healthz", None, Anyone;
        /// Whether the service can answer.
        Readyz "/readyz", READ, "readyz", None, Anyone;
        /// Redirects browsers to the account page, and tells programs what this is. With `--dev`, the page of the
        /// example client.
        Home "/", READ, "home", None, Anyone;
        /// The redirect URI of the example client, with `--dev` only.
        DevCallback "/dev/callback", FOLLOW, "dev_callback", None, Anyone;
        /// The example client as a device without a browser, with `--dev` only.
        DevDevice "/dev/device", FOLLOW, "dev_device", None, Anyone;
        /// The mails of the development server, with `--dev` and without `mail.url` only.
        DevMail "/dev/mail", READ, "dev_mail", None, Anyone;
    }
    with_part: {
        /// The registration of a client that registered itself (RFC 7592 section 2).
        ClientConfiguration(client_id) format!("{REGISTER}/{client_id}"), MANAGE, "client_configuration", Registered;
        /// A file that pages load.
        Asset(file) format!("{ASSETS}{file}"), READ, "asset", Anyone;
        /// A file of a theme: the theme, its version, the path.
        ThemeFile(file) format!("{THEMES}{file}"), READ, "theme_file", Anyone;
        /// The logo of a client: its UUID and the version of the logo.
        ClientLogo(file) format!("{LOGOS}{file}"), READ, "client_logo", Anyone;
        /// The redirect to an application, by the UUID of its client: where its sign-ins begin, or its home page.
        OpenApplication(client_uuid) format!("{OPEN}{client_uuid}"), FOLLOW, "open_application", User;
        /// The redirect to a provider.
        FederationStart(provider) federation(provider, START), FOLLOW, "federation_start", Provider;
        /// The redirect URI at a provider (OpenID Connect Core section 3.1.2.5).
        FederationCallback(provider) federation(provider, CALLBACK), FOLLOW_OR_SUBMIT, "federation_callback", Provider;
        /// The logo of a provider.
        FederationLogo(provider) federation(provider, LOGO), READ, "federation_logo", Anyone;
    }
}

impl Route {
    /// The route of a request's path, without the issuer's path ([`strip_issuer_path`]).
    ///
    /// Paths are compared as they were sent: with an escaped character, a doubled slash or a trailing slash, the path is
    /// unknown.
    pub fn recognise(path: &str) -> Option<Self> {
        if let Some(file) = path.strip_prefix(ASSETS) {
            return is_plain_file(file).then(|| Self::Asset(file.to_owned()));
        }
        if let Some(file) = path.strip_prefix(THEMES) {
            return is_plain_file(file).then(|| Self::ThemeFile(file.to_owned()));
        }
        if let Some(file) = path.strip_prefix(LOGOS) {
            return is_plain_file(file).then(|| Self::ClientLogo(file.to_owned()));
        }
        if let Some(id) = path.strip_prefix(OPEN) {
            return is_uuid(id).then(|| Self::OpenApplication(id.to_owned()));
        }
        if let Some(id) = path
            .strip_prefix(REGISTER)
            .and_then(|rest| rest.strip_prefix('/'))
        {
            return is_uuid(id).then(|| Self::ClientConfiguration(id.to_owned()));
        }
        if let Some(rest) = path.strip_prefix(FEDERATION) {
            let (provider, step) = rest.split_once('/')?;
            if !is_provider_id(provider) {
                return None;
            }
            let provider = provider.to_owned();
            return match step {
                START => Some(Self::FederationStart(provider)),
                CALLBACK => Some(Self::FederationCallback(provider)),
                LOGO => Some(Self::FederationLogo(provider)),
                _ => None,
            };
        }
        FIXED.iter().find(|route| route.path() == path).cloned()
    }

    /// Whether it is a page on which users manage their own account.
    pub fn is_account(&self) -> bool {
        matches!(
            self,
            Self::Account
                | Self::AccountProfile
                | Self::AccountPassword
                | Self::AccountSecurity
                | Self::AccountDevices
                | Self::AccountApplications
                | Self::AccountData
                | Self::OpenApplication(_)
        )
    }

    /// Whether the route is answered from memory even if the catalog may be stale.
    pub fn allows_stale_catalog(&self) -> bool {
        matches!(
            self,
            Self::Jwks
                | Self::OpenidConfiguration
                | Self::OauthAuthorizationServer
                | Self::Healthz
                | Self::Readyz
                | Self::Asset(_)
                | Self::ThemeFile(_)
        )
    }

    /// Whether users come here to sign in or out, or to manage their account.
    pub fn is_for_people(&self) -> bool {
        self.is_account()
            || matches!(
                self,
                Self::Authorize
                    | Self::EndSession
                    | Self::Login
                    | Self::Recover
                    | Self::SignUp
                    | Self::SignInByMail
                    | Self::CheckMail
                    | Self::SecondFactor
                    | Self::PasskeyOffer
                    | Self::Link
                    | Self::Consent
                    | Self::Device
                    | Self::LogoutConfirm
                    | Self::LoggedOut
                    | Self::ChangePassword
                    | Self::FederationStart(_)
            )
    }

    /// The absolute address below `issuer`, which may have a path of its own.
    ///
    /// RFC 8414 section 3.1 puts its well-known path between the issuer's host and the issuer's path; every
    /// other address is the issuer with the path added.
    pub fn url(&self, issuer: &str) -> String {
        let issuer = issuer.trim_end_matches('/');
        let path = self.path();
        if *self == Self::OauthAuthorizationServer {
            let host_at = issuer.find("://").map_or(0, |at| at + "://".len());
            let path_at = issuer
                .get(host_at..)
                .and_then(|rest| rest.find('/'))
                .map(|at| host_at + at);
            if let Some((origin, issuer_path)) = path_at.and_then(|at| issuer.split_at_checked(at)) {
                return format!("{origin}{path}{issuer_path}");
            }
        }
        format!("{issuer}{path}")
    }
}

/// The path below the issuer, for [`Route::recognise`]; `None` if the request is for no address of this issuer.
///
/// Password managers and browsers only know the origin, so their well-known paths have no issuer path. `issuer_path` may end with a slash.
pub fn strip_issuer_path<'path>(issuer_path: &str, request_path: &'path str) -> Option<&'path str> {
    let issuer_path = issuer_path.trim_end_matches('/');
    if issuer_path.is_empty() {
        return Some(request_path);
    }
    if matches!(request_path, CHANGE_PASSWORD | RELATED_ORIGINS) {
        return Some(request_path);
    }
    if let Some(well_known) = request_path.strip_suffix(issuer_path)
        && well_known == AUTHORIZATION_SERVER
    {
        return Some(well_known);
    }
    match request_path.strip_prefix(issuer_path)? {
        "" => Some("/"),
        path => path.starts_with('/').then_some(path),
    }
}

fn federation(provider: &str, step: &str) -> String {
    format!("{FEDERATION}{provider}/{step}")
}

/// Whether this can be the identifier of a client that registered itself.
fn is_uuid(text: &str) -> bool {
    let is_fit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
    text.len() == 36 && text.bytes().all(is_fit)
}

/// Whether this can be the id of a provider.
fn is_provider_id(text: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_fit)
}

/// Whether this can be a file below a directory and nothing else.
fn is_plain_file(path: &str) -> bool {
    path.split('/').all(|segment| {
        !segment.is_empty()
            && !segment.starts_with('.')
            && segment
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    })
}

#[cfg(test)]
mod tests;
