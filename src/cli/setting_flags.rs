//! Makes a flag for every setting in [`settings`].

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::config::form::Shape;
use crate::config::reference::settings;
use crate::config::setting::Setting;

/// The settings that flags give. They override the environment and the file.
#[derive(Clone, Debug, Default)]
pub struct SettingFlags {
    given: Vec<(&'static str, String)>,
}

impl SettingFlags {
    /// The given settings, as dotted key and value.
    pub fn into_given(self) -> Vec<(&'static str, String)> {
        self.given
    }
}

/// The settings that have a flag of these commands.
fn settings_with_help() -> impl Iterator<Item = (&'static Setting, &'static str)> {
    settings().filter_map(|setting| Some((setting, setting.help?)))
}

fn arg(setting: &Setting, help: &'static str) -> Arg {
    let flag = setting.flag();
    let arg = Arg::new(flag.clone()).long(flag).value_name(setting.value_name);
    if matches!(setting.form.shape(), Shape::List { .. }) {
        let help = format!("{help}; may be repeated");
        arg.help(help).action(ArgAction::Append)
    } else {
        arg.help(help).action(ArgAction::Set)
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command
            .next_help_heading("Settings (see idsvc config reference)")
            .args(settings_with_help().map(|(setting, help)| arg(setting, help)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Vec::new();
        for (setting, _) in settings_with_help() {
            if let Some(values) = matches.get_many::<String>(&setting.flag()) {
                let values: Vec<&str> = values.map(String::as_str).collect();
                given.push((setting.key, values.join(",")));
            }
        }
        Ok(Self { given })
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
