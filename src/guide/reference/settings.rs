//! All settings.

use std::fmt::Write;

use super::section;
use crate::config::reference::settings;

const INTRODUCTION: &str = "\
A setting can be given by its flag, its variable, or its key in the file. The flag comes before the variable, the variable before the file, and the file before the default. `idsvc serve`, `idsvc config check` and `idsvc doctor` take these flags.

[Configure it](../configure.md) says where the file is. `idsvc config reference` prints a commented file with every key.

A time has its unit: `60s`, `30m`, `24h`, `90d`. In a variable, commas separate the items of a list. A flag for a list is repeated.

";

pub(super) fn text() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut current = None;
    for setting in settings() {
        let name = setting.section();
        if current != Some(name) {
            current = Some(name);
            // Writing to a string does not fail.
            let _ = match name {
                None => writeln!(text, "## Without a section\n"),
                Some(name) => writeln!(text, "## `[{name}]`\n"),
            };
        }
        section(&mut text, 3, setting.key, &setting.doc.replace('\n', " "));
        let default = match setting.default {
            Some(default) => format!("Default: `{default}`."),
            None => "No default.".to_owned(),
        };
        let example = match setting.default {
            Some(default) if default == setting.example => String::new(),
            _ => format!(" Example: `{}`.", setting.example),
        };
        let (flag, variable) = (setting.flag_name(), setting.env_name());
        let _ = writeln!(
            text,
            "{default}{example} Flag: `{flag} {}`. Variable: `{variable}`.\n",
            setting.value_name
        );
    }
    text
}
