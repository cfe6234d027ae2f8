//! Marks: the logo of an application or its letter, and the initials of a user.

use maud::{Markup, html};

use super::Person;

/// An application, as pages show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub name: String,
    /// The address of its logo, if it has one.
    pub logo: Option<String>,
}

impl Mark {
    /// A made-up application with a logo.
    pub fn sample() -> Self {
        Self {
            name: "Acme Notes".to_owned(),
            logo: Some("/logos/0199f3a2-7c41-7d8e-9b60-2f1c5a7e3d94.0123456789ab".to_owned()),
        }
    }

    /// Draws the logo, or the first letter of the name. The name itself is beside it.
    pub fn draw(&self) -> Markup {
        html! {
            @match &self.logo {
                Some(logo) => img.mark src=(logo) alt="" width="48" height="48";,
                None => span.mark aria-hidden="true" { (initials(&self.name, 1)) },
            }
        }
    }
}

impl Person {
    /// Draws the initials. The name itself is beside them.
    pub fn avatar(&self) -> Markup {
        html! { span.avatar aria-hidden="true" { (initials(&self.name, 2)) } }
    }
}

/// The first letters of the first words, in capitals.
fn initials(name: &str, most: usize) -> String {
    let words = name.split_whitespace();
    let letters = words.filter_map(|word| word.chars().find(|letter| letter.is_alphanumeric()));
    letters.take(most).flat_map(char::to_uppercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initials_are_the_first_letters_of_words() {
        for (name, one, two) in [
            ("Alice Example", "A", "AE"),
            ("alice@example.com", "A", "A"),
            ("  (Jo) van der Berg", "J", "JV"),
            ("山田 太郎", "山", "山太"),
            ("\"><script>", "S", "S"),
            ("…", "", ""),
        ] {
            assert_eq!(
                (initials(name, 1).as_str(), initials(name, 2).as_str()),
                (one, two)
            );
        }
    }
}
