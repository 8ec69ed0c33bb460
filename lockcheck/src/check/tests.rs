//! Property tests: whatever the texts are, reading and checking them ends without a panic. The number
//! of inputs is `PROPTEST_CASES`, 256 unless set.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::finding::Location;
use crate::parse::manifest::{Manifest, parse_cargo_config, parse_manifest};
use crate::parse::workspace::{Package, Parent, Resolver, Role};
use crate::report::{render_github, render_human, render_json};

/// A workspace of one package, if the manifest describes one.
fn workspace_of(manifest: &Manifest) -> Option<Workspace> {
    let section = manifest.package.as_ref()?;
    let dir = Path::new("/w");
    let parent = manifest.workspace.as_ref();
    let parent = parent.map(|section| Parent { section, display: "Cargo.toml", dir });
    let resolver = Resolver { display: "Cargo.toml", dir, parent, registries: &[] };
    let dependencies = manifest.dependencies.iter().map(|raw| resolver.resolve(raw));
    let patches = manifest.patches.iter().map(|raw| resolver.resolve_patch(raw));
    let replaces = manifest.replaces.iter().map(|raw| resolver.resolve_replace(raw));
    Some(Workspace {
        manifest: "Cargo.toml".to_owned(),
        lock: "Cargo.lock".to_owned(),
        packages: vec![Package {
            name: section.name.clone(),
            version: resolver.resolve_version(section).ok()?,
            dir: dir.to_owned(),
            role: Role::Member,
            at: Location {
                file: "Cargo.toml".to_owned(),
                line: section.line,
                section: String::new(),
            },
            dependencies: dependencies.collect::<Result<_, _>>().ok()?,
        }],
        patches: patches.collect::<Result<_, _>>().ok()?,
        replaces: replaces.collect::<Result<_, _>>().ok()?,
        ..Workspace::default()
    })
}

/// Reads, checks and renders. Returns whether the two texts could be compared.
fn run_all(manifest: &str, lock: &str) -> bool {
    let _ = parse_cargo_config(manifest);
    let Ok(manifest) = parse_manifest(manifest) else {
        let _ = parse_lock(lock);
        return false;
    };
    let Some(mut workspace) = workspace_of(&manifest) else { return false };
    workspace.lock_text = Some(lock.to_owned());
    let families = workspace.settings.all_families();
    for scope in [Scope::Everything, Scope::Only(&families[0])] {
        let reports = [check(&workspace, scope, Strictness::Warn)];
        render_human(&reports, "lockcheck");
        render_github(&reports);
        render_json(&reports);
    }
    true
}

const MANIFEST: &str = r#"[package]
name = "app"
version = "0.1.0"
[workspace]
[workspace.dependencies]
serde = { version = "1", features = ["derive"] }
[dependencies]
candle-core = { git = "https://github.com/acme/candle.git", rev = "a1a1a1a1" }
nn = { package = "candle-nn", git = "https://github.com/acme/candle", branch = "feat/x" }
serde.workspace = true
[target.'cfg(unix)'.build-dependencies]
local = { path = "../local", optional = true }
[patch."https://github.com/acme/candle"]
candle-nn = { git = "https://example.org/fork", tag = "v1" }
[replace]
"serde:1.0.0" = { path = "serde" }
"#;

const LOCK: &str = r#"version = 4

[[package]]
name = "app"
version = "0.1.0"
dependencies = [
 "candle-core 0.9.1 (git+https://github.com/acme/candle?rev=a1a1a1a1)",
 "candle-nn",
 "serde",
 "local 0.1.0",
]

[[package]]
name = "candle-core"
version = "0.9.1"
source = "git+https://github.com/acme/candle?rev=a1a1a1a1#a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"

[[package]]
name = "candle-core"
version = "0.9.2-rc.1"
source = "git+https://github.com/acme/candle?branch=feat%2Fx#b2b2b2b2"

[[package]]
name = "candle-nn"
version = "0.9.1"
source = "git+https://example.org/fork?tag=v1"
dependencies = ["candle-core 0.9.2-rc.1"]

[[package]]
name = "local"
version = "0.1.0"

[[package]]
name = "serde"
version = "1.0.0"
source = "registry+https://github.com/rust-lang/crates.io-index"
replace = "local 0.1.0"

[[patch.unused]]
name = "gone"
version = "1.0.0"
"#;

#[test]
fn the_texts_that_are_changed_below_can_be_compared() {
    assert!(run_all(MANIFEST, LOCK));
}

/// One change of a text.
#[derive(Debug, Clone)]
enum Edit {
    Delete(usize, usize),
    Insert(usize, String),
    Copy(usize, usize, usize),
    SwapLines(usize, usize),
}

fn apply(text: &str, edit: &Edit) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| index % (chars.len() + 1);
    match edit {
        Edit::Delete(start, length) => {
            let start = at(*start);
            let end = (start + length).min(chars.len());
            chars[..start].iter().chain(&chars[end..]).collect()
        }
        Edit::Insert(start, piece) => {
            let start = at(*start);
            chars[..start]
                .iter()
                .copied()
                .chain(piece.chars())
                .chain(chars[start..].iter().copied())
                .collect()
        }
        Edit::Copy(from, length, to) => {
            let (from, to) = (at(*from), at(*to));
            let end = (from + length).min(chars.len());
            chars[..to].iter().chain(&chars[from..end]).chain(&chars[to..]).collect()
        }
        Edit::SwapLines(a, b) => {
            let mut lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let count = lines.len();
                lines.swap(a % count, b % count);
            }
            lines.join("\n")
        }
    }
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let pieces = prop::sample::select(vec![
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "\"",
        "'",
        "'''",
        "=",
        ".",
        ",",
        "#",
        "\n",
        "\r\n",
        " ",
        "%",
        "%4",
        "%zz",
        "+",
        "?",
        "&",
        "git+",
        "registry+",
        "sparse+",
        "rev=",
        "branch=",
        "tag=",
        "://",
        "version = 5\n",
        "workspace = true",
        "[[package]]\n",
        "[patch.unused]\n",
        "0",
        "-1",
        "é",
        "\u{0}",
        "\u{feff}",
        "<<<<<<< x\n",
        "*",
        ">=1, <",
        "99999999999999999999",
        "name = \"app\"\n",
        "true",
    ]);
    prop_oneof![
        (any::<usize>(), 0usize..40).prop_map(|(start, length)| Edit::Delete(start, length)),
        (any::<usize>(), pieces).prop_map(|(start, piece)| Edit::Insert(start, piece.to_owned())),
        (any::<usize>(), ".{0,6}").prop_map(|(start, piece)| Edit::Insert(start, piece)),
        (any::<usize>(), 0usize..120, any::<usize>())
            .prop_map(|(from, length, to)| Edit::Copy(from, length, to)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::SwapLines(a, b)),
    ]
}

proptest! {
    #[test]
    fn changed_texts_are_read_and_checked_without_a_panic(
        manifest_edits in prop::collection::vec(any_edit(), 0..4),
        lock_edits in prop::collection::vec(any_edit(), 0..6),
    ) {
        let edited = |text: &str, edits: &[Edit]| {
            edits.iter().fold(text.to_owned(), |text, edit| apply(&text, edit))
        };
        run_all(&edited(MANIFEST, &manifest_edits), &edited(LOCK, &lock_edits));
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "(?s).{0,200}") {
        run_all(&text, &text);
    }
}
