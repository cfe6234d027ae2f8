//! The names of settings: in the file, in the environment and as flags. Also finds the most similar name.

use strsim::osa_distance;

use super::reference::{SETTINGS, Setting};

/// The setting with this key.
pub fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

impl Setting {
    /// The environment variable that sets it: `IDSVC_` and the key in upper case, dots as underscores.
    pub fn env_name(&self) -> String {
        format!("IDSVC_{}", self.key.to_uppercase().replace('.', "_"))
    }

    /// The flag of `idsvc serve` that sets it, with its dashes.
    pub fn flag_name(&self) -> String {
        format!("--{}", self.flag())
    }

    /// The name of that flag, without its dashes.
    pub fn flag(&self) -> String {
        match self.key {
            // This flag sets up a whole public service, so its name is short.
            "acme.domains" => "acme".to_owned(),
            key => key.replace(['.', '_'], "-"),
        }
    }

    /// The section of the file and the name in it. Keys at the top have no section.
    pub(super) fn section_and_name(&self) -> (Option<&'static str>, &'static str) {
        match self.key.split_once('.') {
            Some((section, name)) => (Some(section), name),
            None => (None, self.key),
        }
    }
}

/// The known name that is most similar to `wrong`, if it is similar enough.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wrong.chars().count() / 3).max(2);
    known
        .map(|name| (osa_distance(wrong, name), name))
        .filter(|(far, _)| *far <= limit)
        .min()
        .map(|(_, name)| name)
}
