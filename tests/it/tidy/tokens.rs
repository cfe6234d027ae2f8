//! Rust as words and signs with their lines: no comments, no texts, and nothing that only a test build has.

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

impl Token {
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_part)
    }
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The tokens of a file as it is shipped. A text or a character is the token `"`, and a lifetime is one token.
pub(super) fn shipped_tokens(source: &str) -> Vec<Token> {
    without_test_items(&tokens(source))
}

fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let (length, text) = next_token(rest, first);
        if let Some(text) = text {
            found.push(Token { text, line });
        }
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

/// How long the next token is, and its text unless it is a space or a comment.
fn next_token(rest: &str, first: char) -> (usize, Option<String>) {
    let text = || Some("\"".to_owned());
    if first.is_whitespace() {
        return (first.len_utf8(), None);
    }
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if rest.starts_with("/*") {
        return (rest.find("*/").unwrap() + 2, None);
    }
    let quoted = rest.trim_start_matches(['b', 'r', 'c']);
    let prefix = rest.len() - quoted.len();
    let opening = quoted.trim_start_matches('#');
    let hashes = quoted.len() - opening.len();
    if prefix <= 2 && opening.starts_with('"') && (hashes == 0 || rest[..prefix].ends_with('r')) {
        let start = prefix + hashes + 1;
        let is_raw = rest[..prefix].contains('r');
        return (start + text_length(&rest[start..], is_raw, hashes), text());
    }
    if prefix <= 1 && quoted.starts_with('\'') {
        if let Some(length) = character_length(&quoted[1..]) {
            return (prefix + 1 + length, text());
        }
        let lifetime = &quoted[1..];
        let length = 1 + lifetime.find(|c| !is_word_part(c)).unwrap_or(lifetime.len());
        return (length, Some(quoted[..length].to_owned()));
    }
    if is_word_part(first) {
        let length = rest.find(|c| !is_word_part(c)).unwrap_or(rest.len());
        return (length, Some(rest[..length].to_owned()));
    }
    let sign = ["::", "->", "=>"].into_iter().find(|sign| rest.starts_with(sign));
    let sign = sign.unwrap_or(&rest[..first.len_utf8()]);
    (sign.len(), Some(sign.to_owned()))
}

fn text_length(inside: &str, is_raw: bool, hashes: usize) -> usize {
    if is_raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return inside.find(&end).unwrap() + end.len();
    }
    let mut is_escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            '"' if !is_escaped => return at + 1,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    panic!("a text without an end");
}

/// The length of a character up to its closing quote, or nothing if this is a lifetime.
fn character_length(inside: &str) -> Option<usize> {
    let mut characters = inside.chars();
    let first = characters.next()?;
    if first == '\\' {
        return Some(2 + inside[2..].find('\'')? + 1);
    }
    (characters.next()? == '\'').then_some(first.len_utf8() + 1)
}

fn without_test_items(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let attribute: Vec<_> = tokens[at..]
            .iter()
            .take(7)
            .map(|token| token.text.as_str())
            .collect();
        if attribute == ["#", "[", "cfg", "(", "test", ")", "]"] {
            at = end_of_item(tokens, at + 7);
        } else {
            kept.push(token.clone());
            at += 1;
        }
    }
    kept
}

/// Where the item that starts here ends: after its `;` or its `}`, or at the comma or brace after a field.
fn end_of_item(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_i32;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            "}" if depth == 0 => return at,
            ")" | "]" => depth -= 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}
