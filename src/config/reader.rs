//! Reads settings from the sources and collects all faults.

use super::fault::{ConfigError, Fault};
use super::form::{AnyForm, Form, Problem};
use super::setting::{Literal, Setting};
use super::source::{Origin, SettingValue, Sources};

/// The mark of a setting with a fault. Only the reader makes one, and it has the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Faulty(());

/// A value, unless its setting has a fault. A reader reads on after a fault, so that all are found.
pub(super) type Read<T> = Result<T, Faulty>;

/// A part that another one depends on.
pub(super) fn part<T>(read: &Read<T>) -> Read<&T> {
    read.as_ref().map_err(|faulty| *faulty)
}

/// Reads values and collects faults. A setting can be read several times, and its fault is reported once.
pub(super) struct Reader<'a> {
    pub(super) sources: &'a Sources,
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Fault>,
}

impl<'a> Reader<'a> {
    pub(super) fn of(sources: &'a Sources) -> Self {
        Self {
            sources,
            faults: sources.faults.clone(),
            warnings: Vec::new(),
        }
    }

    /// The value, if nothing at all has a fault.
    pub(super) fn finish<T>(self, value: Read<T>) -> Result<T, ConfigError> {
        match value {
            Ok(value) if self.faults.is_empty() => Ok(value),
            Ok(_) | Err(Faulty(())) => Err(ConfigError { faults: self.faults }),
        }
    }

    /// The value, or the default.
    pub(super) fn read<F: Form>(&mut self, setting: &Setting<F>) -> Read<F::Value> {
        if let Some(default) = setting.default {
            return self.read_or(setting, default);
        }
        let value = self.read_if_set(setting)?;
        value.ok_or_else(|| self.missing(setting, "it has no default"))
    }

    /// The value, or else this one.
    pub(super) fn read_or<F: Form>(&mut self, setting: &Setting<F>, default: Literal) -> Read<F::Value> {
        if let Some(value) = self.read_if_set(setting)? {
            return Ok(value);
        }
        let value = setting.form.read(&default.raw());
        value.map_err(|problem| self.problem(setting, &Origin::Default, problem))
    }

    /// The value that a flag, the environment or the file sets.
    pub(super) fn read_if_set<F: Form>(&mut self, setting: &Setting<F>) -> Read<Option<F::Value>> {
        match self.set_value(setting) {
            Some(SettingValue { raw, origin, .. }) => match setting.form.read(raw) {
                Ok(value) => Ok(Some(value)),
                Err(problem) => Err(self.problem(setting, origin, problem)),
            },
            // The file may set it to a value that could not be read. That has a fault already.
            None if self.is_unread(setting) => Err(Faulty(())),
            None => Ok(None),
        }
    }

    /// Reports the faults of all these settings, so that what reads them one by one can leave at the first.
    pub(super) fn check(&mut self, settings: &[&Setting]) {
        for setting in settings {
            if let Some(SettingValue { raw, origin, .. }) = self.set_value(setting)
                && let Err(problem) = setting.form.check(raw)
            {
                self.problem(setting, origin, problem);
            }
        }
    }

    /// Whether a flag, the environment or the file sets it.
    pub(super) fn is_set<F: ?Sized>(&self, setting: &Setting<F>) -> bool {
        self.set_value(setting).is_some()
    }

    /// Whether the file may set it to a value that could not be read.
    pub(super) fn is_unread<F: ?Sized>(&self, setting: &Setting<F>) -> bool {
        self.sources.unread.contains(&setting.key) && !self.is_set(setting)
    }

    pub(super) fn origin<F: ?Sized>(&self, setting: &Setting<F>) -> Origin {
        let set = self.set_value(setting);
        set.map_or(Origin::Default, |value| value.origin.clone())
    }

    fn set_value<F: ?Sized>(&self, setting: &Setting<F>) -> Option<&'a SettingValue> {
        let mut values = self.sources.values.iter();
        values.find(|value| value.key == setting.key)
    }

    fn problem<F: AnyForm + ?Sized>(
        &mut self,
        setting: &Setting<F>,
        origin: &Origin,
        problem: Problem,
    ) -> Faulty {
        let key = setting.key;
        let messages = match problem {
            Problem::Mistyped => vec![setting.wrong_type()],
            Problem::Empty => vec![format!("{key} is empty: give a value, as in {}", setting.example)],
            Problem::Wrong(messages) => messages
                .into_iter()
                .map(|message| format!("{key}{message}"))
                .collect(),
        };
        for message in messages {
            self.report(origin.to_string(), message);
        }
        Faulty(())
    }

    /// Reports a fault where the setting is set.
    pub(super) fn fault<F: ?Sized>(&mut self, setting: &Setting<F>, message: impl Into<String>) -> Faulty {
        self.report(self.origin(setting).to_string(), message.into())
    }

    /// Reports that a setting is missing.
    pub(super) fn missing<F: ?Sized>(&mut self, setting: &Setting<F>, why: &str) -> Faulty {
        if self.is_unread(setting) {
            return Faulty(());
        }
        let (key, env, flag) = (setting.key, setting.env_name(), setting.flag_name());
        self.report(
            key.to_owned(),
            format!("{why}: set {key} in the file, {env} or {flag}"),
        )
    }

    pub(super) fn report(&mut self, place: String, message: String) -> Faulty {
        let fault = Fault { place, message };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
        Faulty(())
    }

    /// Warns of something where the setting is set.
    pub(super) fn warn<F: ?Sized>(&mut self, setting: &Setting<F>, message: String) {
        let place = self.origin(setting).to_string();
        self.warnings.push(Fault { place, message });
    }
}
