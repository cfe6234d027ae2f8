//! The bounds of a template that are checked before it is parsed.
//!
//! minijinja parses, compiles and frees a chain of operators, a chain of `elif` and nested tags by recursion, one call for
//! each link, and only some of them have a bound. A long chain ends the process: no thread has so large a stack. Blocks
//! are counted because each `include` collects those of the included template, at the price of one instruction.

use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::finding::{Finding, Severity};

/// The most words and signs in one tag. The largest tag of the built-in themes has 3.
pub const MAX_TAG_TOKENS: usize = 100;
/// How deep tags may be nested. Each `elif` is one deeper than the branch before it.
pub const MAX_TAG_DEPTH: usize = 40;
/// The most blocks in one template.
pub const MAX_BLOCKS: usize = 50;

/// The first bound that a template exceeds. Tags that cannot be read are left to the parser.
pub(super) fn check(file: &str, source: &str) -> Option<Finding> {
    let mut counter = Counter::default();
    let tokens = tokenize(source, false, SyntaxConfig::default()).map_while(Result::ok);
    let (message, line) = tokens.into_iter().find_map(|(token, span)| {
        let message = counter.count(&token, span)?;
        Some((message, counter.line))
    })?;
    Some(Finding::at_line(Severity::Refused, file, line, message))
}

#[derive(Default)]
struct Counter {
    /// The line in which the tag begins.
    line: usize,
    tokens: usize,
    is_statement: bool,
    /// For each open tag, how much deeper it made the template.
    open: Vec<usize>,
    depth: usize,
    blocks: usize,
}

impl Counter {
    /// Counts a token; a message if it is one too many.
    fn count(&mut self, token: &Token<'_>, span: Span) -> Option<String> {
        match token {
            Token::TemplateData(_) => return None,
            Token::VariableStart | Token::BlockStart => {
                self.is_statement = matches!(token, Token::BlockStart);
                self.line = usize::from(span.start_line);
                self.tokens = 0;
                return None;
            }
            Token::Ident(word) if self.is_statement && self.tokens == 0 => self.begin_statement(word),
            _ => {}
        }
        self.tokens += 1;
        if self.tokens > MAX_TAG_TOKENS {
            Some(format!("the tag has more than {MAX_TAG_TOKENS} words and signs"))
        } else if self.depth > MAX_TAG_DEPTH {
            Some(format!(
                "tags are nested deeper than {MAX_TAG_DEPTH}, where each elif counts"
            ))
        } else if self.blocks > MAX_BLOCKS {
            Some(format!("the template has more than {MAX_BLOCKS} blocks"))
        } else {
            None
        }
    }

    fn begin_statement(&mut self, word: &str) {
        match word {
            "else" | "extends" | "include" => {}
            "elif" => {
                if let Some(branches) = self.open.last_mut() {
                    *branches += 1;
                    self.depth += 1;
                }
            }
            _ if word.starts_with("end") => self.depth -= self.open.pop().unwrap_or(0),
            _ => {
                self.blocks += usize::from(word == "block");
                self.open.push(1);
                self.depth += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_chain_is_refused_with_its_line_and_a_short_one_is_not() {
        let branches = |count: usize| format!("{{% if x %}}{}{{% endif %}}", "\n{% elif x %}".repeat(count));
        let nested = |count: usize| format!("{}{}", "{% if x %}".repeat(count), "{% endif %}".repeat(count));
        let blocks = |count: usize| {
            (0..count).fold(String::new(), |all, n| {
                all + &format!("\n{{% block b{n} %}}{{% endblock %}}")
            })
        };
        let parentheses = |count: usize| format!("{{{{ {}x{} }}}}", "(".repeat(count), ")".repeat(count));
        let line_of = |template: &str| check("a.html", template).map(|finding| finding.place);
        let line = |number: usize| Some(format!("a.html line {number}"));
        for link in ["-", "not ", "x and ", "x or ", "x == ", "x if y else "] {
            let chain = |count: usize| format!("\n\n{{{{ {}x }}}}", link.repeat(count));
            assert_eq!(line_of(&chain(20_000)), line(3), "{link}");
            assert_eq!(line_of(&chain(20)), None, "{link}");
        }
        for link in [".a", "|upper", "[0]", " is x"] {
            assert_eq!(
                line_of(&format!("{{% if x{} %}}", link.repeat(15_000))),
                line(1),
                "{link}"
            );
        }
        assert_eq!(
            (line_of(&parentheses(30_000)), line_of(&parentheses(49))),
            (line(1), None)
        );
        assert_eq!(
            (line_of(&branches(5000)), line_of(&branches(39))),
            (line(41), None)
        );
        assert_eq!((line_of(&nested(6000)), line_of(&nested(40))), (line(1), None));
        assert_eq!(
            (
                line_of(&nested(1).repeat(5000)),
                line_of(&branches(39).repeat(100))
            ),
            (None, None)
        );
        assert_eq!((line_of(&blocks(51)), line_of(&blocks(50))), (line(52), None));
    }
}
