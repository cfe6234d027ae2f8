//! Collects the values from flags, environment and file.

use std::path::{Path, PathBuf};

use super::fault::Fault;
use super::file::{self, ParsedFile};
use super::nearest::nearest;
use super::reference::{find, settings};
use super::setting::Setting;
use super::source::{Origin, RawValue, SettingValue, Sources};

/// The environment variable that names the file.
pub const CONFIG_VARIABLE: &str = "IDSVC_CONFIG";

/// The variable in which the service manager passes the data directory.
const STATE_VARIABLE: &str = "STATE_DIRECTORY";

/// Whether an environment variable of this name is read.
pub fn is_read(name: &str) -> bool {
    name.starts_with("IDSVC_") || name == STATE_VARIABLE
}

/// The paths of the file if none is named.
pub const USUAL_FILES: [&str; 2] = ["./idsvc.toml", "/etc/idsvc/idsvc.toml"];

impl Sources {
    /// Collects the values of flags (dotted key and value), environment and file. `named` is the file of `--config`.
    pub fn collect(
        flags: &[(&'static str, String)],
        variables: &[(String, String)],
        named: Option<&Path>,
    ) -> Self {
        let usual = || USUAL_FILES.into_iter().map(Path::new).find(|path| path.exists());
        let file = named
            .or_else(|| variable(variables, CONFIG_VARIABLE).map(Path::new))
            .or_else(usual);
        Self::with_file(flags, variables, file)
    }

    /// The same for the development server, which reads no file but the one of `--config`. Others are those of an
    /// installed service, and lead into its data directory.
    pub fn collect_for_development(
        flags: &[(&'static str, String)],
        variables: &[(String, String)],
        named: Option<&Path>,
    ) -> Self {
        Self::with_file(flags, variables, named).for_development()
    }

    fn with_file(
        flags: &[(&'static str, String)],
        variables: &[(String, String)],
        file: Option<&Path>,
    ) -> Self {
        let mut sources = Self::default();
        for (key, value) in flags {
            if let Some(setting) = find(key) {
                let origin = Origin::Flag(setting.flag_name());
                sources.values.push(SettingValue {
                    key: setting.key,
                    raw: RawValue::Untyped(value.clone()),
                    origin,
                });
            }
        }
        let set = variables.iter().filter(|(_, value)| !value.trim().is_empty());
        sources.read_environment(set);
        sources.state_directory = variable(variables, STATE_VARIABLE)
            .and_then(|list| list.split(':').next())
            .map(PathBuf::from);
        if let Some(path) = file {
            sources.read_file(path);
        }
        sources
    }

    /// Reads the environment. An unknown variable that begins with `IDSVC_` is a warning, not a fault.
    fn read_environment<'a>(&mut self, variables: impl Iterator<Item = &'a (String, String)>) {
        for (name, value) in
            variables.filter(|(name, value)| name.starts_with("IDSVC_") && !is_injected(name, value))
        {
            match settings().find(|setting| setting.env_name() == *name) {
                Some(setting) => self.values.push(SettingValue {
                    key: setting.key,
                    raw: RawValue::Untyped(value.clone()),
                    origin: Origin::Environment(name.clone()),
                }),
                None if name == CONFIG_VARIABLE => {}
                None => {
                    let names: Vec<String> = settings().map(Setting::env_name).collect();
                    self.warnings
                        .push(match nearest(name, names.iter().map(String::as_str)) {
                            Some(similar) => format!("{name} sets nothing: did you mean {similar}?"),
                            None => format!("{name} sets nothing"),
                        });
                }
            }
        }
    }

    fn read_file(&mut self, path: &Path) {
        self.take(match std::fs::read_to_string(path) {
            Ok(text) => file::parse(&text, path),
            Err(error) => ParsedFile::unreadable(vec![Fault {
                place: path.display().to_string(),
                message: format!("the configuration file cannot be read: {error}"),
            }]),
        });
        self.file = Some(path.to_owned());
    }

    pub(super) fn take(&mut self, parsed: ParsedFile) {
        self.values.extend(parsed.values);
        self.faults.extend(parsed.faults);
        self.unread.extend(parsed.unread);
    }
}

/// Whether Kubernetes sets this variable for a service in the same namespace whose name begins with `idsvc`, as in
/// `IDSVC_SERVICE_HOST` and `IDSVC_PORT_443_TCP_ADDR`.
fn is_injected(name: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_url = PROTOCOLS.iter().any(|protocol| {
        let rest = value.strip_prefix(&protocol.to_ascii_lowercase());
        rest.is_some_and(|rest| rest.starts_with("://"))
    });
    let is_of_port = |rest: &str| {
        let mut parts = rest.split('_');
        parts.next().is_some_and(is_number)
            && parts.next().is_some_and(|protocol| PROTOCOLS.contains(&protocol))
    };
    name.ends_with("_SERVICE_HOST")
        || (name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_")) && is_number(value)
        || name.ends_with("_PORT") && is_url
        || name
            .match_indices("_PORT_")
            .any(|(at, found)| is_of_port(&name[at + found.len()..]))
}

/// The value of an environment variable, unless it is empty or blank.
fn variable<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = variables.iter().find(|(known, _)| known == name);
    found
        .map(|(_, value)| value.as_str())
        .filter(|value| !value.trim().is_empty())
}
