//! Says what people read about an API on the consent page where it has no words for them.

use std::fmt::Write;

use super::admin_connection::AdminConnector;
use super::output::Output;
use crate::admin::scope::ListScopes;
use crate::config::Settings;
use crate::oauth::{Api, RegisteredScope};
use crate::themes::folder::ThemeFolder;
use crate::themes::theme_set::Themes;

/// The most scope values that are named.
const MAX_VALUES: usize = 5;

/// What people read of an API without words, and the command that gives it words.
pub(super) struct MissingWords {
    pub message: String,
    pub remedy: String,
}

/// What is missing for people: the name of the API, and texts of scope values that neither the API nor the registered
/// scope value nor the theme has.
pub(super) fn missing_words(
    api: &Api,
    scopes: &[RegisteredScope],
    settings: &Settings,
) -> Option<MissingWords> {
    let folder = ThemeFolder::new(&settings.theme_dir, &settings.data_dir);
    let themes = Themes::open("", &settings.theme, Some(folder)).current();
    let theme = themes.theme(&settings.theme);
    let has_text = |value: &str| {
        let mut locales = theme.into_iter().flat_map(|theme| theme.locales());
        let mut registered = scopes.iter().filter(|scope| scope.name == value);
        api.scope_texts.contains_key(value)
            || registered.any(|scope| scope.metadata.text.is_some())
            || locales.any(|locale| locale.scope(value).is_some())
    };
    let values: Vec<&str> = api.scope.iter().filter(|value| !has_text(value)).collect();
    let (mut shown, mut flags) = (Vec::new(), String::new());
    if api.name.is_none() {
        shown.push(api.identifier.as_str());
        flags += " --name NAME";
    }
    for value in values.iter().take(MAX_VALUES) {
        shown.push(value);
        // Writing to a string does not fail.
        let _ = write!(flags, " --add-scope {value}=TEXT");
    }
    if shown.is_empty() {
        return None;
    }
    let more = match values.len().saturating_sub(MAX_VALUES) {
        0 => String::new(),
        more => format!(" and {more} more scope values"),
    };
    Some(MissingWords {
        message: format!(
            "people read {}{more} on the consent page, because the API has no words for them",
            shown.join(", ")
        ),
        remedy: format!("idsvc api update {}{flags}", api.id),
    })
}

/// Prints what is missing for people after an API was added or changed.
pub(super) fn hint_at_missing_words(api: &Api, connector: &AdminConnector<'_>, output: &mut Output<'_>) {
    let (Ok(settings), Ok(scopes)) = (connector.settings(output), connector.call(ListScopes, output)) else {
        return;
    };
    if let Some(MissingWords { message, remedy }) = missing_words(api, &scopes, &settings) {
        output.hint(&format!("\nAdvice: {message}: {remedy}"));
    }
}
