//! Runs `idsvc help`: it prints the help of a command, or a page of the guide.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::process::{Command as Program, Stdio};
use std::sync::Arc;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, CommandFactory, Parser};
use signal_hook::consts::SIGINT;
use strsim::osa_distance;

use super::output::{CliError, Output};
use super::{Cli, Exit};
use crate::guide::Guide;
use crate::guide::reference::{CommandLine, FOLDER};
use crate::guide::search::{Document, Found, search};

/// The most names that the message about an unknown one offers.
const MAX_OFFERS: usize = 5;
/// The most pages and commands that are shown, and the most characters of a line of them.
const MAX_FOUND: usize = 8;
const MAX_LINE: usize = 160;
/// The exit codes of a shell that cannot run the program, or does not find it.
const NOT_RUN: [i32; 2] = [126, 127];

/// The arguments of `idsvc help`.
#[derive(Debug, Args)]
pub struct Help {
    /// A command and its verb, a page of the guide, or words to find pages and commands by [default: list them all]
    #[arg(value_name = "TOPIC", value_parser = Topic, hide_possible_values = true)]
    pub topic: Vec<String>,
}

/// A word of a topic. Completion scripts offer the commands and the pages.
#[derive(Clone)]
struct Topic;

impl TypedValueParser for Topic {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let command = Cli::command();
        let commands = command.get_subcommands().map(|command| {
            let about = command.get_about().cloned().unwrap_or_default();
            PossibleValue::new(command.get_name().to_owned()).help(about)
        });
        let guide = Guide::open();
        let groups = guide.groups();
        let pages = groups.iter().flat_map(|group| &group.pages);
        let pages =
            pages.map(|(name, title)| PossibleValue::new((*name).to_owned()).help((*title).to_owned()));
        Some(Box::new(commands.chain(pages).collect::<Vec<_>>().into_iter()))
    }
}

/// What the reference pages say of the command line.
pub fn command_line() -> CommandLine {
    CommandLine {
        command: Cli::command(),
        exit_codes: Exit::ALL.map(|code| (code as u8, code.meaning())).to_vec(),
    }
}

/// Prints what is known of the topic. Without one, it prints all commands and pages.
pub fn run(help: &Help, output: &mut Output<'_>) -> Result<(), CliError> {
    output.only_text("help")?;
    let (guide, command_line) = (Guide::open(), command_line());
    let topic = help.topic.join(" ");
    if help.topic.is_empty() {
        return print_paged(&overview(&guide, &command_line.command), output);
    }
    if print_command_help(&help.topic)? {
        let page = format!("{FOLDER}{topic}");
        if guide.page(&page, &command_line).is_some() {
            output.line(&format!("\nmore: idsvc help {page}"))?;
        }
        return Ok(output.out.flush()?);
    }
    if let Some(page) = guide.page(&topic, &command_line) {
        return print_paged(&page, output);
    }
    let found = search(&topic, documents(&guide, &command_line));
    if found.is_empty() {
        return Err(unknown(&topic, &guide, &command_line.command));
    }
    print_paged(&found_text(&found), output)?;
    output.hint("idsvc help and a name prints the page or the command");
    Ok(())
}

/// The pages and commands with their texts. A reference page has something of everything, so it counts less.
fn documents(guide: &Guide, line: &CommandLine) -> Vec<Document> {
    let mut documents = Vec::new();
    collect_commands(&line.command, "", &mut documents);
    let groups = guide.groups();
    for (name, title) in groups.iter().flat_map(|group| &group.pages) {
        documents.push(Document {
            name: (*name).to_owned(),
            title: (*title).to_owned(),
            text: guide.page(name, line).unwrap_or_default().into_owned(),
            weight: if name.starts_with(FOLDER) { 0.3 } else { 1.0 },
        });
    }
    documents
}

/// The commands with what they do, and their flags.
fn collect_commands(command: &Command, before: &str, documents: &mut Vec<Document>) {
    for command in command.get_subcommands() {
        let name = format!("{before}{}", command.get_name());
        collect_commands(command, &format!("{name} "), documents);
        let mut text = String::new();
        for flag in command.get_arguments() {
            let long = flag
                .get_long()
                .map(|long| format!("--{long}: "))
                .unwrap_or_default();
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            // Writing to a string does not fail.
            let _ = writeln!(text, "{long}{help}");
        }
        documents.push(Document {
            name,
            title: command.get_about().map(ToString::to_string).unwrap_or_default(),
            text,
            weight: 0.8,
        });
    }
}

/// The best of what was found: a name and a title, and below them the line that fits best.
fn found_text(found: &[Found]) -> String {
    let found = found.iter().take(MAX_FOUND);
    let width = found.clone().map(|found| found.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Found { name, title, line } in found {
        let _ = writeln!(text, "{name:width$}  {title}");
        let shown: String = line.chars().take(MAX_LINE).collect();
        let rest = if shown == *line { "" } else { "…" };
        if !line.is_empty() {
            let _ = writeln!(text, "{:width$}    {shown}{rest}", "");
        }
    }
    text
}

/// Prints the help of the command that these words name, as `--help` does. False if they name no command.
fn print_command_help(words: &[String]) -> Result<bool, CliError> {
    let command = Cli::command();
    let named = words
        .iter()
        .try_fold(&command, |command, word| command.find_subcommand(word));
    if named.is_none() {
        return Ok(false);
    }
    let line = ["idsvc"].into_iter().chain(words.iter().map(String::as_str));
    match Cli::try_parse_from(line.chain(["--help"])) {
        Err(help) if help.kind() == ErrorKind::DisplayHelp => {
            help.print()?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// The help of the whole command line, and all pages of the guide.
fn overview(guide: &Guide, command: &Command) -> String {
    let mut text = command.clone().render_help().to_string();
    text += "\nThe guide, a page with idsvc help PAGE:\n";
    let groups = guide.groups();
    let pages = || groups.iter().flat_map(|group| &group.pages);
    let width = pages().map(|(name, _)| name.len()).max().unwrap_or(0);
    for group in &groups {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n  {}", group.title);
        for (name, title) in &group.pages {
            let _ = writeln!(text, "    {name:width$}  {title}");
        }
    }
    text
}

/// The error about a topic that is neither a command nor a page. It offers the names that are most similar.
fn unknown(topic: &str, guide: &Guide, command: &Command) -> CliError {
    let mut known = Vec::new();
    collect_names(command, "", &mut known);
    let groups = guide.groups();
    let pages = groups.iter().flat_map(|group| &group.pages);
    known.extend(pages.map(|(name, _)| (*name).to_owned()));
    let limit = (topic.chars().count() / 3).max(2);
    let mut similar: Vec<_> = known
        .into_iter()
        .map(|name| (distance(topic, &name), name))
        .filter(|(far, _)| *far <= limit)
        .collect();
    similar.sort();
    similar.truncate(MAX_OFFERS);
    let names: Vec<_> = similar.into_iter().map(|(_, name)| name).collect();
    CliError::Misused(if names.is_empty() {
        format!("there is no command and no page {topic:?}: idsvc help lists them")
    } else {
        format!(
            "there is no command and no page {topic:?}; similar ones are: {}",
            names.join(", ")
        )
    })
}

/// How far the topic is from a name, or from the nearest word in it.
fn distance(topic: &str, name: &str) -> usize {
    if topic.len() > 2 && name.contains(topic) {
        return 0;
    }
    let words = name.split([' ', '-', '/']).filter(|_| topic.len() > 3);
    let distances = words.map(|word| osa_distance(topic, word));
    distances.fold(osa_distance(topic, name), usize::min)
}

/// The names of all commands, each with its verbs.
fn collect_names(command: &Command, before: &str, names: &mut Vec<String>) {
    for command in command.get_subcommands() {
        let name = format!("{before}{}", command.get_name());
        collect_names(command, &format!("{name} "), names);
        names.push(name);
    }
}

/// Prints a text, with a pager if standard output is a terminal and there is one.
fn print_paged(text: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    let text = text.trim_end();
    let pager = pager().filter(|_| io::stdout().is_terminal());
    if pager.is_some_and(|mut pager| has_shown(&mut pager, text)) {
        return Ok(());
    }
    output.exact(text)
}

/// The program in `PAGER`, else less. None if `PAGER` is empty. Less starts no other program, so that a user who may run
/// `idsvc` by sudo gets no shell by it. For the same reason `PAGER` is ignored there.
fn pager() -> Option<Program> {
    let is_sudo = std::env::var_os("SUDO_UID").is_some();
    let Some(pager) = std::env::var_os("PAGER").filter(|_| !is_sudo) else {
        let mut less = Program::new("less");
        less.arg("-FRX").env("LESSSECURE", "1");
        return Some(less);
    };
    let mut shell = Program::new("sh");
    shell.arg("-c").arg(&pager).env("LESSSECURE", "1");
    Some(shell).filter(|_| !pager.is_empty())
}

/// Gives the text to the pager. False if there is no such program.
fn has_shown(pager: &mut Program, text: &str) -> bool {
    // The pager decides what an interrupt from the terminal does.
    let _ = signal_hook::flag::register(SIGINT, Arc::default());
    let Ok(mut child) = pager.stdin(Stdio::piped()).spawn() else {
        return false;
    };
    if let Some(mut input) = child.stdin.take() {
        // A reader who has seen enough leaves the rest unread.
        let _ = writeln!(input, "{text}");
    }
    child
        .wait()
        .is_ok_and(|status| status.code().is_none_or(|code| !NOT_RUN.contains(&code)))
}
