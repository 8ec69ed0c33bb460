//! Input that cannot be read: one clear error with its path, exit code 2.

use std::io::{Seek as _, SeekFrom, Write as _};

use testkit::{Ran, Workspace};

use crate::LOCKCHECK;

const PACKAGE: &str = "[package]\nname = \"app\"\nversion = \"0.1.0\"\n";

struct Tree {
    workspace: Workspace,
}

impl Tree {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let workspace = Workspace::empty(LOCKCHECK);
        for (name, body) in files {
            workspace.write(name, body);
        }
        Self { workspace }
    }

    fn verify(&self, args: &[&str]) -> Ran {
        let home = self.workspace.path("no-cargo-home");
        self.workspace.command(args).env("CARGO_HOME", home).run()
    }

    /// The run fails with 2 and one error that holds every part.
    fn fails(&self, args: &[&str], parts: &[&str]) {
        let ran = self.verify(args).exits_with(2);
        assert_eq!(ran.stderr.matches("error: ").count(), 1, "{ran}");
        assert!(ran.stdout.is_empty(), "{ran}");
        for part in parts {
            assert!(ran.stderr.contains(part), "no `{part}` in:\n{ran}");
        }
    }
}

#[test]
fn a_syntax_error_has_path_and_line() {
    let tree = Tree::new(&[("Cargo.toml", b"[package]\nname = \"a\nversion = 1\n")]);
    tree.fails(&[], &["error: Cargo.toml:2: "]);
    let member = Tree::new(&[
        ("Cargo.toml", b"[workspace]\nmembers = [\"m\"]\n"),
        ("m/Cargo.toml", b"[package]\n\nname == 1\n"),
    ]);
    member.fails(&[], &["error: m/Cargo.toml:3: "]);
    let config =
        Tree::new(&[("Cargo.toml", PACKAGE.as_bytes()), (".cargo/config.toml", b"paths = 3\n")]);
    config.fails(&[], &["error: .cargo/config.toml:1: `paths` must be an array"]);
}

#[test]
fn a_directory_is_no_file() {
    Tree::new(&[("Cargo.toml/x", b"")]).fails(&[], &["`Cargo.toml` is a directory, not a file"]);
    let tree = Tree::new(&[("ws/Cargo.toml", PACKAGE.as_bytes())]);
    tree.fails(
        &["--manifest-path", "ws"],
        &["`ws` is a directory, not a manifest", "hint: give --manifest-path ws/Cargo.toml"],
    );
    std::fs::create_dir(tree.workspace.path("ws/Cargo.lock")).unwrap();
    tree.fails(&["--manifest-path", "ws/Cargo.toml"], &["`ws/Cargo.lock` is a directory"]);
}

#[test]
fn a_lock_of_50_mb_is_refused() {
    let tree = Tree::new(&[("Cargo.toml", PACKAGE.as_bytes())]);
    let mut lock = std::fs::File::create(tree.workspace.path("Cargo.lock")).unwrap();
    lock.write_all(b"version = 4\n#").unwrap();
    lock.seek(SeekFrom::Start(50_000_000 - 1)).unwrap();
    lock.write_all(b"\n").unwrap();
    tree.fails(&[], &["`Cargo.lock` has 50000000 bytes; the limit is 33554432"]);
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_in_a_circle_is_an_error() {
    use std::os::unix::fs::symlink;
    let files: &[(&str, &[u8])] = &[
        ("Cargo.toml", b"[workspace]\nmembers = [\"crates/*\"]\n"),
        ("crates/a/Cargo.toml", b"[package]\nname = \"a\"\n"),
    ];
    for target in ["loop", "..", "../.."] {
        let tree = Tree::new(files);
        symlink(target, tree.workspace.path("crates/loop")).unwrap();
        tree.fails(&[], &["error: Cargo.toml:2: member `crates/*` reaches `crates/loop`", "link"]);
    }
    // A pattern that descends does not follow links.
    let tree = Tree::new(&[
        ("Cargo.toml", b"[workspace]\nmembers = [\"crates/**/p\"]\n"),
        ("crates/a/p/Cargo.toml", b"[package]\nname = \"a\"\n"),
        ("Cargo.lock", b"version = 4\n[[package]]\nname = \"a\"\nversion = \"0.0.0\"\n"),
    ]);
    symlink("..", tree.workspace.path("crates/a/up")).unwrap();
    tree.verify(&[]).exits_with(0);
}

#[test]
fn inheriting_in_a_circle_is_an_error() {
    let own = Tree::new(&[(
        "Cargo.toml",
        b"[workspace]\n[workspace.dependencies]\nfoo.workspace = true\n",
    )]);
    own.fails(&[], &["error: Cargo.toml:3: `workspace.dependencies.foo` inherits from itself"]);
    let pointers = Tree::new(&[
        ("a/Cargo.toml", b"[package]\nname = \"a\"\nworkspace = \"../b\"\n"),
        ("b/Cargo.toml", b"[package]\nname = \"b\"\nworkspace = \"../a\"\n"),
    ]);
    pointers.fails(
        &["--manifest-path", "a/Cargo.toml"],
        &["error: a/Cargo.toml:3: `package.workspace` points at `b/Cargo.toml`", "hint: "],
    );
    let nowhere =
        Tree::new(&[("Cargo.toml", b"[package]\nname = \"a\"\nversion.workspace = true\n")]);
    nowhere.fails(&[], &["error: Cargo.toml:3: the version is inherited"]);
}

#[test]
fn bytes_that_are_no_utf_8_have_path_and_line() {
    let manifest = Tree::new(&[("Cargo.toml", b"[package]\nname = \"\xff\"\n")]);
    manifest.fails(&[], &["error: Cargo.toml:2: not UTF-8"]);
    let lock =
        Tree::new(&[("Cargo.toml", PACKAGE.as_bytes()), ("Cargo.lock", b"version = 4\n\n\xfe\n")]);
    lock.fails(&[], &["error: Cargo.lock:3: not UTF-8"]);
}

#[test]
fn a_member_that_is_not_there_is_an_error() {
    let tree = Tree::new(&[
        ("Cargo.toml", b"[workspace]\nmembers = [\n\"a\",\n\"gone\"]\n"),
        ("a/Cargo.toml", b"[package]\nname = \"a\"\n"),
        ("b/Cargo.toml", b"[package]\nname = \"b\"\n"),
    ]);
    tree.fails(&[], &["error: Cargo.toml:4: member `gone` leads to `gone/Cargo.toml`", "hint: "]);
    let stranger = Tree::new(&[
        ("Cargo.toml", b"[workspace]\nmembers = [\"a\"]\n"),
        ("a/Cargo.toml", b"[package]\nname = \"a\"\n"),
        ("b/Cargo.toml", b"[package]\nname = \"b\"\n"),
    ]);
    stranger.fails(
        &["--manifest-path", "b/Cargo.toml"],
        &["`b/Cargo.toml` is not a member of the workspace `Cargo.toml`", "hint: "],
    );
}

#[test]
fn usage_errors_name_what_is_known() {
    let tree = Tree::new(&[
        ("Cargo.toml", PACKAGE.as_bytes()),
        ("Cargo.lock", b"version = 4\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\n"),
    ]);
    tree.fails(&["--only", "cudarc"], &["no family is named `cudarc`; known are candle", "hint: "]);
    tree.fails(&["--manifest-path", "Cargo.lock"], &["`Cargo.lock` is not named Cargo.toml"]);
    tree.fails(&["--manifest-path", "gone/Cargo.toml"], &["cannot read `gone/Cargo.toml`"]);
    tree.fails(&["--candle-repo", "."], &["`.` is not a git repository", "hint: "]);
    tree.verify(&["--json", "--github"]).exits_with(2);
    tree.verify(&["--old", "abc"]).exits_with(2);
    tree.verify(&["--candle-repo", ".", "--require-ancestor"]).exits_with(2);
}

#[test]
fn an_unknown_setting_is_an_error() {
    let manifest = format!("{PACKAGE}[workspace.metadata.arc.verify-lock]\ndenny = []\n");
    let tree = Tree::new(&[("Cargo.toml", manifest.as_bytes())]);
    tree.fails(&[], &["error: Cargo.toml:5: unknown key `denny`; did you mean `deny`?"]);
}
