//! The table of all settings. The file's keys, the environment's names, the flags and `idsvc config reference` follow
//! from it.

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// A whole number, zero or more.
    Number,
    /// A span of time: `"24h"`, `"90d"`, `"60s"`, `"30m"`.
    Duration,
    /// `true` or `false`.
    Flag,
    /// Several strings; comma-separated in the environment.
    List,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The key in the file, dotted.
    pub key: &'static str,
    /// The type of the value.
    pub kind: Kind,
    /// The name of the value in the help of the flag.
    pub value_name: &'static str,
    /// The help of the flag. Empty if the flag belongs to every command.
    pub help: &'static str,
    /// The default as TOML, if there is one.
    pub default: Option<&'static str>,
    /// An example as TOML.
    pub example: &'static str,
    /// The explanation in the reference.
    pub doc: &'static str,
}

const fn setting(
    key: &'static str,
    kind: Kind,
    (value_name, help): (&'static str, &'static str),
    default: Option<&'static str>,
    example: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        key,
        kind,
        value_name,
        help,
        default,
        example,
        doc,
    }
}

/// `--data-dir` is a flag of every command.
const NO_FLAG: (&str, &str) = ("DIR", "");

/// All settings: first those without a section, then section by section.
pub const SETTINGS: &[Setting] = &[
    setting(
        "data_dir",
        Kind::Text,
        NO_FLAG,
        None,
        r#""/var/lib/idsvc""#,
        "Where everything that lasts is kept; created with mode 0700.\n\
         Left out: $STATE_DIRECTORY when the service manager sets it, else ./idsvc-data.",
    ),
    setting(
        "region",
        Kind::Text,
        ("REGION", "The region, us or ap"),
        None,
        r#""us""#,
        "The region of this installation, us or ap. Needed when base_url has {region} in it.",
    ),
    setting(
        "base_url",
        Kind::Text,
        ("URL", "The address of the service, and its issuer"),
        None,
        r#""https://id.{region}.example.com""#,
        "The address of the service. It is the issuer of every token, and fixed at the first start.",
    ),
    setting(
        "listen",
        Kind::List,
        ("ADDRESS", "An address to listen on"),
        Some(r#"["0.0.0.0:443"]"#),
        r#"["0.0.0.0:443", "[::]:443"]"#,
        "The addresses to listen on.",
    ),
    setting(
        "redirect_port",
        Kind::Number,
        ("PORT", "The port whose plain HTTP is redirected to the issuer"),
        None,
        "80",
        "A port for plain HTTP, on the addresses of listen. Its requests are redirected to the same path at the issuer.\n\
         Left out: none.",
    ),
    setting(
        "trusted_proxies",
        Kind::List,
        (
            "NETWORK",
            "A network of proxies to believe about the client's address",
        ),
        Some("[]"),
        r#"["10.0.0.0/8"]"#,
        "Networks of proxies whose Forwarded and X-Forwarded-For are believed, for the client's address only. Never everybody.",
    ),
    setting(
        "service_name",
        Kind::Text,
        ("NAME", "The name in the grant type of anonymous users"),
        Some(r#""service""#),
        r#""acme""#,
        "The name in the grant type of anonymous users: urn:{service_name}:oauth2:grant-type:anonymous.",
    ),
    setting(
        "organization",
        Kind::Text,
        ("NAME", "The organization of new users"),
        Some(r#""default""#),
        r#""acme""#,
        "The organization of new users.",
    ),
    setting(
        "service_documentation",
        Kind::Text,
        ("URL", "What developers of applications should read"),
        None,
        r#""https://docs.example.com/sign-in""#,
        "The address of what developers of applications should read. Discovery shows it.",
    ),
    setting(
        "id_token_alias",
        Kind::Flag,
        ("BOOL", "Repeat id_token as idtoken"),
        Some("true"),
        "false",
        "Whether the token response repeats id_token under the name idtoken.",
    ),
    setting(
        "theme",
        Kind::Text,
        ("NAME", "The theme of the pages"),
        Some(r#""default""#),
        r#""acme""#,
        "The theme of the pages, for clients that name none: a built-in one, or a folder of theme_dir.",
    ),
    setting(
        "theme_dir",
        Kind::Text,
        ("DIR", "Where the operator's themes are"),
        None,
        r#""/etc/idsvc/themes""#,
        "Where the operator's themes are, one folder each; read again when something in it changes.\n\
         Left out: themes in data_dir.",
    ),
    setting(
        "tls.mode",
        Kind::Text,
        ("MODE", "files, acme, self-signed or off"),
        Some(r#""files""#),
        r#""files""#,
        "files: certificate and key from PEM files, read again when they change and on SIGHUP.\n\
         acme: a certificate from a certificate authority, ordered and renewed by the service; see [acme].\n\
         Naming acme.domains is enough when this is left out.\n\
         self-signed: a certificate made here, for development.\n\
         off: plain HTTP, on loopback or behind trusted_proxies only.",
    ),
    setting(
        "tls.cert",
        Kind::Text,
        ("FILE", "The certificate chain"),
        None,
        r#""/etc/idsvc/cert.pem""#,
        "The certificate chain, the server's own certificate first. For tls.mode = \"files\".",
    ),
    setting(
        "tls.key",
        Kind::Text,
        ("FILE", "The private key"),
        None,
        r#""/etc/idsvc/key.pem""#,
        "The private key. For tls.mode = \"files\".",
    ),
    setting(
        "acme.domains",
        Kind::List,
        ("DOMAIN", "A domain to have a certificate for, by ACME"),
        None,
        r#"["id.example.com"]"#,
        "The names that the certificate is for. The certificate authority must reach this service at port 443 of each.\n\
         Left out: the host of base_url. Without base_url, the service is at the first of them.\n\
         Ordering a certificate agrees to the terms of the authority. The flag is --acme.",
    ),
    setting(
        "acme.contact",
        Kind::Text,
        ("ADDRESS", "The mail address for the certificate authority"),
        None,
        r#""admin@example.com""#,
        "The mail address that the certificate authority may write to.",
    ),
    setting(
        "acme.directory",
        Kind::Text,
        ("URL", "The ACME directory of the certificate authority"),
        Some(r#""https://acme-v02.api.letsencrypt.org/directory""#),
        r#""https://acme-staging-v02.api.letsencrypt.org/directory""#,
        "The ACME directory of the certificate authority. The default is Let's Encrypt, the example its staging area.\n\
         It is reached on the terms of [outbound].",
    ),
    setting(
        "lifetimes.access_token",
        Kind::Duration,
        ("TIME", "How long access tokens last"),
        Some(r#""24h""#),
        r#""1h""#,
        "Access tokens.",
    ),
    setting(
        "lifetimes.refresh_token",
        Kind::Duration,
        ("TIME", "How long refresh tokens last"),
        Some(r#""90d""#),
        r#""30d""#,
        "Refresh tokens, counted from the newest one.",
    ),
    setting(
        "lifetimes.refresh_absolute",
        Kind::Duration,
        ("TIME", "How long a sign-in can be refreshed in all"),
        None,
        r#""365d""#,
        "How long one sign-in can be refreshed in all; off for no bound.\n\
         Left out: a year for public clients, no bound for the others.",
    ),
    setting(
        "lifetimes.code",
        Kind::Duration,
        ("TIME", "How long authorization codes last"),
        Some(r#""60s""#),
        r#""60s""#,
        "Authorization codes; at most ten minutes (RFC 6749 section 4.1.2).",
    ),
    setting(
        "lifetimes.id_token",
        Kind::Duration,
        ("TIME", "How long ID tokens last"),
        Some(r#""1h""#),
        r#""1h""#,
        "ID tokens.",
    ),
    setting(
        "lifetimes.session_idle",
        Kind::Duration,
        ("TIME", "How long sessions last without use"),
        Some(r#""12h""#),
        r#""12h""#,
        "Browser sessions without use.",
    ),
    setting(
        "lifetimes.session_absolute",
        Kind::Duration,
        ("TIME", "How long sessions last in any case"),
        Some(r#""7d""#),
        r#""7d""#,
        "Browser sessions in any case.",
    ),
    setting(
        "lifetimes.login_transaction",
        Kind::Duration,
        ("TIME", "How long a sign-in may take"),
        Some(r#""30m""#),
        r#""30m""#,
        "A sign-in under way.",
    ),
    setting(
        "refresh.retry_window",
        Kind::Duration,
        ("TIME", "How long a replaced refresh token is good for a retry"),
        Some(r#""120s""#),
        r#""120s""#,
        "How long a replaced refresh token stays good for a retry, until its successor is used. A retry gets that successor again.",
    ),
    setting(
        "anonymous.retention",
        Kind::Duration,
        ("TIME", "How long abandoned anonymous users are kept"),
        Some(r#""180d""#),
        r#""365d""#,
        "How long an anonymous user is kept after the last refresh token has ended.",
    ),
    setting(
        "password.memory_kib",
        Kind::Number,
        ("KIB", "Memory of a password hash"),
        Some("19456"),
        "47104",
        "Memory of one argon2id hash, in KiB. A change rehashes each password at its next sign-in.",
    ),
    setting(
        "password.iterations",
        Kind::Number,
        ("COUNT", "Passes of a password hash"),
        Some("2"),
        "1",
        "Passes of argon2id over the memory.",
    ),
    setting(
        "password.parallelism",
        Kind::Number,
        ("COUNT", "Lanes of a password hash"),
        Some("1"),
        "1",
        "Lanes of argon2id.",
    ),
    setting(
        "password.min_length",
        Kind::Number,
        ("COUNT", "The fewest characters of a password"),
        Some("8"),
        "12",
        "The fewest characters of a new password.",
    ),
    setting(
        "password.max_bytes",
        Kind::Number,
        ("COUNT", "The most bytes of a password"),
        Some("512"),
        "512",
        "The most bytes of a password; a longer one is refused unread.",
    ),
    setting(
        "password.workers",
        Kind::Number,
        ("COUNT", "Passwords hashed at once"),
        Some("0"),
        "2",
        "Passwords hashed at once; 0 for one on each core.",
    ),
    setting(
        "signing.access_token_alg",
        Kind::Text,
        ("ALG", "The algorithm of access tokens"),
        Some(r#""ES256""#),
        r#""RS256""#,
        "The algorithm of access tokens, unless the client's record names one: RS256, PS256, ES256 or EdDSA.",
    ),
    setting(
        "signing.access_token_typ",
        Kind::Text,
        ("TYP", "The typ of access tokens"),
        Some(r#""at+jwt""#),
        r#""JWT""#,
        "The typ of access tokens: at+jwt (RFC 9068), or JWT for older resource servers.",
    ),
    setting(
        "keys.rotate_every",
        Kind::Duration,
        ("TIME", "How long a key signs before a new one takes its place"),
        Some(r#""90d""#),
        r#""off""#,
        "How long a signing key signs before a new one takes its place by itself: an hour or more, and longer than\n\
         keys.announce; off for never. Keys of refresh tokens change as often.",
    ),
    setting(
        "keys.announce",
        Kind::Duration,
        ("TIME", "How long new keys are published before they sign"),
        Some(r#""14d""#),
        r#""24h""#,
        "How long a new signing key is published before it signs, so that verifiers have fetched it: five minutes or\n\
         more, for so long they may keep the key set.",
    ),
    setting(
        "outbound.ca_file",
        Kind::Text,
        ("FILE", "Certificate authorities to trust beside those of the web"),
        None,
        r#""/etc/idsvc/company-ca.pem""#,
        "A PEM file of certificate authorities to trust beside those of the web, for providers,\n\
         published keys and acme.directory.",
    ),
    setting(
        "outbound.allow",
        Kind::List,
        (
            "NETWORK",
            "A network that is not public and may be reached for providers, keys and ACME",
        ),
        Some("[]"),
        r#"["10.0.0.0/8"]"#,
        "Networks that are not public and may still be reached, for providers, published keys and\n\
         acme.directory.",
    ),
    setting(
        "limits.enabled",
        Kind::Flag,
        ("BOOL", "Limit what single addresses, names and clients may do"),
        Some("true"),
        "true",
        "Whether failed sign-ins, failed client authentication, answers of providers, anonymous users, connections, requests,\n\
         bodies and typed passwords are limited for single addresses, names and clients. What all of them together may\n\
         take is bounded in any case.",
    ),
    setting(
        "limits.exempt",
        Kind::List,
        ("NETWORK", "A network whose requests are not limited"),
        Some("[]"),
        r#"["192.0.2.0/24"]"#,
        "Networks whose requests are not limited, and whose open connections are not counted for an address, such as\n\
         those of a gateway that many people share.",
    ),
    setting(
        "limits.anonymous_per_address",
        Kind::Number,
        ("COUNT", "Anonymous users for one address in an hour"),
        Some("60"),
        "1000",
        "Anonymous users that one address may have made within an hour.",
    ),
    setting(
        "limits.anonymous_per_client",
        Kind::Number,
        ("COUNT", "Anonymous users for one client in an hour"),
        Some("10000"),
        "100000",
        "Anonymous users that one client may have made within an hour.",
    ),
    setting(
        "limits.connections",
        Kind::Number,
        ("COUNT", "Open connections in all"),
        Some("10000"),
        "50000",
        "Open connections in all; one more closes an idle one of the address that has most. The hard limit of open\n\
         files (ulimit -Hn, LimitNOFILE) must be above it.",
    ),
    setting(
        "limits.connections_per_address",
        Kind::Number,
        ("COUNT", "Open connections from one address"),
        Some("256"),
        "256",
        "Open connections from one IPv4 address or IPv6 /64; more are closed. No address gets more than half of all\n\
         connections, of those that the limit of open files allows where these are fewer. Proxies are not counted.",
    ),
    setting(
        "backup.interval",
        Kind::Duration,
        ("TIME", "How often a backup is made"),
        Some(r#""24h""#),
        r#""6h""#,
        "How often the running service puts a backup into backups/ of the data directory; off for never.",
    ),
    setting(
        "backup.keep",
        Kind::Number,
        ("COUNT", "How many backups are kept"),
        Some("7"),
        "30",
        "How many of these backups are kept.",
    ),
    setting(
        "events.max_mib",
        Kind::Number,
        ("COUNT", "How many MiB of events are kept"),
        Some("64"),
        "1024",
        "The most MiB of events that are kept in the data directory, for idsvc events; the oldest go.",
    ),
    setting(
        "metrics.listen",
        Kind::Text,
        ("ADDRESS", "Where the metrics are, or off"),
        Some(r#""off""#),
        r#""127.0.0.1:9464""#,
        "The address of the metrics (Prometheus text at /metrics), which every client there can read. off for none.",
    ),
    setting(
        "log.format",
        Kind::Text,
        ("FORMAT", "text, json or auto"),
        Some(r#""auto""#),
        r#""json""#,
        "text, json, or auto: text on a terminal and json elsewhere. Text has colours on a terminal, unless NO_COLOR is set or TERM is dumb.",
    ),
    setting(
        "log.level",
        Kind::Text,
        ("LEVEL", "error, warn, info, debug or trace"),
        Some(r#""info""#),
        r#""debug""#,
        "error, warn, info, debug or trace.",
    ),
];
