//! Makes a flag for every setting in [`SETTINGS`].

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::config::reference::{Kind, SETTINGS, Setting};

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

fn settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| !setting.help.is_empty())
}

fn arg(setting: &Setting) -> Arg {
    let flag = setting.flag();
    let arg = Arg::new(flag.clone()).long(flag).value_name(setting.value_name);
    if setting.kind == Kind::List {
        let help = format!("{}; may be repeated", setting.help);
        arg.help(help).action(ArgAction::Append)
    } else {
        arg.help(setting.help).action(ArgAction::Set)
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command
            .next_help_heading("Settings (see idsvc config reference)")
            .args(settings().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Vec::new();
        for setting in settings() {
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
