//! A flag for every setting.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::config::reference::{Kind, of_flag};

/// What is given on the command line comes before the environment and the file. Built from a table: a structure with
/// a member for each takes a hundred times the code.
#[derive(Clone, Debug, Default)]
pub struct SettingFlags {
    given: Vec<(&'static str, String)>,
}

impl SettingFlags {
    /// What was given: dotted key and value.
    pub fn into_given(self) -> Vec<(&'static str, String)> {
        self.given
    }
}

/// Name, what its value is, and what it does; in the order of the help.
type Flag = (&'static str, &'static str, &'static str);

#[rustfmt::skip]
const FLAGS: &[Flag] = &[
    ("base-url", "URL", "The address of the service, and its issuer"),
    ("region", "REGION", "The region, us or ap"),
    ("service-name", "NAME", "The name in the grant type of anonymous users"),
    ("organization", "NAME", "The organization of new users"),
    ("service-documentation", "URL", "What developers of applications should read"),
    ("id-token-alias", "BOOL", "Repeat id_token as idtoken"),
    ("theme", "NAME", "The theme of the pages"),
    ("theme-dir", "DIR", "Where the operator's themes are"),
    ("tls-mode", "MODE", "files, acme, self-signed or off"),
    ("tls-cert", "FILE", "The certificate chain"),
    ("tls-key", "FILE", "The private key"),
    ("acme-contact", "ADDRESS", "The mail address for the certificate authority"),
    ("acme-directory", "URL", "The ACME directory of the certificate authority"),
    ("lifetimes-access-token", "TIME", "How long access tokens last"),
    ("lifetimes-refresh-token", "TIME", "How long refresh tokens last"),
    ("lifetimes-refresh-absolute", "TIME", "How long a sign-in can be refreshed in all"),
    ("lifetimes-code", "TIME", "How long authorization codes last"),
    ("lifetimes-id-token", "TIME", "How long ID tokens last"),
    ("lifetimes-session-idle", "TIME", "How long sessions last without use"),
    ("lifetimes-session-absolute", "TIME", "How long sessions last in any case"),
    ("lifetimes-login-transaction", "TIME", "How long a sign-in may take"),
    ("refresh-retry-window", "TIME", "How long a replaced refresh token is good for a retry"),
    ("anonymous-retention", "TIME", "How long abandoned anonymous users are kept"),
    ("password-memory-kib", "KIB", "Memory of a password hash"),
    ("password-iterations", "COUNT", "Passes of a password hash"),
    ("password-parallelism", "COUNT", "Lanes of a password hash"),
    ("password-min-length", "COUNT", "The fewest characters of a password"),
    ("password-max-bytes", "COUNT", "The most bytes of a password"),
    ("password-workers", "COUNT", "Passwords hashed at once"),
    ("signing-access-token-alg", "ALG", "The algorithm of access tokens"),
    ("signing-access-token-typ", "TYP", "The typ of access tokens"),
    ("keys-rotate-every", "TIME", "How long a key signs before a new one takes its place"),
    ("keys-announce", "TIME", "How long new keys are published before they sign"),
    ("outbound-ca-file", "FILE", "Certificate authorities to trust beside those of the web"),
    ("limits-enabled", "BOOL", "Limit what single addresses, names and clients may do"),
    ("limits-anonymous-per-address", "COUNT", "Anonymous users for one address in an hour"),
    ("limits-anonymous-per-client", "COUNT", "Anonymous users for one client in an hour"),
    ("limits-connections", "COUNT", "Open connections in all"),
    ("limits-connections-per-address", "COUNT", "Open connections from one address"),
    ("backup-interval", "TIME", "How often a backup is made"),
    ("backup-keep", "COUNT", "How many backups are kept"),
    ("events-max-mib", "COUNT", "How many MiB of events are kept"),
    ("metrics-listen", "ADDRESS", "Where the metrics are, or off"),
    ("log-format", "FORMAT", "text, json or auto"),
    ("log-level", "LEVEL", "error, warn, info, debug or trace"),
    ("listen", "ADDRESS", "An address to listen on; may be repeated"),
    ("acme", "DOMAIN", "A domain to have a certificate for, by ACME; may be repeated"),
    ("trusted-proxies", "NETWORK", "A network of proxies to believe about the client's address; may be repeated"),
    ("outbound-allow", "NETWORK", "A network that is not public and may be reached for providers, keys and ACME; may be repeated"),
    ("limits-exempt", "NETWORK", "A network whose requests are not limited; may be repeated"),
];

fn arg((name, value, help): Flag) -> Arg {
    let is_list = of_flag(name).is_some_and(|setting| setting.kind == Kind::List);
    Arg::new(name)
        .long(name)
        .value_name(value)
        .help(help)
        .action(if is_list {
            ArgAction::Append
        } else {
            ArgAction::Set
        })
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command
            .next_help_heading("Settings (see idsvc config reference)")
            .args(FLAGS.iter().copied().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = FLAGS.iter().filter_map(|(name, ..)| {
            let values = matches.get_many::<String>(name)?;
            let value = values.map(String::as_str).collect::<Vec<_>>().join(",");
            Some((of_flag(name)?.key, value))
        });
        Ok(Self {
            given: given.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_sets_a_setting() {
        for (name, ..) in FLAGS {
            assert!(of_flag(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_list_may_be_repeated_and_nothing_else() {
        let read = |words: &[&str]| {
            let command = SettingFlags::augment_args(Command::new("serve"));
            let matches = command.try_get_matches_from([&["serve"], words].concat())?;
            SettingFlags::from_arg_matches(&matches).map(SettingFlags::into_given)
        };
        let given = read(&["--listen", "a:1", "--acme", "id.example", "--listen", "b:2"]).unwrap();
        let expected = [("listen", "a:1,b:2"), ("acme.domains", "id.example")];
        assert_eq!(given, expected.map(|(key, value)| (key, value.to_owned())));
        assert!(read(&["--theme", "a", "--theme", "b"]).is_err());
        assert_eq!(read(&[]).unwrap(), []);
    }
}
