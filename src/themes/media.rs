//! The media types of a theme's files, by extension and content.

/// The media type of a file that is served.
#[derive(Clone, Copy, Debug)]
pub struct Media {
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    looks_right: fn(&[u8]) -> bool,
}

const fn media(content_type: &'static str, looks_right: fn(&[u8]) -> bool) -> Media {
    Media {
        content_type,
        looks_right,
    }
}

impl Media {
    /// The type for the extension of a name; `None` for files that are not served.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        Some(match extension {
            "css" => media("text/css; charset=utf-8", is_text),
            "svg" => media("image/svg+xml", |bytes| is_text(bytes) && has(bytes, b"<svg")),
            "png" => media("image/png", |bytes| bytes.starts_with(b"\x89PNG\r\n\x1a\n")),
            "jpg" | "jpeg" => media("image/jpeg", |bytes| bytes.starts_with(b"\xff\xd8\xff")),
            "gif" => media("image/gif", |bytes| bytes.starts_with(b"GIF8")),
            "webp" => media("image/webp", |bytes| {
                bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")
            }),
            "avif" => media("image/avif", |bytes| bytes.get(4..8) == Some(b"ftyp")),
            "ico" => media("image/x-icon", |bytes| bytes.starts_with(b"\0\0\x01\0")),
            "woff" => media("font/woff", |bytes| bytes.starts_with(b"wOFF")),
            "woff2" => media("font/woff2", |bytes| bytes.starts_with(b"wOF2")),
            _ => return None,
        })
    }

    /// Whether the content looks like this type.
    pub fn fits(self, bytes: &[u8]) -> bool {
        (self.looks_right)(bytes)
    }
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'))
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_its_name_says_or_nothing() {
        let fits = |name: &str, bytes: &[u8]| Media::of_name(name).map(|media| media.fits(bytes));
        assert_eq!(
            fits("a/logo.svg", b"<?xml version=\"1.0\"?><svg></svg>"),
            Some(true)
        );
        assert_eq!(fits("logo.svg", b"<html>"), Some(false));
        assert_eq!(fits("logo.png", b"<script>alert(1)</script>"), Some(false));
        assert_eq!(fits("x.css", b"a\0b"), Some(false));
        assert_eq!(fits("x.webp", b"RIFF\0\0\0\0WEBPVP8 "), Some(true));
        assert_eq!(fits("x.woff2", b"wOF2..."), Some(true));
        for name in ["x.js", "x.html", "x.svgz", "theme.toml", "README", "x.PNG"] {
            assert_eq!(fits(name, b""), None, "{name}");
        }
    }
}
