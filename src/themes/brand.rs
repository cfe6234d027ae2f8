//! The operator's name, logo and accent, for themes that do not say otherwise.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::media::Media;
use super::tokens::Colour;
use super::{DEFAULT, MAX_FILE_BYTES, Source};

/// What the default theme shows in place of the service's own name, logo and accent. Other themes inherit it. A built-in
/// theme has the operator's logo in any case, because its own one is the service's.
#[derive(Clone, Debug, Default)]
pub struct Brand {
    pub name: Option<String>,
    pub logo: Option<BrandLogo>,
    pub accent: Option<Colour>,
}

/// An image that a theme may have.
#[derive(Clone, Debug)]
pub struct BrandLogo {
    extension: String,
    bytes: Vec<u8>,
}

impl BrandLogo {
    /// Reads the file with the checks of a theme's images. The error says what is wrong with it.
    pub fn read(file: &Path) -> Result<Self, String> {
        let extension = file.extension().and_then(|extension| extension.to_str());
        let extension = extension.unwrap_or_default().to_ascii_lowercase();
        let media = Media::of_name(&format!("logo.{extension}"));
        let media = media.filter(|media| media.content_type.starts_with("image/"));
        let media = media.ok_or("a logo ends in .svg, .png, .jpg, .gif, .webp, .avif or .ico")?;
        let opened = File::open(file).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        let mut most = opened.take(MAX_FILE_BYTES + 1);
        most.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(format!("it is larger than {} KiB", MAX_FILE_BYTES / 1024));
        }
        if !media.fits(&bytes) {
            return Err(format!("the content is not {}", media.content_type));
        }
        Ok(Self { extension, bytes })
    }
}

impl Brand {
    /// Writes the brand into the files of a built-in theme.
    pub(super) fn dress(&self, source: &mut Source) {
        let manifest = source
            .files
            .get("theme.toml")
            .map(|text| String::from_utf8_lossy(text));
        let Some(Ok(mut manifest)) = manifest.map(|text| text.parse::<toml::Table>()) else {
            return;
        };
        let mut set = |key: &str, value: String| manifest.insert(key.to_owned(), value.into());
        if source.name == DEFAULT {
            if let Some(name) = &self.name {
                set("product_name", name.clone());
            }
            if let Some(accent) = self.accent {
                set("accent", accent.to_string());
            }
        }
        if let Some(logo) = &self.logo {
            let file = format!("brand.{}", logo.extension);
            set("logo", file.clone());
            set("favicon", file.clone());
            source.files.insert(file, Cow::Owned(logo.bytes.clone()));
        }
        let manifest = manifest.to_string().into_bytes();
        source.files.insert("theme.toml".to_owned(), Cow::Owned(manifest));
    }
}
