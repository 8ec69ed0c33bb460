use super::*;

fn parse(text: &str) -> Manifest {
    parse_manifest(text).unwrap_or_else(|error| panic!("{error:?}"))
}

fn message(text: &str) -> (Option<usize>, String) {
    let error = parse_manifest(text).unwrap_err();
    (error.line, error.message)
}

#[test]
fn every_section_and_spelling_is_read() {
    let manifest = parse(
        r#"
[package]
name = "app"
version = "1.2.3"
[dependencies]
plain = "1"
renamed = { package = "real", version = "2", optional = true }
git = { git = "https://example.org/g", tag = "v1" }
path = { path = "../p" }
shared.workspace = true
[dependencies.long]
version = "3"
registry = "mine"
[dev-dependencies]
dev = "1"
[build_dependencies]
build = "1"
[target.'cfg(windows)'.dependencies]
win = "1"
[target.x86_64-apple-darwin.build-dependencies]
mac = "1"
"#,
    );
    let mut seen: Vec<_> = manifest
        .dependencies
        .iter()
        .map(|dependency| (dependency.line, dependency.package_name(), &*dependency.section))
        .collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            (6, "plain", "[dependencies]"),
            (7, "real", "[dependencies]"),
            (8, "git", "[dependencies]"),
            (9, "path", "[dependencies]"),
            (10, "shared", "[dependencies]"),
            (11, "long", "[dependencies]"),
            (15, "dev", "[dev-dependencies]"),
            (17, "build", "[build_dependencies]"),
            (19, "win", "[target.'cfg(windows)'.dependencies]"),
            (21, "mac", "[target.x86_64-apple-darwin.build-dependencies]"),
        ]
    );
    let optional: Vec<_> =
        manifest.dependencies.iter().filter(|dependency| dependency.optional).collect();
    assert_eq!(optional.len(), 1);
    let package = manifest.package.unwrap();
    assert_eq!(package.version, RawVersion::Own(Version::new(1, 2, 3)));
    assert_eq!(package.line, 4);
}

#[test]
fn a_package_without_a_version_is_0_0_0() {
    let package = parse("[package]\nname = \"a\"\n").package.unwrap();
    assert_eq!(package.version, RawVersion::Own(Version::new(0, 0, 0)));
}

#[test]
fn inheriting_from_oneself_is_an_error_with_its_line() {
    assert_eq!(
        message("[workspace]\n[workspace.dependencies]\nfoo.workspace = true\n"),
        (Some(3), "`workspace.dependencies.foo` inherits from itself".to_owned())
    );
    assert_eq!(
        message("[workspace.package]\nversion.workspace = true\n"),
        (Some(2), "`workspace.package.version` inherits from itself".to_owned())
    );
}

#[test]
fn contradictions_are_errors_with_their_line() {
    let dependency = |text: &str| message(&format!("[dependencies]\nx = {text}\n"));
    for (text, part) in [
        ("{ git = \"u\", path = \"p\" }", "both `git` and `path`"),
        ("{ git = \"u\", tag = \"t\", rev = \"r\" }", "more than one of"),
        ("{ optional = true }", "has no `version`"),
        ("3", "must be a string or a table"),
        ("\"one\"", "is not a version requirement"),
        ("{ version = 1 }", "must be a string"),
    ] {
        let (line, message) = dependency(text);
        assert_eq!(line, Some(2), "{text}");
        assert!(message.contains(part), "{text}: {message}");
    }
    assert_eq!(message("[package]\nversion = \"1.0.0\"\n").1, "the package has no `name`");
}

#[test]
fn patches_and_replacements_are_read() {
    let manifest = parse(
        r#"
[patch.crates-io]
a = { path = "a" }
[patch."https://example.org/g"]
b2 = { package = "b", git = "https://example.org/fork", branch = "x" }
[replace]
"c:1.0.0" = { path = "c" }
"#,
    );
    let patches: Vec<_> = manifest
        .patches
        .iter()
        .map(|patch| (&*patch.source_key, patch.dependency.package_name()))
        .collect();
    assert_eq!(patches, [("crates-io", "a"), ("https://example.org/g", "b")]);
    assert_eq!(manifest.patches[1].dependency.section, "[patch.'https://example.org/g']");
    assert_eq!(manifest.replaces[0].key, "c:1.0.0");
}

#[test]
fn a_cargo_configuration_gives_patches_paths_registries_and_includes() {
    let config = parse_cargo_config(
        r#"
paths = ["over"]
include = ["more.toml", { path = "other.toml", optional = true }]
[registries.mine]
index = "sparse+https://example.org/"
[patch.crates-io]
a = { path = "a" }
[build]
rustflags = ["-C", "target-cpu=native"]
"#,
    )
    .unwrap();
    assert_eq!(config.path_overrides, [("over".to_owned(), 2)]);
    assert_eq!(config.includes, ["more.toml", "other.toml"]);
    assert_eq!(config.registries.len(), 1);
    assert_eq!(config.patches.len(), 1);
}
