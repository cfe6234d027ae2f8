//! Logos of applications and providers, as the operator gave them.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use serde::{Deserialize, Serialize};

use super::fields::{Field, Form};
use super::{Fault, FaultCode};

/// An image: PNG, JPEG, WebP or SVG. It is only shown as an image, and served with a policy under which it runs and loads
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logo {
    pub media_type: String,
    /// The file, base64.
    pub data: String,
}

/// It is set to a file in base64. The media type is read from the file.
impl Field for Option<Logo> {
    type Change = String;
    const FORM: Form = Form::Text;

    fn change(&mut self, to: String, _: &str, faults: &mut Vec<Fault>) {
        *self = match Logo::read(to) {
            Ok(logo) => logo,
            Err(fault) => {
                faults.push(fault);
                None
            }
        };
    }
}

impl Logo {
    const MAX_BYTES: usize = 64 * 1024;

    /// The image of a file in base64; none if the text is empty.
    fn read(data: String) -> Result<Option<Self>, Fault> {
        if data.is_empty() {
            return Ok(None);
        }
        let bytes = STANDARD
            .decode(&data)
            .map_err(|_| FaultCode::Invalid.at(["logo"], "the logo is not base64"))?;
        if bytes.len() > Self::MAX_BYTES {
            let detail = format!("the logo is larger than {} bytes", Self::MAX_BYTES);
            return Err(FaultCode::TooLong.at(["logo"], detail));
        }
        let media_type = match bytes.as_slice() {
            [0x89, b'P', b'N', b'G', ..] => "image/png",
            [0xff, 0xd8, 0xff, ..] => "image/jpeg",
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
            [b'<', ..] if String::from_utf8_lossy(&bytes).contains("<svg") => "image/svg+xml",
            _ => {
                let detail = "the logo is neither PNG nor JPEG nor WebP nor SVG";
                return Err(FaultCode::Invalid.at(["logo"], detail));
            }
        };
        let media_type = media_type.to_owned();
        Ok(Some(Self { media_type, data }))
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.data).unwrap_or_default()
    }

    /// The media type, for `Content-Type`.
    pub fn content_type(&self) -> &'static str {
        match self.media_type.as_str() {
            "image/png" => "image/png",
            "image/jpeg" => "image/jpeg",
            "image/webp" => "image/webp",
            _ => "image/svg+xml",
        }
    }

    /// Twelve hexadecimal digits that change with the file, for its address.
    pub fn version(&self) -> String {
        Self::version_of(&self.data)
    }

    /// The version of a file in base64.
    pub fn version_of(data: &str) -> String {
        let digest = digest::digest(&digest::SHA256, data.as_bytes());
        let start = digest.as_ref().iter().take(6);
        start.fold(String::new(), |mut version, byte| {
            let _ = write!(version, "{byte:02x}");
            version
        })
    }
}
