//! All commands, with their flags.

use std::fmt::Write;

use clap::{Arg, Command};

use super::{code, section, table};

const INTRODUCTION: &str = "\
`idsvc COMMAND --help` prints the same for one command. The commands work while the service runs and while it does not, unless they say otherwise.

";

const SETTINGS: &str = "There is a flag for each [setting](settings.md) too.\n\n";

pub(super) fn text(command: &Command) -> String {
    let mut command = command.clone();
    command.build();
    let mut text = INTRODUCTION.to_owned();
    let globals = command.get_arguments().filter(|arg| arg.is_global_set());
    section(&mut text, 2, "idsvc", "Every command takes these flags.");
    text += &flags(globals);
    for command in command.get_subcommands() {
        describe(&mut text, 2, command);
    }
    text
}

/// One command, and then its verbs.
fn describe(text: &mut String, depth: usize, command: &Command) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    section(text, depth, name, &format!("{about}."));
    if command.has_subcommands() {
        for verb in command.get_subcommands() {
            describe(text, depth + 1, verb);
        }
        return;
    }
    let usage = command.clone().render_usage().to_string();
    // Writing to a string does not fail.
    let _ = writeln!(text, "```text\n{}\n```\n", usage.trim_start_matches("Usage: "));
    let own = command.get_arguments().filter(|arg| is_own(arg));
    let (settings, own): (Vec<_>, Vec<_>) = own.partition(|arg| arg.get_help_heading().is_some());
    if !own.is_empty() {
        *text += &flags(own);
    }
    if !settings.is_empty() {
        *text += SETTINGS;
    }
    if let Some(more) = command.get_after_help() {
        *text += &unwrapped(&more.to_string());
    }
}

/// Whether the argument is neither one of every command nor made by clap.
fn is_own(arg: &Arg) -> bool {
    !arg.is_global_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

fn flags<'a>(args: impl IntoIterator<Item = &'a Arg>) -> String {
    table(
        ["flag", "meaning"],
        args.into_iter().map(|arg| [spelling(arg), meaning(arg)]),
    )
}

/// The argument as it is typed.
fn spelling(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let value = arg.get_action().takes_values().then(|| {
        let names = arg.get_value_names().unwrap_or_default();
        names
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    });
    let separator = if arg.is_require_equals_set() { "=" } else { " " };
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let words = [names.join(", "), value.unwrap_or_default()];
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    code(&words.join(separator))
}

/// The help of the argument, with its possible values.
fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    if let ([default], true) = (arg.get_default_values(), arg.get_action().takes_values()) {
        // Writing to a string does not fail.
        let _ = write!(text, " [default: {}]", default.to_string_lossy());
    }
    let values = arg.get_possible_values();
    if arg.is_hide_possible_values_set() || values.is_empty() || !arg.get_action().takes_values() {
        return text;
    }
    let described = values.iter().filter(|value| !value.is_hide_set()).map(|value| {
        let name = code(value.get_name());
        match value.get_help() {
            Some(help) => format!("{name} ({help})"),
            None => name,
        }
    });
    // Writing to a string does not fail.
    let _ = write!(text, ". Values: {}", described.collect::<Vec<_>>().join(", "));
    text
}

/// The text behind a help page, as paragraphs and blocks of commands.
fn unwrapped(text: &str) -> String {
    let mut paragraphs = String::new();
    let mut is_code = false;
    let mut is_start = true;
    for line in text.lines() {
        let command = line.strip_prefix("  ");
        if command.is_some() != is_code {
            paragraphs += if is_code { "\n```\n" } else { "\n\n```text" };
            is_code = !is_code;
            is_start = false;
        }
        match command {
            Some(command) => {
                paragraphs.push('\n');
                paragraphs += command;
            }
            None if line.is_empty() => {
                paragraphs += "\n\n";
                is_start = true;
            }
            None => {
                if !is_start {
                    paragraphs.push(' ');
                }
                paragraphs += line;
                is_start = false;
            }
        }
    }
    if is_code {
        paragraphs += "\n```";
    }
    paragraphs + "\n\n"
}
