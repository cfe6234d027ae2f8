//! Finds the name that was probably meant.

use strsim::osa_distance;

/// The known name that is most similar to `wrong`, if it is similar enough.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wrong.chars().count() / 3).max(2);
    known
        .map(|name| (osa_distance(wrong, name), name))
        .filter(|(far, _)| *far <= limit)
        .min()
        .map(|(_, name)| name)
}
