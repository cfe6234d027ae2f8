//! The reference of all settings, as `idsvc config reference` prints it.

use std::fmt::Write;

use super::reference::settings;

/// A commented file. Lines with `# ` explain. Removing the `#` before a key sets it.
pub fn reference() -> String {
    let mut text = String::from(
        "# Settings of idsvc. A flag of `idsvc serve` comes before the environment, the environment before\n\
         # this file, this file before the default. Remove the # before a key to set it.\n\
         # The flag of tls.mode is --tls-mode, and so on. A time is written 60s, 30m, 24h or 90d, never without\n\
         # its unit.\n",
    );
    let mut current = None;
    for setting in settings() {
        let (section, name) = (setting.section(), setting.name());
        if section != current {
            current = section;
            let _ = write!(text, "\n[{}]\n", section.unwrap_or_default());
        }
        text.push('\n');
        for line in setting.doc.lines() {
            let _ = writeln!(text, "# {line}");
        }
        match setting.default {
            Some(default) if default == setting.example => {}
            Some(_) => {
                let _ = writeln!(text, "# For example: {name} = {}", setting.example);
            }
            None => {
                let _ = writeln!(text, "# No default. For example: {name} = {}", setting.example);
            }
        }
        let _ = writeln!(text, "# Environment: {}", setting.env_name());
        if let Some(default) = setting.default {
            let _ = writeln!(text, "#{name} = {default}");
        }
    }
    text
}
