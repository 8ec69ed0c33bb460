//! A local clone: ancestry, moved tags, branches, ambiguous revisions. The
//! repositories are made here, with git; without git the tests say so and skip.

use testkit::{Command, Workspace};

use crate::LOCKCHECK;

const URL: &str = "https://example.org/acme/candle";

/// A clone with the commits a → b → c on `main`, and s beside b on `side`.
struct World {
    workspace: Workspace,
    a: String,
    b: String,
    c: String,
    s: String,
}

impl World {
    fn new() -> Option<World> {
        if std::process::Command::new("git").arg("--version").output().is_err() {
            testkit::skip("no git");
            return None;
        }
        let workspace = Workspace::empty(LOCKCHECK);
        std::fs::create_dir(workspace.path("clone")).unwrap();
        let git = |args: &[&str]| workspace.git_in("clone", args);
        let commit = |content: &str| {
            workspace.write("clone/file", content);
            git(&["add", "file"]);
            git(&["commit", "--quiet", "--message", content]);
            git(&["rev-parse", "HEAD"])
        };
        git(&["init", "--quiet", "--initial-branch=main"]);
        let a = commit("a");
        git(&["tag", "v1"]);
        let b = commit("b");
        git(&["tag", "v2"]);
        let c = commit("c");
        git(&["checkout", "--quiet", "-b", "side", &a]);
        let s = commit("s");
        Some(World { workspace, a, b, c, s })
    }

    fn clone(&self, args: &[&str]) -> String {
        self.workspace.git_in("clone", args)
    }

    fn app(&self, args: &[&str]) -> String {
        self.workspace.git_in("app", args)
    }

    /// Writes a workspace that pins a reference, locked at a commit.
    fn pin(&self, reference: &str, query: &str, commit: &str) {
        self.pin_from(URL, reference, query, commit);
    }

    fn pin_from(&self, url: &str, reference: &str, query: &str, commit: &str) {
        let manifest = format!(
            "[package]\nname = \"app\"\nversion = \"0.1.0\"\n[dependencies]\n\
             candle-core = {{ git = \"{url}\", {reference} }}\n"
        );
        self.workspace.write("app/Cargo.toml", manifest);
        let lock = format!(
            "version = 4\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\ndependencies = \
             [\"candle-core\"]\n\n[[package]]\nname = \"candle-core\"\nversion = \"0.9.1\"\nsource \
             = \"git+{url}?{query}#{commit}\"\n"
        );
        self.workspace.write("app/Cargo.lock", lock);
    }

    fn pin_rev(&self, rev: &str) {
        self.pin(&format!("rev = \"{rev}\""), &format!("rev={rev}"), rev);
    }

    /// Exit code, the codes with severity, and the relation.
    fn verify(&self, args: &[&str]) -> (i32, Vec<String>, Option<String>) {
        let ran = Command::new(LOCKCHECK, self.workspace.path("app"))
            .args(["--json", "--candle-repo", "../clone"])
            .args(args)
            .env("CARGO_HOME", self.workspace.path("no-cargo-home"))
            .run();
        let report = ran.json();
        let codes = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| {
                let text = |key: &str| finding[key].as_str().unwrap().to_owned();
                format!("{} {}", text("severity"), text("code"))
            })
            .collect();
        let relation = report["workspaces"][0]["ancestry"][0]["relation"].as_str();
        (ran.code.unwrap(), codes, relation.map(str::to_owned))
    }
}

#[test]
fn a_step_forward_passes_and_others_are_told_or_refused() {
    let Some(world) = World::new() else { return };
    let unknown = "0123456789".repeat(4);
    let World { a, b, c, s, .. } = &world;
    for (old, new, relation, told, required) in [
        (a, c, "forward", (0, None), (0, None)),
        (b, b, "same", (0, None), (0, None)),
        (c, a, "backward", (0, Some("warning W-BACKWARD")), (1, Some("error W-BACKWARD"))),
        (b, s, "sibling", (0, Some("warning W-SIBLING")), (1, Some("error W-SIBLING"))),
        (
            &unknown,
            c,
            "unknown-commit",
            (1, Some("error E-UNKNOWN-COMMIT")),
            (1, Some("error E-UNKNOWN-COMMIT")),
        ),
    ] {
        world.pin_rev(new);
        for (args, (exit_code, code)) in [
            (vec!["--old", old.as_str()], told),
            (vec!["--old", old.as_str(), "--require-ancestor"], required),
        ] {
            let ran = world.verify(&args);
            let codes: Vec<String> = code.into_iter().map(str::to_owned).collect();
            assert_eq!(ran, (exit_code, codes, Some(relation.to_owned())), "{relation} {args:?}");
        }
    }
    // The new commit may be given, abbreviated ones are resolved.
    world.pin_rev(a);
    let ran = world.verify(&["--old", &a[..8], "--new", "main"]);
    assert_eq!(ran, (0, vec![], Some("forward".to_owned())));
}

#[test]
fn the_old_commit_is_read_from_an_older_lock() {
    let Some(world) = World::new() else { return };
    world.pin_rev(&world.b);
    world.app(&["init", "--quiet", "--initial-branch=main"]);
    world.app(&["add", "Cargo.toml", "Cargo.lock"]);
    world.app(&["commit", "--quiet", "--message", "lock"]);
    world.pin_rev(&world.c);
    assert_eq!(world.verify(&["--base", "main"]), (0, vec![], Some("forward".to_owned())));

    let fork = "https://example.org/acme/fork";
    world.pin_from(fork, &format!("rev = \"{}\"", world.c), &format!("rev={}", world.c), &world.c);
    let (exit_code, codes, relation) = world.verify(&["--base", "main", "--require-ancestor"]);
    assert_eq!((exit_code, relation.as_deref()), (1, Some("repository-changed")));
    assert_eq!(codes, ["error W-REPOSITORY-CHANGED"]);
}

#[test]
fn an_option_as_a_revision_is_no_option() {
    let Some(world) = World::new() else { return };
    world.pin_rev(&world.a);
    let ran = world.verify(&["--old=--output=owned"]);
    assert_eq!(ran.2.as_deref(), Some("unknown-commit"));
    assert!(!world.workspace.path("clone/owned").exists());
}

#[test]
fn a_tag_that_was_moved_is_told_and_one_that_was_not_is_settled() {
    let Some(world) = World::new() else { return };
    world.pin("tag = \"v2\"", "tag=v2", &world.b);
    assert_eq!(world.verify(&[]), (0, vec![], None));
    world.pin("tag = \"v2\"", "tag=v2", &world.a);
    assert_eq!(world.verify(&[]), (0, vec!["warning W-FLOATING".to_owned()], None));
    assert_eq!(world.verify(&["--strict"]).0, 1);
}

#[test]
fn a_commit_beside_the_pinned_branch_is_told() {
    let Some(world) = World::new() else { return };
    let floating = "warning W-FLOATING".to_owned();
    world.pin("branch = \"main\"", "branch=main", &world.b);
    assert_eq!(world.verify(&[]), (0, vec![floating.clone()], None));
    world.pin("branch = \"main\"", "branch=main", &world.s);
    assert_eq!(world.verify(&[]), (0, vec![floating.clone(), floating], None));
}

#[test]
fn an_abbreviation_is_settled_unless_it_is_ambiguous() {
    let Some(world) = World::new() else { return };
    let short = |commit: &str, length: usize| commit[..length].to_owned();
    let pin = |commit: &str, length| {
        let rev = short(commit, length);
        world.pin(&format!("rev = \"{rev}\""), &format!("rev={rev}"), commit);
    };
    pin(&world.b, 6);
    assert_eq!(world.verify(&[]), (0, vec![], None));
    // Commits until two share their first four digits.
    let mut seen = vec![world.a.clone(), world.b.clone(), world.c.clone(), world.s.clone()];
    let ambiguous = loop {
        let tree = world.clone(&["rev-parse", "HEAD^{tree}"]);
        let message = format!("{}", seen.len());
        let made = world.clone(&["commit-tree", &tree, "-m", &message]);
        if seen.iter().any(|other| short(other, 4) == short(&made, 4)) {
            break made;
        }
        seen.push(made);
        assert!(seen.len() < 2000, "no two of 2000 commits share four digits");
    };
    pin(&ambiguous, 4);
    assert_eq!(world.verify(&[]), (0, vec!["warning W-SHORT-REV".to_owned()], None));
}

#[test]
fn a_locked_commit_that_the_clone_lacks_never_passes() {
    let Some(world) = World::new() else { return };
    world.pin_rev(&"0123456789".repeat(4));
    assert_eq!(world.verify(&[]), (1, vec!["error E-UNKNOWN-COMMIT".to_owned()], None));
}
