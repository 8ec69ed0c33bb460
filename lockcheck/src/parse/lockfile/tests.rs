use super::*;
use crate::parse::source::GitReference;

const TWO_CORES: &str = r#"
version = 4

[[package]]
name = "app"
version = "0.1.0"
dependencies = [
 "core 0.9.1 (git+https://example.org/c?rev=bbbb)",
 "gone 1.0.0",
]

[[package]]
name = "core"
version = "0.9.1"
source = "git+https://example.org/c?rev=aaaa#aaaa0"

[[package]]
name = "core"
version = "0.9.1"
source = "git+https://example.org/c?rev=bbbb#bbbb0"
"#;

#[test]
fn a_dependency_is_told_apart_by_its_source() {
    let lock = parse_lock(TWO_CORES).unwrap();
    assert_eq!(lock.packages[0].dependencies, [2]);
    assert_eq!(lock.packages[0].dangling, ["gone 1.0.0"]);
    assert_eq!(lock.named("core"), [1, 2]);
    assert!(lock.problems.is_empty());
    assert_eq!(lock.packages[2].source.commit(), Some("bbbb0"));
}

#[test]
fn versions_1_and_2_have_no_version_line() {
    let text = r#"
[root]
name = "app"
version = "0.1.0"
dependencies = ["c 0.1.0 (git+https://example.org/c?branch=a%2Fb#0123)"]

[[package]]
name = "c"
version = "0.1.0"
source = "git+https://example.org/c?branch=a%2Fb#0123"

[metadata]
"checksum x" = "y"
"#;
    let lock = parse_lock(text).unwrap();
    assert_eq!(lock.version, 2);
    assert_eq!(lock.packages[0].dependencies, [1]);
    let reference = &lock.packages[1].source.git().unwrap().reference;
    assert_eq!(*reference, GitReference::Branch("a%2Fb".to_owned()));
}

#[test]
fn crlf_comments_and_order_are_no_difference() {
    let reversed: Vec<&str> = TWO_CORES.trim().split("\n\n").collect();
    let reordered = [reversed[0], reversed[3], reversed[2], reversed[1]].join("\n\n# comment\n");
    for text in [TWO_CORES.replace('\n', "\r\n"), reordered] {
        let lock = parse_lock(&text).unwrap();
        let app = &lock.packages[lock.named("app")[0]];
        assert_eq!(lock.packages[app.dependencies[0]].source.commit(), Some("bbbb0"));
    }
}

#[test]
fn conflict_markers_are_named_with_their_line() {
    let text = TWO_CORES.replacen("[[package]]", "<<<<<<< HEAD\n[[package]]", 2);
    let error = parse_lock(&text).unwrap_err();
    let message = "it contains merge conflict markers".to_owned();
    assert_eq!(error, LockError::Broken(TextError { line: Some(4), message }));
}

#[test]
fn an_unknown_version_is_refused() {
    for version in ["0", "5", "-1", "99999999999", "\"4\""] {
        let text = TWO_CORES.replace("version = 4", &format!("version = {version}"));
        let LockError::UnknownVersion(error) = parse_lock(&text).unwrap_err() else {
            panic!("version {version} is taken for a broken lock");
        };
        assert_eq!(error.line, Some(2), "{version}");
        assert!(error.message.contains("is unknown"), "{}", error.message);
    }
}

#[test]
fn an_entry_given_twice_is_a_problem_and_the_rest_is_read() {
    let text = format!("{TWO_CORES}\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\n");
    let lock = parse_lock(&text).unwrap();
    assert_eq!(lock.problems.len(), 1);
    assert_eq!(lock.problems[0].message, "`app 0.1.0` is listed twice");
    assert_eq!(lock.packages.len(), 3);
}

#[test]
fn two_commits_of_one_source_are_still_one_entry_given_twice() {
    let text = TWO_CORES.replace("rev=bbbb", "rev=aaaa");
    assert_eq!(parse_lock(&text).unwrap().problems.len(), 1);
}

#[test]
fn what_is_missing_or_wrong_has_its_line() {
    let error = |text| parse_lock(text).unwrap_err().text().clone();
    let no_version = "[[package]]\nname = \"a\"\n";
    assert_eq!(error(no_version).message, "a package entry has no `version`");
    let bad_version = "[[package]]\nname = \"a\"\nversion = \"1\"\n";
    assert_eq!(error(bad_version).line, Some(3));
    let no_array = "package = 3\n";
    assert_eq!(error(no_array).line, Some(1));
}

#[test]
fn an_empty_text_is_a_lock_without_packages() {
    assert!(parse_lock("").unwrap().packages.is_empty());
}
