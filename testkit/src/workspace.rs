//! A workspace in a temporary folder, with what tests put into it and look for in it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Command, Ran, Script};

/// The scripted runner's script.
const SCRIPT: &str = "script.toml";
/// The file that gains a line with every launch.
const LAUNCHES: &str = "launches.txt";

/// A folder that goes with the test, and the program that is tested in it.
#[derive(Debug)]
pub struct Workspace {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Workspace {
    /// An empty folder.
    pub fn empty(program: impl AsRef<Path>) -> Workspace {
        let folder = tempfile::tempdir().expect("cannot make a temporary folder");
        Workspace { folder, program: program.as_ref().to_owned() }
    }

    /// What the workflow takes for a workspace, with synthetic models of these names.
    pub fn new(program: impl AsRef<Path>, models: &[&str]) -> Workspace {
        let workspace = Workspace::empty(program);
        workspace.write("Cargo.toml", "");
        std::fs::create_dir(workspace.path("bench-configs")).expect("cannot make a folder");
        for model in models {
            workspace.write(format!("bench-configs/models/{model}.toml"), "");
        }
        workspace
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// A path in it.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file, and the folders above it.
    #[track_caller]
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        let written = std::fs::create_dir_all(path.parent().expect("a file is in a folder"))
            .and_then(|()| std::fs::write(&path, content));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    /// Replaces the first occurrence of a text in a file; panics where there is none.
    #[track_caller]
    pub fn edit(&self, path: impl AsRef<Path>, from: &str, to: &str) {
        let text = self.read(&path);
        assert!(text.contains(from), "{} has no `{from}`", path.as_ref().display());
        self.write(path, text.replacen(from, to, 1));
    }

    /// Removes a file, where there is one.
    pub fn remove(&self, path: impl AsRef<Path>) {
        let _ = std::fs::remove_file(self.path(path));
    }

    /// The text of a file; empty where there is none.
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        String::from_utf8_lossy(&self.read_bytes(path)).into_owned()
    }

    /// The bytes of a file; none where there is none.
    pub fn read_bytes(&self, path: impl AsRef<Path>) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap_or_default()
    }

    /// The JSON in a file.
    #[track_caller]
    pub fn read_json(&self, path: impl AsRef<Path>) -> Value {
        parse(&self.read(&path), path.as_ref())
    }

    /// The JSON of each line of a file.
    #[track_caller]
    pub fn read_json_lines(&self, path: impl AsRef<Path>) -> Vec<Value> {
        self.read(&path).lines().map(|line| parse(line, path.as_ref())).collect()
    }

    /// What a folder holds, sorted; nothing where there is none.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).into_iter().flatten();
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("cannot list a folder").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// The path of the one thing that a folder holds; panics where there are more or fewer.
    #[track_caller]
    pub fn only_entry(&self, folder: impl AsRef<Path>) -> PathBuf {
        let names = self.names(&folder);
        assert!(names.len() == 1, "{} holds {names:?}", folder.as_ref().display());
        self.path(folder).join(&names[0])
    }

    /// Writes a program for the shell.
    pub fn write_program(&self, path: &str, script: &str) {
        let draft = format!("{path}.draft");
        self.write(&draft, format!("#!/bin/sh\n{script}\n"));
        let draft = self.path(&draft);
        std::fs::set_permissions(&draft, PermissionsExt::from_mode(0o755)).expect("cannot chmod");
        // Copied by a process of its own: were the file open for writing here while another test
        // starts a child, that child would hold it open too, and running it would fail as busy.
        let copy = Command::new("/bin/cp", self.root()).args(["-p"]);
        copy.args([&draft, &self.path(path)]).run().exits_with(0);
        std::fs::remove_file(draft).expect("cannot remove a file");
    }

    /// Writes what the scripted runner plays from now on.
    pub fn script(&self, script: &Script) {
        self.write(SCRIPT, script.render(LAUNCHES));
    }

    /// Describes a runner that plays the script. `result` is how its figures are read; one that is
    /// read by its report is told where to write it.
    pub fn write_scripted_runner(&self, name: &str, result: &str) {
        let program = self.program.to_string_lossy();
        self.write_runner(name, result, &[&program, "scripted-runner", "--script", SCRIPT]);
    }

    /// Describes a runner: the program with its first arguments, and what a cell is told with.
    pub fn write_runner(&self, name: &str, result: &str, command: &[&str]) {
        let mut command = command.to_vec();
        command.extend(["--model", "{model}", "--prompt-tokens", "{prompt_tokens}"]);
        command.extend(["--max-tokens", "{max_tokens}"]);
        if result == "report" {
            command.extend(["--report", "{report}"]);
        }
        let text = format!("result = {result:?}\ncommand = {command:?}\n");
        self.write(format!("bench-configs/runners/{name}.toml"), text);
    }

    /// Writes a program that plays `script` in its folder, after some lines of shell.
    pub fn write_scripted_program(&self, path: &str, script: &str, before: &str) {
        let program = self.program.display();
        let line = format!("exec '{program}' scripted-runner --script {script} \"$@\"");
        self.write_program(path, &format!("{before}\n{line}"));
    }

    /// The launches of the scripted runner, `MODEL LENGTH` each.
    pub fn launches(&self) -> Vec<String> {
        self.read(LAUNCHES).lines().map(str::to_owned).collect()
    }

    /// The program under test, in this folder.
    pub fn command(&self, args: &[&str]) -> Command {
        Command::new(&self.program, self.root()).args(args)
    }

    /// Runs the program under test.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Ran {
        self.command(args).run()
    }

    /// Runs git in this folder, with an identity and settings that are not the machine's; what it
    /// printed, without the line's end. Panics where it fails.
    #[track_caller]
    pub fn git(&self, args: &[&str]) -> String {
        self.git_in("", args)
    }

    /// Runs git in a folder below.
    #[track_caller]
    pub fn git_in(&self, folder: &str, args: &[&str]) -> String {
        let git = Command::new("git", self.path(folder))
            .args(["-c", "user.name=test", "-c", "user.email=test@example.invalid"])
            .args(["-c", "init.defaultBranch=main", "-c", "core.hooksPath=/dev/null"])
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null");
        git.args(args).run().exits_with(0).stdout.trim_end().to_owned()
    }

    /// Commits everything there is, in a repository that is made with the first commit; the commit.
    #[track_caller]
    pub fn commit(&self, message: &str) -> String {
        if !self.path(".git").exists() {
            self.git(&["init", "--quiet"]);
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }
}

#[track_caller]
fn parse(text: &str, path: &Path) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{}: {error}: {text}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cell;

    #[test]
    fn files_are_written_edited_and_listed() {
        let workspace = Workspace::new("/bin/sh", &["a"]);
        assert_eq!(workspace.names(""), ["Cargo.toml", "bench-configs"]);
        assert_eq!(workspace.names("bench-configs/models"), ["a.toml"]);
        workspace.write("x/y.json", "{\"a\": 1}");
        workspace.edit("x/y.json", "1", "2");
        assert_eq!(workspace.read_json("x/y.json")["a"], 2);
        assert_eq!(workspace.only_entry("x"), workspace.path("x/y.json"));
        assert_eq!((workspace.read("none"), workspace.names("none").len()), (String::new(), 0));
    }

    #[test]
    fn a_runner_plays_the_script_and_a_program_does_after_its_shell() {
        let workspace = Workspace::new("/bin/echo", &[]);
        workspace.write_scripted_runner("r", "report");
        let runner: toml::Table = workspace.read("bench-configs/runners/r.toml").parse().unwrap();
        let command: Vec<&str> =
            runner["command"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
        assert_eq!(command[..4], ["/bin/echo", "scripted-runner", "--script", "script.toml"]);
        assert_eq!(command[command.len() - 2..], ["--report", "{report}"]);
        workspace.write_scripted_program("p.sh", "s.toml", "echo before");
        let ran = Command::new(workspace.path("p.sh"), workspace.root()).args(["more"]).run();
        assert_eq!(ran.stdout, "before\nscripted-runner --script s.toml more\n");
        workspace.script(&Script::new().cell(Cell::new().exit(3)));
        let script: toml::Table = workspace.read("script.toml").parse().unwrap();
        assert_eq!(script["cell"][0]["exit"].as_integer(), Some(3));
        assert_eq!(script["launch_log"].as_str(), Some(LAUNCHES));
    }

    #[test]
    fn a_commit_has_an_identity_of_its_own() {
        let workspace = Workspace::empty("/bin/sh");
        workspace.write("a", "1");
        let first = workspace.commit("first");
        assert_eq!(workspace.git(&["log", "--format=%an %H"]), format!("test {first}"));
        assert_ne!(workspace.commit("second"), first);
        assert_eq!(workspace.git(&["status", "--porcelain"]), "");
    }
}
