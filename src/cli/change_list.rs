//! Prints the changes of `idsvc apply`, as they are made.

use super::output::{CliError, JsonArray, Output};
use super::terminal_text::escape_json;
use crate::admin::apply::{Action, Applied, Change, SecretChange};

/// The printed list, with what was counted so far.
pub(super) struct ChangeList {
    dry_run: bool,
    /// The array of the document, with `--json`.
    array: Option<JsonArray>,
    added: u64,
    changed: u64,
    removed: u64,
    unchanged: u64,
    has_secret: bool,
    /// Why the list could not be printed further. The changes go on: a part of a state is worse than a part of a list.
    output_error: Option<CliError>,
}

impl ChangeList {
    pub(super) fn begin(dry_run: bool, output: &mut Output<'_>) -> Self {
        let mut list = Self {
            dry_run,
            array: None,
            added: 0,
            changed: 0,
            removed: 0,
            unchanged: 0,
            has_secret: false,
            output_error: None,
        };
        if output.json {
            let begun = write!(output.out, "{{\n  \"dry_run\": {dry_run},\n  \"changes\": ")
                .and_then(|()| JsonArray::begin(output.out, "  "));
            match begun {
                Ok(array) => list.array = Some(array),
                Err(error) => list.output_error = Some(error.into()),
            }
        }
        list
    }

    /// Prints changes.
    pub(super) fn add(&mut self, applied: &Applied, output: &mut Output<'_>) {
        self.unchanged += applied.unchanged;
        for change in &applied.changes {
            match change.action {
                Action::Add => self.added += 1,
                Action::Change => self.changed += 1,
                Action::Remove => self.removed += 1,
            }
            self.has_secret |= change.client_secret.is_some();
            if self.output_error.is_none() {
                self.output_error = self.print(change, output).err();
            }
        }
    }

    fn print(&mut self, change: &Change, output: &mut Output<'_>) -> Result<(), CliError> {
        if let Some(array) = &mut self.array {
            return array.push(output.out, change, escape_json);
        }
        output.line(&heading(change))?;
        for field in &change.fields {
            let line = match (&field.before, &field.after) {
                (None, None) if field.secret == Some(SecretChange::Removed) => {
                    format!("    {} (removed)", field.name)
                }
                (None, None) => format!("    {} (new, not shown)", field.name),
                (None, Some(after)) => format!("    {} = {}", field.name, after),
                (Some(before), None) => format!("    {} = {} -> none", field.name, before),
                (Some(before), Some(after)) => {
                    format!("    {} = {} -> {}", field.name, before, after)
                }
            };
            output.line(&line)?;
        }
        if let Some(secret) = &change.client_secret {
            output.line(&format!("    client_secret = {}", secret.reveal()))?;
        }
        Ok(())
    }

    /// Prints the end of the list, with the sums. Fails if the list was not printed in full.
    pub(super) fn end(mut self, output: &mut Output<'_>) -> Result<(), CliError> {
        if let Some(error) = self.output_error.take() {
            return Err(error);
        }
        let Self {
            added,
            changed,
            removed,
            unchanged,
            ..
        } = self;
        if let Some(array) = self.array {
            array.end(output.out)?;
            return output.exact(&format!(",\n  \"unchanged\": {unchanged}\n}}"));
        }
        output.line(&format!(
            "{added} added, {changed} changed, {removed} removed, {unchanged} as they were"
        ))?;
        if self.dry_run {
            output.hint("Nothing was changed: this was a dry run.");
        } else if self.has_secret {
            output.hint("A secret that was made is shown this once; only its digest is kept.");
        }
        Ok(())
    }
}

/// The line of a change.
pub(super) fn heading(change: &Change) -> String {
    let sign = match change.action {
        Action::Add => '+',
        Action::Change => '~',
        Action::Remove => '-',
    };
    format!("{sign} {} {}", change.kind, change.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_that_of_all_changes_at_once() {
        let change = |id: &str| {
            serde_json::json!({"kind": "user", "id": id, "action": "add", "fields": [
                {"name": "claims", "before": null, "after": {"nickname": "\u{9b}\n"}}
            ]})
        };
        for changes in [vec![], vec![change("a")], vec![change("a"), change("b")]] {
            let of = |changes: &[serde_json::Value], unchanged: u64| -> Applied {
                let applied =
                    serde_json::json!({"dry_run": true, "changes": changes, "unchanged": unchanged});
                serde_json::from_value(applied).unwrap()
            };
            let (mut whole, mut parts, mut err) = (Vec::new(), Vec::new(), Vec::new());
            let mut output = Output::new(&mut whole, &mut err);
            output.document(&of(&changes, 4)).unwrap();
            let mut output = Output::new(&mut parts, &mut err);
            output.json = true;
            let mut list = ChangeList::begin(true, &mut output);
            list.add(&of(&[], 4), &mut output);
            for change in changes {
                list.add(&of(&[change], 0), &mut output);
            }
            list.end(&mut output).unwrap();
            assert_eq!(
                String::from_utf8(parts).unwrap(),
                String::from_utf8(whole).unwrap()
            );
        }
    }
}
