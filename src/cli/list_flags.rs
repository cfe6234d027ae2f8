//! Makes `--add-X` and `--remove-X` for each flag `--X` of `update` that may be repeated, and prints what they changed.

use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use serde::Serialize;

use super::output::{CliError, Output};
use crate::admin::updated::Updated;
use crate::oauth::list_edits::ListEdits;

/// What happens to a member of a list.
#[derive(Clone, Copy)]
enum Edit {
    Add,
    Remove,
}

/// The flags that add members to the lists of `F` and remove them. A new list in `F` has them without more code. In the
/// struct of a command this member comes before that of `F`, which takes the flags of its own.
#[derive(Debug)]
pub struct ListFlags<F> {
    add: F,
    remove: F,
    /// A flag of `F` that replaces a list, beside one that changes a member of it.
    replaced: Option<String>,
}

impl<F> ListFlags<F> {
    /// The edits, each part made from its flags by `read`. `None` if no flag was given.
    pub(super) fn edits<C: Default + PartialEq>(
        self,
        read: impl Fn(F) -> Result<C, CliError>,
    ) -> Result<Option<Box<ListEdits<C>>>, CliError> {
        if let Some(list) = self.replaced {
            let message = format!(
                "--{list} replaces the list: name all its members, or use only --add-{list} and --remove-{list}"
            );
            return Err(CliError::Misused(message));
        }
        let edits = ListEdits {
            add: read(self.add)?,
            remove: read(self.remove)?,
        };
        Ok((edits != ListEdits::default()).then(|| Box::new(edits)))
    }
}

impl Edit {
    const ALL: [Self; 2] = [Self::Add, Self::Remove];

    const fn word(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
        }
    }

    fn id(self, list: &Arg) -> String {
        format!("{}-{}", self.word(), list.get_id())
    }

    /// The flag that does this to a member of the list. The text of a pair such as `NAME=TEXT` may be left out if it is
    /// removed.
    fn flag(self, list: &Arg) -> Arg {
        let long = list.get_long().unwrap_or_default();
        let value_name = value_name(list);
        let (help, value_name) = match self {
            Self::Add => (format!("Add a member to what --{long} sets"), value_name),
            Self::Remove => {
                let value_name = match value_name.split_once('=') {
                    Some((name, text)) if !name.ends_with('[') => format!("{name}[={text}]"),
                    _ => value_name,
                };
                (format!("Remove a member of what --{long} sets"), value_name)
            }
        };
        let flag = Arg::new(self.id(list))
            .long(format!("{}-{long}", self.word()))
            .help(format!("{help}; may be repeated"))
            .help_heading("Single members of lists")
            .value_name(value_name)
            .action(ArgAction::Append);
        match self {
            Self::Add => flag.value_parser(list.get_value_parser().clone()),
            Self::Remove => flag,
        }
    }

    /// The value as the flag of the list has it.
    fn value(self, list: &Arg, value: &OsStr) -> OsString {
        let name = value_name(list);
        let is_pair = name.contains('=') && !name.contains("[=");
        let mut value = value.to_owned();
        if matches!(self, Self::Remove) && is_pair && !value.to_string_lossy().contains('=') {
            value.push("=");
        }
        value
    }

    /// The members that were named for this, as if they were the whole lists.
    fn read<F: Args>(self, matches: &ArgMatches) -> Result<F, Error> {
        let mut command = F::augment_args(Command::new("idsvc").no_binary_name(true));
        let mut words = Vec::new();
        for list in lists::<F>() {
            for value in matches.get_raw(&self.id(&list)).into_iter().flatten() {
                let mut word = OsString::from(format!("--{}=", list.get_long().unwrap_or_default()));
                word.push(self.value(&list, value));
                words.push(word);
            }
            // Without the flags that the list requires, as they are not named here.
            let alone = Arg::new(list.get_id().clone())
                .long(list.get_long().unwrap_or_default().to_owned())
                .value_parser(list.get_value_parser().clone())
                .action(ArgAction::Append);
            command = command.mut_arg(list.get_id(), |_| alone);
        }
        F::from_arg_matches(&command.try_get_matches_from(words)?)
    }
}

/// The flags of `F` that replace a list.
fn lists<F: Args>() -> Vec<Arg> {
    let command = F::augment_args(Command::new("idsvc"));
    let repeated = command
        .get_arguments()
        .filter(|flag| matches!(flag.get_action(), ArgAction::Append));
    repeated.cloned().collect()
}

/// The name of the value in help.
fn value_name(list: &Arg) -> String {
    let named = list.get_value_names().and_then(|names| names.first());
    named.map_or_else(
        || list.get_long().unwrap_or_default().to_uppercase(),
        ToString::to_string,
    )
}

impl<F: Args> Args for ListFlags<F> {
    fn augment_args(command: Command) -> Command {
        let flags = lists::<F>();
        let flags = flags
            .iter()
            .flat_map(|list| Edit::ALL.map(|edit| edit.flag(list)));
        command.args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<F: Args> FromArgMatches for ListFlags<F> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let replaced = lists::<F>().into_iter().find(|list| {
            let is_edited = Edit::ALL.iter().any(|edit| is_given(&edit.id(list)));
            is_edited && is_given(list.get_id().as_str())
        });
        Ok(Self {
            add: Edit::Add.read(matches)?,
            remove: Edit::Remove.read(matches)?,
            replaced: replaced.and_then(|list| list.get_long().map(str::to_owned)),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Prints a record after an update, as `show` does, and what came into its lists and went.
pub(super) fn show_updated<V: Serialize>(
    updated: &Updated<V>,
    output: &mut Output<'_>,
    show: impl FnOnce(&V, &mut Output<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    if output.json {
        return output.document(updated);
    }
    show(&updated.view, output)?;
    for (index, change) in updated.changes.iter().enumerate() {
        let added = change.added.iter().map(|member| format!("+ {member}"));
        let removed = change.removed.iter().map(|member| format!("- {member}"));
        let members: Vec<_> = added.chain(removed).collect();
        let space = if index == 0 { "\n" } else { "" };
        output.line(&format!("{space}{}: {}", change.field, members.join(", ")))?;
    }
    Ok(())
}
