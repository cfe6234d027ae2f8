//! Parses the command line and runs one command.

pub mod admin_connection;
pub mod api;
mod api_words;
pub mod backup;
mod backup_encryption;
mod change_list;
pub mod change_summary;
pub mod client;
pub mod compact;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod events;
pub mod export;
pub mod group;
pub mod health;
pub mod help;
pub mod import;
pub mod init;
mod invitations;
pub mod key;
mod list_flags;
mod list_page;
pub mod mail;
pub mod man;
pub mod migrate;
mod name_index;
pub mod output;
mod password_flags;
pub mod progress;
mod prompt;
pub mod provider;
mod refusal;
pub mod restore;
mod rewind;
pub mod scope;
pub mod serve;
pub mod session;
mod setting_flags;
pub mod state;
mod state_batches;
pub mod state_file;
mod state_kinds;
mod state_reader;
mod suggestions;
pub mod terminal_text;
pub mod theme;
pub mod user;
mod user_access;
mod user_factors;
mod user_link;
mod user_list;
mod user_remove;
pub mod value_parsers;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
#[cfg(target_os = "linux")]
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use self::admin_connection::AdminConnector;
use self::output::{CliError, Output};
use crate::config::memory_limit::MemoryLimit;
use crate::config::{Fault, Sources, is_read};
use crate::described::described;

/// An OAuth 2.1 and OpenID Connect identity and token service in one executable.
#[derive(Debug, Parser)]
#[command(
    name = "idsvc",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "To try it out, without any settings:\n  idsvc serve --dev"
)]
pub struct Cli {
    /// The flags of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub noun: Noun,
}

described! {
    /// The exit code of a command, which is its place in this list.
    pub enum Exit {
        /// Done.
        Done = "done",
        /// The command was refused or failed, or found something wrong. The message says why. It also says when something
        /// was changed and could not be printed.
        Refused = "refused",
        /// The command line is wrong: an unknown command or flag, a wrong value, or a missing `--yes` or password flag.
        Misused = "misused",
    }
}

/// The place of global flags on a help page: after those of the command.
const GLOBAL_ORDER: usize = 900;

/// The flags of every command.
#[derive(Clone, Debug, Default, Args)]
pub struct Global {
    /// The configuration file.
    #[arg(
        long,
        help = "The configuration file [default: $IDSVC_CONFIG, ./idsvc.toml or /etc/idsvc/idsvc.toml]",
        global = true,
        display_order = GLOBAL_ORDER,
        value_name = "FILE"
    )]
    pub config: Option<PathBuf>,
    /// The data directory [default: as configured]
    #[arg(long, global = true, display_order = GLOBAL_ORDER, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Print one JSON document on standard output. Errors are text on standard error
    #[arg(long, global = true, display_order = GLOBAL_ORDER)]
    pub json: bool,
}

/// The first word of a command.
#[derive(Debug, Subcommand)]
pub enum Noun {
    /// Run the service
    #[command(
        after_help = "Examples:\n  idsvc serve --dev\n  idsvc serve --acme id.example.com --data-dir /var/lib/idsvc"
    )]
    Serve(Box<serve::Serve>),
    /// Make the data directory and its master key, before the first start
    #[command(
        after_help = "With store.url, run it on the first node, and copy master.key to the others. Otherwise serve does it\nby itself.\n\nExamples:\n  idsvc init --data-dir /var/lib/idsvc"
    )]
    Init,
    /// Set up the PostgreSQL database, or upgrade it to this release. The service may run
    #[command(
        after_help = "It needs store.url, and a user who may create a schema in the database. Run it before the first start, and\nbefore the nodes of a new release are started. Without store.url, serve upgrades the database file.\n\nExamples:\n  idsvc migrate --config /etc/idsvc/idsvc.toml"
    )]
    Migrate,
    /// Applications that sign people in
    #[command(subcommand)]
    Client(client::Verb),
    /// People who sign in
    #[command(subcommand)]
    User(user::Verb),
    /// Scope values that release claims of users
    #[command(subcommand)]
    Scope(scope::Verb),
    /// Groups of users
    #[command(subcommand)]
    Group(group::Verb),
    /// Upstream OpenID providers, at which users sign in
    #[command(subcommand)]
    Provider(provider::Verb),
    /// APIs, the resource servers that access tokens are for
    #[command(subcommand)]
    Api(api::Verb),
    /// Signing keys
    #[command(subcommand)]
    Key(key::Verb),
    /// Browsers that are signed in
    #[command(subcommand)]
    Session(session::Verb),
    /// How the pages look
    #[command(subcommand)]
    Theme(theme::Verb),
    /// Mails to users
    #[command(subcommand)]
    Mail(mail::Verb),
    /// Settings
    #[command(subcommand)]
    Config(config::Verb),
    /// Apply a file: everything but users at once, then users in batches
    #[command(
        after_help = "Examples:\n  idsvc export >state.toml\n  idsvc apply -f state.toml --dry-run --prune"
    )]
    Apply(state_batches::Apply),
    /// Print scopes, groups, providers, APIs, clients and users in the form that apply reads
    Export(export::Export),
    /// Check settings, files, keys and clients, and say what must be done
    Doctor(doctor::Doctor),
    /// Ask the running service whether it is ready
    #[command(
        after_help = "It asks /readyz where serve listens with the same settings. It needs neither a shell nor curl.\nThe exit code is 0 if the service is ready, else 1.\n\nExamples:\n  idsvc health\n  podman exec idsvc /idsvc health"
    )]
    Health(Box<health::Health>),
    /// Show what happened: sign-ins, tokens, changes by administrators
    #[command(
        after_help = "Examples:\n  idsvc events --since 24h --event sign_in_failed\n  idsvc events --follow --json"
    )]
    Events(events::Events),
    /// Save the database to a file. The service may run
    #[command(
        after_help = "Examples:\n  idsvc backup\n  idsvc backup /mnt/backup/idsvc.backup --replace\n  idsvc backup --to age1…\n  idsvc backup - | gzip >idsvc.backup.gz"
    )]
    Backup(backup::Backup),
    /// Put a backup into an empty data directory, or into an empty PostgreSQL database
    #[command(
        after_help = "Examples:\n  idsvc restore /mnt/backup/idsvc.backup --master-key /media/key/master.key\n  idsvc restore idsvc.backup.age --master-key master.key --identity key.txt\n  gunzip <idsvc.backup.gz | idsvc restore -"
    )]
    Restore(restore::Restore),
    /// Return unused space of the database to the disk. The service may run
    Compact,
    /// Print the help of a command or a page of the guide, or find them by words
    #[command(
        after_help = "Examples:\n  idsvc help client add\n  idsvc help back-up-and-restore\n  idsvc help reference/events\n  idsvc help rotate secret"
    )]
    Help(help::Help),
    /// Completion scripts for shells
    Completions(completions::Completions),
    /// Manual pages
    Man(man::Man),
}

impl Global {
    /// The sources of settings: these flags, `flags` as dotted key and value, the environment and the file.
    pub fn sources(&self, flags: Vec<(&'static str, String)>) -> Sources {
        self.collect(flags, Sources::collect)
    }

    /// The sources of settings for the development server.
    pub fn sources_for_development(&self, flags: Vec<(&'static str, String)>) -> Sources {
        self.collect(flags, Sources::collect_for_development)
    }

    fn collect(
        &self,
        flags: Vec<(&'static str, String)>,
        collect: impl FnOnce(&[(&'static str, String)], &[(String, String)], Option<&Path>) -> Sources,
    ) -> Sources {
        let (mut flags, mut variables, mut faults) = (flags, Vec::new(), Vec::new());
        if let Some(directory) = &self.data_dir {
            match directory.to_str() {
                Some(directory) => flags.push(("data_dir", directory.to_owned())),
                None => faults.push(not_utf8("--data-dir")),
            }
        }
        for (name, value) in std::env::vars_os() {
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => variables.push((name, value)),
                (Ok(name), Err(_)) if is_read(&name) => faults.push(not_utf8(&name)),
                // Variables of other programs may have any value.
                _ => {}
            }
        }
        let mut sources = collect(&flags, &variables, self.config.as_deref());
        sources.memory = MemoryLimit::of_this_process();
        sources.faults.extend(faults);
        sources
    }
}

fn not_utf8(place: &str) -> Fault {
    Fault {
        place: place.to_owned(),
        message: "its value is not UTF-8: use another one".to_owned(),
    }
}

/// Runs the command line that the process was started with.
pub fn main() -> ExitCode {
    #[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
    crate::net::nss::use_built_in_resolvers();
    // A core dump would hold the private keys in the clear. A resource limit does not keep a core from a handler program.
    #[cfg(target_os = "linux")]
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // With the signal handled, a file over the size limit is an error of writing and does not end the process. If the
    // handler cannot be set, the default action stays.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let (mut out, mut err) = (io::stdout().lock(), crate::observe::log::StandardError);
    let mut output = Output::new(&mut out, &mut err);
    let words: Vec<_> = std::env::args_os().collect();
    let result = match Cli::try_parse_from(&words) {
        Ok(cli) => {
            output.json = cli.global.json;
            run(cli, &mut output)
        }
        Err(error) => {
            let words: Vec<_> = words
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            let error = suggestions::improve(error, &words);
            let printed = error.print().and_then(|()| output.out.flush());
            if error.use_stderr() {
                return ExitCode::from(Exit::Misused as u8);
            }
            printed.map_err(CliError::from)
        }
    };
    let exit = match result {
        Ok(()) | Err(CliError::BrokenPipe) => Exit::Done,
        Err(error) => {
            output.complain(&error);
            match error {
                CliError::Misused(_) => Exit::Misused,
                _ => Exit::Refused,
            }
        }
    };
    crate::observe::log::flush();
    ExitCode::from(exit as u8)
}

/// Runs one command.
pub fn run(cli: Cli, output: &mut Output<'_>) -> Result<(), CliError> {
    let connector = AdminConnector::of(&cli.global);
    match cli.noun {
        Noun::Serve(serve) => serve::run(&serve, &cli.global, output),
        Noun::Init => init::run(&connector, output),
        Noun::Migrate => migrate::run(&connector, output),
        Noun::Client(verb) => client::run(verb, &connector, output),
        Noun::User(verb) => user::run(verb, &connector, output),
        Noun::Scope(verb) => scope::run(verb, &connector, output),
        Noun::Group(verb) => group::run(verb, &connector, output),
        Noun::Provider(verb) => provider::run(verb, &connector, output),
        Noun::Api(verb) => api::run(verb, &connector, output),
        Noun::Key(verb) => key::run(verb, &connector, output),
        Noun::Session(verb) => session::run(verb, &connector, output),
        Noun::Theme(verb) => theme::run(verb, &connector, output),
        Noun::Mail(verb) => mail::run(verb, &connector, output),
        Noun::Config(verb) => config::run(verb, &cli.global, &connector, output),
        Noun::Apply(request) => state::apply(&request, &connector, output),
        Noun::Export(request) => export::run(&request, &connector, output),
        Noun::Doctor(request) => doctor::run(&request, &cli.global, &connector, output),
        Noun::Health(request) => health::run(&request, &cli.global, output),
        Noun::Events(request) => events::run(request, &connector, output),
        Noun::Backup(request) => backup::run(&request, &connector, output),
        Noun::Restore(request) => restore::run(&request, &connector, output),
        Noun::Compact => compact::run(&connector, output),
        Noun::Help(request) => help::run(&request, output),
        Noun::Completions(completions) => completions::run(&completions, output),
        Noun::Man(request) => man::run(&request, output),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::admin::operation::Effect;
    use crate::admin::operations::OPERATIONS;
    use crate::config::reference::settings;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// `doctor` calls the operations that have no command.
    #[test]
    fn every_operation_has_its_command_and_only_what_destroys_asks() {
        let command_line = Cli::command();
        for operation in OPERATIONS {
            if ["installation state", "database size"].contains(&operation.name) {
                assert_eq!(operation.effect, Effect::Read);
                continue;
            }
            let words = operation.name.split(' ');
            let command = words.fold(&command_line, |command, word| {
                let found = command.find_subcommand(word);
                found.unwrap_or_else(|| panic!("there is no command {}", operation.name))
            });
            let asks = command.get_arguments().any(|flag| flag.get_long() == Some("yes"));
            let destroys = operation.effect == Effect::Destructive;
            assert!(destroys || !asks, "{}", operation.name);
            assert!(operation.about.ends_with('.'), "{}", operation.name);
        }
    }

    #[test]
    fn every_setting_has_its_flag() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        let flags: Vec<String> = serve
            .get_arguments()
            .chain(command.get_arguments())
            .filter_map(|flag| flag.get_long().map(|long| format!("--{long}")))
            .collect();
        for setting in settings() {
            assert!(flags.contains(&setting.flag_name()), "{}", setting.flag_name());
        }
    }

    #[test]
    fn every_repeatable_flag_of_an_update_adds_and_removes_members_too() {
        let command = Cli::command();
        let updates = command.get_subcommands().filter_map(|noun| {
            let update = noun.find_subcommand("update")?;
            Some((noun.get_name(), update))
        });
        let mut count = 0;
        for (noun, update) in updates {
            let repeatable = update
                .get_arguments()
                .filter(|flag| matches!(flag.get_action(), clap::ArgAction::Append));
            let flags: Vec<_> = repeatable.filter_map(clap::Arg::get_long).collect();
            let is_edit = |flag: &str| flag.starts_with("add-") || flag.starts_with("remove-");
            for list in flags.iter().filter(|flag| !is_edit(flag)) {
                count += 1;
                for edit in [format!("add-{list}"), format!("remove-{list}")] {
                    assert!(
                        flags.contains(&edit.as_str()),
                        "idsvc {noun} update has no --{edit}"
                    );
                }
            }
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn json_may_stand_anywhere() {
        for line in [
            "idsvc --json client list",
            "idsvc client --json list",
            "idsvc client list --json",
        ] {
            assert!(
                Cli::try_parse_from(line.split(' ')).unwrap().global.json,
                "{line}"
            );
        }
    }

    #[test]
    fn a_typing_error_gets_a_suggestion() {
        let error = Cli::try_parse_from(["idsvc", "clinet", "list"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("client"), "{error}");
    }
}
