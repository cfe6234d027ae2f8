//! The operator's name, logo and accent, for themes that do not say otherwise.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::media::Media;
use super::tokens::Colour;
use super::{DEFAULT, MAX_FILE_BYTES, Source};

/// A brand whose logo is not read yet. Only what draws or checks pages reads it, so that a missing file stops nothing else.
#[derive(Clone, Debug, Default)]
pub struct BrandSettings {
    pub name: Option<String>,
    /// The file of the logo.
    pub logo: Option<PathBuf>,
    pub accent: Option<Colour>,
}

impl BrandSettings {
    /// Reads the logo. The error says what is wrong with the file.
    pub fn read(&self) -> Result<Brand, String> {
        let mut brand = self.without_logo();
        if let Some(file) = &self.logo {
            let logo = BrandLogo::read(file);
            let logo = logo.map_err(|problem| format!("brand.logo: {}: {problem}", file.display()))?;
            brand.logo = Some(logo);
        }
        Ok(brand)
    }

    pub fn without_logo(&self) -> Brand {
        Brand {
            name: self.name.clone(),
            logo: None,
            accent: self.accent,
        }
    }
}

/// The name, the logo and the accent of the operator. They replace those of the theme `default`, which other themes
/// inherit. Every built-in theme shows the operator's logo.
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
    pub(super) fn apply_to(&self, source: &mut Source) {
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
