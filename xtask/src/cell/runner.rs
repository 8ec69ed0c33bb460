//! Runners: the command that measures one cell, and how its result is read. It parses a definition,
//! renders a command line and reads results; it starts nothing and knows no shell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::base::definition::parse_toml;
use crate::base::diagnostic::HintExt as _;
use crate::base::nearest::nearest;
use crate::cell::evidence::signatures::Signatures;
use crate::model::reference::ModelKind;

pub(crate) use measured::{
    Measured, measured_from_report, parse_llama_bench_json, parse_profile_text,
};
use server::{RawServer, check_server};
use template::{Argument, Placeholder, Template, is_free_name};

pub(crate) use server::{Api, PromptForm, Server, Tokenize};

pub(crate) mod file;
mod measured;
mod server;
mod template;

/// How one cell is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Runner {
    /// The name of its file, without the extension.
    pub(crate) name: String,
    pub(crate) summary: String,
    pub(crate) result: ResultFormat,
    pub(crate) models: ModelNeed,
    /// What to build before the first cell; `None` for a program that already exists.
    pub(crate) build: Option<Build>,
    /// Whether it counts the tokens that it works on; where not, its rows say nothing of them.
    pub(crate) counts: bool,
    /// Whether it ends by itself at an end-of-sequence token.
    pub(crate) may_stop: bool,
    /// What its output is searched for.
    pub(crate) signatures: Arc<Signatures>,
    /// Files besides those that the command names, and without those that it writes.
    pub(crate) pins: PinWords,
    /// How the server is asked, where the command starts one.
    pub(crate) server: Option<Server>,
    /// Placeholders of its own.
    own: BTreeSet<String>,
    command: Vec<Argument>,
    env: BTreeMap<String, Template>,
}

/// How the result of a cell is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ResultFormat {
    /// The cell report at the path `{report}`.
    Report,
    /// Four lines within the output; see [`parse_profile_text`].
    ProfileText,
    /// JSON or JSON lines of llama.cpp's `llama-bench`; see [`parse_llama_bench_json`].
    LlamaBenchJson,
    /// The command starts a server, which is measured by request; see `cell::serving`.
    OpenaiStream,
    /// The JSON lines that it writes to the file that `ARC_PREREG_LOG` names, which ladders alone read:
    /// for a program that loads no model and takes no prompt, such as a training run.
    Log,
}

/// Which models a runner can load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModelNeed {
    /// Whatever a model may be: the program sorts it out.
    #[default]
    Any,
    GgufFile,
    /// Weights on disk, whatever their format: no synthetic geometry.
    Weights,
}

/// The cargo target that a runner is built from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Build {
    pub(crate) package: String,
    pub(crate) bin: String,
}

/// What of a runner is pinned beyond its command line, as its definition says it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PinWords {
    /// Paths, patterns, and `python:MODULE`.
    pub(crate) also: Vec<String>,
    /// Paths that the command names because it writes to them.
    pub(crate) writes: Vec<String>,
}

/// What a command line may speak of: one value for each placeholder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CellVars {
    /// `{model}`: the model's name, as in the CSV.
    pub(crate) model: String,
    /// `{model_path}`: what to load, absolute or relative to the workspace.
    pub(crate) model_path: String,
    pub(crate) prompt_tokens: u64,
    pub(crate) max_tokens: u64,
    /// `{warmup_tokens}`: how many tokens the discarded pass generates.
    pub(crate) warmup_tokens: u64,
    /// `{threads}`, where a number was asked for.
    pub(crate) threads: Option<u64>,
    /// `{report}`: where the cell report is to be written.
    pub(crate) report: String,
    /// `{target_dir}`: cargo's target folder, which holds what `build` made.
    pub(crate) target_dir: String,
    /// What a server is told; see [`ServerVars`].
    pub(crate) server: ServerVars,
}

/// What the command line of a server may speak of besides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServerVars {
    /// `{port}`: a port of this machine that was free a moment ago, once it is chosen.
    pub(crate) port: Option<u16>,
    /// `{concurrency}`: streams that ask at the same time, at least one.
    pub(crate) concurrency: u64,
}

/// Tokens of context beyond prompt and answer: what a chat template adds, and the first guess at a
/// prompt of the right length may have too many.
const SPARE_CONTEXT_TOKENS: u64 = 128;

impl CellVars {
    /// How many streams ask at the same time.
    pub(crate) fn concurrency(&self) -> u64 {
        self.server.concurrency.max(1)
    }

    /// `{context_tokens}`: the context that one request needs.
    fn context_tokens(&self) -> u64 {
        let answer = self.max_tokens.max(self.warmup_tokens);
        self.prompt_tokens.saturating_add(answer).saturating_add(SPARE_CONTEXT_TOKENS)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRunner {
    #[serde(default)]
    summary: String,
    result: ResultFormat,
    #[serde(default)]
    models: ModelNeed,
    command: Vec<RawArgument>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Placeholders of its own, with the values that they have where a variant sets no other.
    #[serde(default)]
    placeholders: BTreeMap<String, String>,
    build: Option<Build>,
    #[serde(default = "yes")]
    counts_tokens: bool,
    #[serde(default)]
    stops_at_end_of_sequence: bool,
    #[serde(default)]
    oom_patterns: Vec<String>,
    #[serde(default)]
    oom_ignore: Vec<String>,
    #[serde(default)]
    pins: Vec<String>,
    #[serde(default)]
    writes: Vec<String>,
    server: Option<RawServer>,
}

fn yes() -> bool {
    true
}

/// One argument, or some that stand or fall together.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a string, or an array of strings that is optional as a whole")]
enum RawArgument {
    One(String),
    Group(Vec<String>),
}

/// Parses the runner `name`, whose definition was read from `display_path`.
///
/// # Errors
/// The file's syntax, an unknown key or placeholder, and a command that cannot measure a cell: one
/// that mentions no model, no prompt length, or no report where that is its result.
pub(crate) fn parse_runner(name: &str, display_path: &str, text: &str) -> anyhow::Result<Runner> {
    let raw: RawRunner = parse_toml(display_path, text)?;
    check_raw(raw, name).with_context(|| format!("runner `{name}` in {display_path}"))
}

fn check_raw(raw: RawRunner, name: &str) -> anyhow::Result<Runner> {
    let own = &raw.placeholders;
    if let Some(name) = own.keys().find(|name| !is_free_name(name)) {
        bail!(
            "`placeholders`: `{name}` is taken, or no name of lower-case letters, digits and `_`"
        );
    }
    let mut command = Vec::new();
    for (index, argument) in raw.command.iter().enumerate() {
        let argument = match argument {
            RawArgument::One(text) => Template::parse(text, own).map(Argument::One),
            RawArgument::Group(texts) => texts
                .iter()
                .map(|text| Template::parse(text, own))
                .collect::<anyhow::Result<_>>()
                .map(Argument::Group),
        };
        command.push(argument.with_context(|| format!("`command`, element {}", index + 1))?);
    }
    match command.first() {
        Some(Argument::One(program)) if !program.is_empty() => {}
        _ => bail!("`command` must begin with the program, as a string"),
    }
    let mut env = BTreeMap::new();
    for (key, value) in &raw.env {
        if key.is_empty() || key.contains(['=', '\0']) {
            bail!("`env`: `{}` is not a variable name", key.escape_debug());
        }
        let value =
            Template::parse(value, own).with_context(|| format!("`env`, variable `{key}`"))?;
        env.insert(key.clone(), value);
    }
    let mentions = |wanted: Placeholder| {
        command.iter().any(|argument| argument.mentions(wanted))
            || env.values().any(|value| value.mentions(wanted))
    };
    let is_log = raw.result == ResultFormat::Log;
    if !is_log && !mentions(Placeholder::Model) && !mentions(Placeholder::ModelPath) {
        bail!(
            "nothing mentions {{model_path}} or {{model}}: every cell would measure the same model"
        );
    }
    let is_server = raw.result == ResultFormat::OpenaiStream;
    if is_server && !mentions(Placeholder::Port) {
        bail!(
            "`result` is `openai-stream`, but nothing mentions {{port}}, which it must listen on"
        );
    }
    if let Some(of_server) = Placeholder::OF_SERVERS.iter().find(|it| mentions(**it))
        && !is_server
    {
        bail!("{{{}}} has a value only where `result` is `openai-stream`", of_server.name());
    }
    let server = match raw.server {
        Some(server) if is_server => Some(check_server(server).context("`[server]`")?),
        None if is_server => bail!("`result` is `openai-stream`, but there is no `[server]`"),
        Some(_) => bail!("`[server]` is of use only where `result` is `openai-stream`"),
        None => None,
    };
    // The client of a server makes the prompt.
    if !is_server && !is_log && !mentions(Placeholder::PromptTokens) {
        bail!("nothing mentions {{prompt_tokens}}: every cell would measure the same length");
    }
    if raw.result == ResultFormat::Report && !mentions(Placeholder::Report) {
        bail!("`result` is `report`, but nothing mentions {{report}}, the path to write it to");
    }
    Ok(Runner {
        name: name.to_owned(),
        summary: raw.summary,
        result: raw.result,
        models: raw.models,
        build: raw.build,
        counts: raw.counts_tokens,
        may_stop: raw.stops_at_end_of_sequence,
        signatures: Signatures::with_own(&raw.oom_patterns, &raw.oom_ignore)?,
        pins: PinWords { also: raw.pins, writes: raw.writes },
        server,
        own: raw.placeholders.into_keys().collect(),
        command,
        env,
    })
}

impl Runner {
    /// The same runner with arguments after its own, each passed as it stands.
    pub(crate) fn with_extra_args(&self, args: &[String]) -> Runner {
        let extra = args.iter().map(|arg| Argument::One(Template::literal(arg)));
        let command = self.command.iter().cloned().chain(extra).collect();
        Runner { command, ..self.clone() }
    }

    /// The same runner with other values of its own placeholders, or of {threads} or {warmup_tokens}.
    ///
    /// # Errors
    /// It has no such placeholder, or nothing mentions it: a change without an effect would be measured.
    pub(crate) fn with_set(&self, set: &BTreeMap<String, String>) -> anyhow::Result<Runner> {
        let of_all = [Placeholder::Threads, Placeholder::WarmupTokens].map(Placeholder::name);
        let may_set: Vec<&str> = self.own.iter().map(String::as_str).chain(of_all).collect();
        if let Some(name) = set.keys().find(|name| !may_set.contains(&name.as_str())) {
            let error =
                anyhow::anyhow!("runner `{}` has no placeholder `{name}` to set", self.name);
            return Err(error).hint(match nearest(name, may_set.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it has {}", may_set.join(", ")),
            });
        }
        let mentions = |name: &str| {
            self.command.iter().any(|argument| argument.mentions_name(name))
                || self.env.values().any(|value| value.mentions_name(name))
        };
        if let Some(name) = set.keys().find(|name| !mentions(name)) {
            bail!(
                "nothing in runner `{}` mentions {{{name}}}: to set it changes nothing",
                self.name
            );
        }
        Ok(Runner {
            command: self.command.iter().map(|argument| argument.with_set(set)).collect(),
            env: self.env.iter().map(|(key, value)| (key.clone(), value.with_set(set))).collect(),
            ..self.clone()
        })
    }

    /// The same runner with another program, which already exists.
    pub(crate) fn with_program(&self, program: &str) -> Runner {
        let first = Argument::One(Template::literal(program));
        let command = std::iter::once(first).chain(self.command.iter().skip(1).cloned()).collect();
        Runner { command, build: None, ..self.clone() }
    }
}

/// The command line of one cell: the program, then its arguments, each passed as it stands. Relative
/// paths are meant from the workspace root.
pub(crate) fn render_command(runner: &Runner, vars: &CellVars) -> Vec<String> {
    runner.command.iter().flat_map(|argument| argument.render(vars)).collect()
}

/// The environment variables that the runner adds for one cell, by name. One whose placeholder has no
/// value is left out.
pub(crate) fn render_env(runner: &Runner, vars: &CellVars) -> BTreeMap<String, String> {
    runner.env.iter().filter_map(|(key, value)| Some((key.clone(), value.render(vars)?))).collect()
}

/// Checks that the runner can load a model of this kind.
///
/// # Errors
/// What the runner needs, in words. A missing model is not an error here: the sweep reports it as such.
pub(crate) fn check_model(runner: &Runner, kind: ModelKind) -> Result<(), String> {
    let needs = match (runner.models, kind) {
        (ModelNeed::Any, _) | (_, ModelKind::Missing) => return Ok(()),
        (ModelNeed::GgufFile, ModelKind::Gguf) => return Ok(()),
        (ModelNeed::Weights, ModelKind::Gguf | ModelKind::Directory) => return Ok(()),
        (ModelNeed::GgufFile, _) => "one GGUF file",
        (ModelNeed::Weights, _) => "weights on disk",
    };
    Err(format!("runner `{}` needs {needs}, but this is {kind}", runner.name))
}

#[cfg(test)]
mod tests;
