//! Why a mail was not sent.

/// Why a mail was not sent. No variant has the password in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendFault {
    /// The mail server cannot be used, for no mail. A later attempt may succeed.
    #[error("{0}")]
    Server(String),
    /// The server did not take this mail now (4yz of RFC 5321 section 4.2.1), or the connection broke. A later attempt
    /// may succeed.
    #[error("{0}")]
    Deferred(String),
    /// The server refused this mail (5yz of RFC 5321 section 4.2.1).
    #[error("{0}")]
    Refused(String),
    /// The mail cannot be sent at all.
    #[error("{0}")]
    Unsendable(String),
}

impl SendFault {
    /// Whether a later attempt may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Server(_) | Self::Deferred(_))
    }

    /// The code of the server's reply, with the enhanced code of RFC 3463 if there is one, as in `550 5.1.1`.
    pub fn code(&self) -> Option<&str> {
        let (Self::Deferred(text) | Self::Refused(text)) = self else {
            return None;
        };
        let is_code = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let (code, rest) = text.split_once(' ')?;
        if code.len() != 3 || !is_code(code) {
            return None;
        }
        let enhanced = rest.split(' ').next().unwrap_or_default();
        let is_enhanced = enhanced.contains('.') && is_code(enhanced);
        text.get(
            ..if is_enhanced {
                code.len() + 1 + enhanced.len()
            } else {
                code.len()
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_reply_has_no_text_of_the_server() {
        for (text, code) in [
            ("550 5.1.1 <a@b.example>: no such user", Some("550 5.1.1")),
            ("550 no such user", Some("550")),
            ("the connection broke", None),
            ("550", None),
        ] {
            assert_eq!(SendFault::Refused(text.to_owned()).code(), code, "{text}");
        }
    }
}
