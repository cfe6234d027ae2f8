//! Themes on a disk: which files are read, and when.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use super::*;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn as_themes(&self) -> ThemeFolder {
        ThemeFolder::new(self.0.path(), self.0.path())
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn refused(folder: &Folder, name: &str) -> String {
    let themes = load("", Some(&folder.as_themes()), &Brand::default());
    assert!(themes.theme(name).is_none());
    let findings = themes.refused(name).unwrap_or_default();
    findings
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_theme_is_read_from_its_folder_and_what_is_not_its_own_is_left_alone() {
    let folder = Folder::new();
    folder.write(
        "acme/theme.toml",
        "contract = 1\nproduct_name = \"Acme\"\nlogo = \"img/a.svg\"",
    );
    folder.write("acme/img/a.svg", "<svg/>");
    folder.write("acme/README.md", "notes");
    folder.write("acme/.git/config.css", "x");
    folder.write("acme/script.js", "alert(1)");
    folder.write("stray.css", "x");
    let themes = Themes::open("/id", "acme", Some(folder.as_themes()));
    let theme = themes.theme(None);
    assert_eq!((theme.name(), theme.product_name()), ("acme", "Acme"));
    assert!(theme.file("img/a.svg").is_some());
    for name in [
        "README.md",
        "script.js",
        ".git/config.css",
        "theme.toml",
        "../stray.css",
    ] {
        assert!(theme.file(name).is_none(), "{name}");
    }
    assert_eq!(themes.theme(Some("split")).name(), "split");
    assert_eq!(
        themes.theme(Some("gone")).name(),
        "acme",
        "the chosen theme stands in"
    );
    let names: Vec<_> = themes.current().names().into_iter().map(str::to_owned).collect();
    assert_eq!(names, ["acme", "default", "split"]);
}

#[test]
fn no_link_is_followed_in_a_theme() {
    let folder = Folder::new();
    let path = |name: &str| folder.0.path().join(name);
    folder.write("outside.css", "secret");
    folder.write("acme/theme.toml", "contract = 1");
    folder.write("acme/real.css", "a{}");
    for target in ["../outside.css", "real.css", "missing.css", "/etc"] {
        symlink(target, path("acme/theme.css")).unwrap();
        assert!(
            refused(&folder, "acme").contains("theme.css: it is a link"),
            "{target}"
        );
        fs::remove_file(path("acme/theme.css")).unwrap();
    }
    fs::hard_link(path("outside.css"), path("acme/theme.css")).unwrap();
    assert!(refused(&folder, "acme").contains("theme.css: it has another name too"));
    fs::remove_file(path("acme/theme.css")).unwrap();
    assert!(
        load("", Some(&folder.as_themes()), &Brand::default())
            .theme("acme")
            .is_some()
    );
    symlink("acme", path("away")).unwrap();
    assert!(refused(&folder, "away").contains("away: it is a link"));
}

/// A link in the place of a file that was just checked would lead a browser to the private key.
#[test]
fn a_file_that_becomes_a_link_while_it_is_read_leads_nowhere() {
    let folder = Folder::new();
    let path = |name: &str| folder.0.path().join(name);
    folder.write("outside.css", "secret");
    folder.write("acme/theme.toml", "contract = 1");
    folder.write("acme/theme.css", "a{}");
    symlink("../outside.css", path("link")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each exchange puts the link in the place of the file, or the file in that of the link.
            while !is_over.load(Ordering::Relaxed) {
                let (one, other) = (path("link"), path("acme/theme.css"));
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for _ in 0..2000 {
            let read = super::super::folder::read(&folder.as_themes(), 1);
            let served = read
                .sources
                .iter()
                .filter_map(|source| source.files.get("theme.css"));
            assert!(served.into_iter().all(|css| &**css == b"a{}"));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// The log shows a piece of a text that cannot be read.
#[test]
fn no_link_leads_out_of_the_languages() {
    let folder = Folder::new();
    folder.write("outside.toml", "[texts]\nsign_in = \"Aanmelden\"");
    folder.write("locales/de.toml", "[texts]\nsign_in = \"Herein\"");
    symlink("../outside.toml", folder.0.path().join("locales/nl.toml")).unwrap();
    let themes = load("", Some(&folder.as_themes()), &Brand::default());
    let said = themes.unread_languages();
    assert!(said[0].message.contains("symbolic link"), "{said:?}");
    let default = themes.default_theme();
    assert_eq!(default.locale(Some("nl de"), None).text().sign_in, "Herein");
}

#[test]
fn what_is_too_much_is_refused() {
    let folder = Folder::new();
    folder.write("large/theme.toml", "contract = 1");
    folder.write("large/theme.css", vec![b' '; 3 * 1024 * 1024]);
    assert!(refused(&folder, "large").contains("theme.css: it is larger than 2048 KiB"));
    folder.write(
        "text/theme.toml",
        format!("contract = 1\n#{}", " ".repeat(300 * 1024)),
    );
    assert!(refused(&folder, "text").contains("theme.toml: it is larger than 256 KiB"));
    folder.write("many/theme.toml", "contract = 1");
    for number in 0..=crate::themes::MAX_FILES {
        folder.write(&format!("many/{number}.css"), "");
    }
    assert!(refused(&folder, "many").contains("at most 200 files"));
    folder.write("babel/theme.toml", "contract = 1");
    for (first, second) in (b'a'..=b'd').flat_map(|first| (b'a'..=b'z').map(move |second| (first, second))) {
        let file = format!("{}{}.toml", char::from(first), char::from(second));
        folder.write(&format!("babel/locales/{file}"), "");
        folder.write(&format!("locales/{file}"), "");
    }
    assert!(refused(&folder, "babel").contains("locales/dw.toml line 1: a theme has at most 100 languages"));
    let themes = load("", Some(&folder.as_themes()), &Brand::default());
    assert_eq!(themes.unread_languages().len(), 4, "of 104");
    folder.write("odd/theme.toml", "contract = 1");
    folder.write("odd/a b.css", "");
    assert!(refused(&folder, "odd").contains("a b.css: names of files"));
    folder.write("Upper/theme.toml", "contract = 1");
    assert!(refused(&folder, "Upper").contains("lower-case letters"));
    folder.write("pipe/theme.toml", "contract = 1");
    let status = std::process::Command::new("mkfifo")
        .arg(folder.0.path().join("pipe/theme.css"))
        .status()
        .unwrap();
    assert!(status.success());
    assert!(refused(&folder, "pipe").contains("not a regular file"));
}

#[test]
fn nobody_takes_the_name_of_a_built_in_theme() {
    let folder = Folder::new();
    folder.write("default/theme.toml", "contract = 1\nproduct_name = \"Mine\"");
    let themes = load("", Some(&folder.as_themes()), &Brand::default());
    assert_eq!(themes.theme("default").unwrap().product_name(), "idsvc");
    assert!(themes.refused("default").unwrap()[0].message.contains("built-in"));
}

#[test]
fn a_change_is_read_when_it_has_settled() {
    let folder = Folder::new();
    folder.write("acme/theme.toml", "contract = 1\nproduct_name = \"One\"");
    let themes = Themes::open("", "acme", Some(folder.as_themes()));
    assert!(!themes.refresh());
    folder.write("acme/theme.toml", "contract = 1\nproduct_name = \"Twenty\"");
    assert!(!themes.refresh(), "it may be in the middle of being written");
    assert_eq!(themes.theme(None).product_name(), "One");
    folder.write("acme/theme.css", "a{}");
    assert!(!themes.refresh(), "and it was");
    assert!(themes.refresh());
    assert_eq!(themes.theme(None).product_name(), "Twenty");
    assert!(!themes.refresh());
    fs::remove_dir_all(folder.0.path().join("acme")).unwrap();
    assert!(!themes.refresh() && themes.refresh());
    assert_eq!(themes.theme(None).name(), "default");
}

#[test]
fn a_language_file_that_is_wrong_leaves_the_themes_alone() {
    let folder = Folder::new();
    folder.write("locales/nl.toml", "[texts]\nsign_in = \"Aanmelden\"");
    folder.write("locales/xx.toml", "[texts]\nnonsense = 1");
    folder.write("locales/not_a_tag.toml", "");
    let themes = load("", Some(&folder.as_themes()), &Brand::default());
    let default = themes.default_theme();
    assert_eq!(default.locale(Some("nl"), None).text().sign_in, "Aanmelden");
    assert_eq!(default.locales().len(), 7);
    let said = themes.unread_languages();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[1].place, "theme_dir/locales/xx.toml line 2");
    let with_theme = themes.findings("split");
    assert!(
        with_theme.ends_with(said),
        "the findings about a theme include them: {with_theme:?}"
    );
    assert!(!themes.names().contains(crate::themes::folder::LANGUAGES));
}

/// Some editors write one. After the stylesheet of the service, it would make the next rule invalid.
#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let folder = Folder::new();
    let marked = |path: &str, text: &str| folder.write(path, format!("\u{feff}{text}"));
    marked("acme/theme.toml", "contract = 1");
    marked("acme/theme.css", ".card { color: red }");
    marked(
        "acme/layout.html",
        "<!DOCTYPE html><html lang=\"{{ lang }}\" dir=\"{{ dir }}\"><head>{{ head }}</head><body>{{ content }}</body></html>",
    );
    marked("acme/locales/en.toml", "[texts]\nsign_in = \"Enter\"");
    marked("locales/de.toml", "[texts]\nsign_in = \"Herein\"");
    let themes = load("", Some(&folder.as_themes()), &Brand::default());
    let theme = themes.theme("acme").unwrap();
    assert_eq!(themes.findings("acme"), []);
    let style = &theme.file("theme.css").unwrap().bytes;
    assert!(!String::from_utf8_lossy(style).contains('\u{feff}'));
    assert_eq!(theme.locale(Some("en"), None).text().sign_in, "Enter");
    assert_eq!(theme.locale(Some("de"), None).text().sign_in, "Herein");
}

#[test]
fn a_folder_that_is_not_there_holds_nothing_until_it_is() {
    let folder = Folder::new();
    let later = folder.0.path().join("later");
    let themes = Themes::open("", "acme", Some(ThemeFolder::new(&later, &later)));
    assert_eq!(themes.theme(None).name(), "default");
    folder.write("later/acme/theme.toml", "contract = 1");
    assert!(!themes.refresh() && themes.refresh());
    assert_eq!(themes.theme(None).name(), "acme");
}
