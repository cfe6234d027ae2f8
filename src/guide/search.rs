//! Finds pages and commands by the words that are in them.

use super::synonyms::SYNONYMS;

/// Words that say nothing about a subject.
const EMPTY_WORDS: [&str; 21] = [
    "a", "an", "and", "can", "do", "for", "how", "i", "in", "is", "it", "my", "of", "on", "or", "the", "to",
    "use", "what", "why", "with",
];
/// The weights of a word in the title, in a heading and in the text.
const IN_TITLE: f64 = 12.0;
const IN_HEADING: f64 = 4.0;
const IN_TEXT: f64 = 1.0;
/// What a synonym counts, compared with the word itself; a word that only begins with the one that was asked for.
const SYNONYM: f64 = 0.6;
const BEGINNING: f64 = 0.4;
/// The shortest word of which the beginning is enough.
const SHORTEST_BEGINNING: usize = 4;

/// A page or a command.
pub struct Document {
    /// What `idsvc help` is asked for to print it.
    pub name: String,
    pub title: String,
    /// In Markdown.
    pub text: String,
    /// How much it counts, compared with a page about one task.
    pub weight: f64,
}

/// A document that has what was asked for.
pub struct Found {
    pub name: String,
    pub title: String,
    /// The line that fits best, without Markdown; empty if it is the title.
    pub line: String,
}

/// What one word or phrase of the question may be called, with what each name counts.
struct Term(Vec<Name>);

struct Name {
    words: String,
    weight: f64,
}

/// The documents that have all words of the question or synonyms of them, best first.
pub fn search(question: &str, documents: impl IntoIterator<Item = Document>) -> Vec<Found> {
    let terms = terms_of(question);
    let mut found: Vec<_> = Vec::new();
    for document in documents {
        let Some(score) = score(&document, &terms) else {
            continue;
        };
        let line = best_line(&document.text, &terms);
        let Document {
            name, title, weight, ..
        } = document;
        found.push((score * weight, Found { name, title, line }));
    }
    found.sort_by(|(one, first), (other, second)| {
        other.total_cmp(one).then_with(|| first.name.cmp(&second.name))
    });
    found.into_iter().map(|(_, found)| found).collect()
}

/// The words of a text between spaces, in lower case and in the singular.
fn words_of(text: &str) -> String {
    let mut words = String::from(" ");
    for word in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        let word = word.to_lowercase();
        let singular = word
            .strip_suffix('s')
            .filter(|rest| rest.len() > 2 && !rest.ends_with('s'));
        words += singular.unwrap_or(&word);
        words.push(' ');
    }
    words
}

/// The terms of a question. A phrase with synonyms is one term.
fn terms_of(question: &str) -> Vec<Term> {
    let words = words_of(question);
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut terms = Vec::new();
    let mut rest = words.as_slice();
    while let [first, after @ ..] = rest {
        let phrases = SYNONYMS
            .iter()
            .flat_map(|group| *group)
            .map(|name| words_of(name));
        let begins = |phrase: &String| {
            let phrase: Vec<_> = phrase.split_whitespace().collect();
            rest.starts_with(&phrase).then_some(phrase.len())
        };
        if let Some(length) = phrases.filter_map(|phrase| begins(&phrase)).max() {
            let (phrase, after) = rest.split_at(length);
            terms.push(Term::of(&phrase.join(" ")));
            rest = after;
        } else {
            if !EMPTY_WORDS.contains(first) {
                terms.push(Term::of(first));
            }
            rest = after;
        }
    }
    terms
}

impl Term {
    /// The words, and their synonyms.
    fn of(words: &str) -> Self {
        let words = format!(" {words} ");
        let groups = SYNONYMS
            .iter()
            .map(|group| group.iter().map(|name| words_of(name)));
        let groups = groups.filter(|group| group.clone().any(|name| name == words));
        let others = groups.flatten().filter(|name| *name != words);
        let mut names: Vec<_> = others
            .map(|words| Name {
                words,
                weight: SYNONYM,
            })
            .collect();
        names.insert(0, Name { words, weight: 1.0 });
        Self(names)
    }

    /// How well a line has it. `words` are those of the line.
    fn fit(&self, words: &str) -> f64 {
        let fits = self.0.iter().map(|name| name.weight * name.fit(words));
        fits.fold(0.0, f64::max)
    }
}

impl Name {
    fn fit(&self, words: &str) -> f64 {
        let beginning = self.words.trim_end();
        if words.contains(&self.words) {
            1.0
        } else if beginning.trim_start().len() >= SHORTEST_BEGINNING && words.contains(beginning) {
            BEGINNING
        } else {
            0.0
        }
    }
}

/// How well the document has the terms. `None` if it lacks one.
fn score(document: &Document, terms: &[Term]) -> Option<f64> {
    let title = words_of(&format!("{} {}", document.name, document.title));
    let lines: Vec<_> = document
        .text
        .lines()
        .map(|line| (words_of(line), line.starts_with("##")))
        .collect();
    let mut sum = 0.0;
    for term in terms {
        let (mut heading, mut text) = (0.0_f64, 0.0);
        for (words, is_heading) in &lines {
            let fit = term.fit(words);
            if *is_heading {
                heading = heading.max(fit);
            } else {
                text += fit;
            }
        }
        let score = IN_TITLE * term.fit(&title) + IN_HEADING * heading + IN_TEXT * f64::ln_1p(text);
        if score <= 0.0 {
            return None;
        }
        sum += score;
    }
    (sum > 0.0).then_some(sum)
}

/// The line below the title that has most of the terms, the first of several. A heading is not a line of its own.
fn best_line(text: &str, terms: &[Term]) -> String {
    let mut best = (0.0, "");
    for line in text.lines().filter(|line| !line.starts_with(['#', '`'])) {
        let words = words_of(line);
        let fit: f64 = terms.iter().map(|term| term.fit(&words)).sum();
        if fit > best.0 {
            best = (fit, line);
        }
    }
    plain(best.1)
}

/// A line without Markdown.
fn plain(line: &str) -> String {
    let line = line.trim_start_matches(['-', '>', ' ']).trim_matches(['|', ' ']);
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text += rest;
    text.replace(" | ", ": ").replace(['`', '[', '*'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(name: &str, title: &str, text: &str) -> Document {
        Document {
            name: name.to_owned(),
            title: title.to_owned(),
            text: text.to_owned(),
            weight: 1.0,
        }
    }

    fn names(question: &str) -> Vec<String> {
        let documents = [
            document(
                "text",
                "Other",
                "# Other\n\nA secret is [rotated](x.md) here, and `once` more.",
            ),
            document(
                "heading",
                "Something",
                "# Something\n\n## The secrets\n\nRotate it.",
            ),
            document("title", "Rotate a secret", "# Rotate a secret\n"),
            document(
                "factors",
                "Ask for a second factor",
                "# Ask for a second factor\n",
            ),
        ];
        search(question, documents)
            .into_iter()
            .map(|found| found.name)
            .collect()
    }

    #[test]
    fn a_title_comes_before_a_heading_and_that_before_the_text() {
        assert_eq!(names("rotate secret"), ["title", "heading", "text"]);
        assert_eq!(names("How to rotate the SECRETS?"), ["title", "heading", "text"]);
        assert_eq!(names("rotate nothing"), [""; 0]);
        assert_eq!(names(""), [""; 0]);
    }

    #[test]
    fn a_synonym_leads_to_what_has_another_name_here() {
        for question in ["mfa", "2FA", "totp", "two-factor", "multi factor"] {
            assert_eq!(names(question), ["factors"], "{question}");
        }
    }

    #[test]
    fn the_best_line_is_without_markdown() {
        let line = best_line(
            "# A secret\n\n- A [secret](x.md) is `rotated`.\n",
            &terms_of("secret rotated"),
        );
        assert_eq!(line, "A secret is rotated.");
    }
}
