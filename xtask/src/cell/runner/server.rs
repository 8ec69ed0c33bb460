//! The `[server]` of a runner whose result is `openai-stream`: how to know that the server is ready,
//! and how to ask it. It parses and checks; `cell::serving` talks to the server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::CellVars;
use super::template::Template;

/// The widest range that token ids are drawn from where nothing is said: every vocabulary in use has
/// these, and they are neither control tokens nor single bytes.
const DEFAULT_TOKEN_IDS: [u32; 2] = [1000, 30_000];

/// How a server is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// The path that answers 2xx once requests are served.
    pub(crate) ready_path: String,
    pub(crate) ready_within: Duration,
    pub(crate) api: Api,
    /// Where requests go.
    pub(crate) path: String,
    pub(crate) prompt: PromptForm,
    /// Measured requests of each stream.
    pub(crate) requests: u64,
    /// Fields that every request has beside those that the client sets, or instead of them.
    pub(crate) body: serde_json::Map<String, serde_json::Value>,
    model: Template,
}

/// Which of the two forms of request a server is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Api {
    /// `prompt` and a stream of `text`.
    #[default]
    Completions,
    /// `messages` and a stream of `delta`.
    Chat,
}

/// What a prompt is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PromptForm {
    /// Token ids from a range, both ends included.
    TokenIds { first: u32, last: u32 },
    /// Words, counted by the server's own tokenizer where it has an endpoint for that.
    Text { tokenize: Option<Tokenize> },
}

/// The endpoint that counts the tokens of a text: `POST {field: text}` answers with an object that has
/// `tokens`, a list, or `count`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tokenize {
    pub(crate) path: String,
    pub(crate) field: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawServer {
    ready: String,
    #[serde(default = "default_ready_within_s")]
    ready_within_s: f64,
    #[serde(default)]
    api: Api,
    path: Option<String>,
    #[serde(default = "default_model")]
    model: String,
    #[serde(default)]
    prompt: RawPrompt,
    token_ids: Option<[u32; 2]>,
    tokenize: Option<Tokenize>,
    #[serde(default = "default_requests")]
    requests: u64,
    #[serde(default)]
    body: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawPrompt {
    TokenIds,
    #[default]
    Text,
}

fn default_ready_within_s() -> f64 {
    300.0
}

fn default_model() -> String {
    "{model}".to_owned()
}

fn default_requests() -> u64 {
    3
}

/// Checks what a definition says of its server.
///
/// # Errors
/// A path that is none, a time that is none, a range without ids, and settings that contradict each
/// other.
pub(super) fn check_server(raw: RawServer) -> anyhow::Result<Server> {
    let path = raw.path.unwrap_or_else(|| {
        match raw.api {
            Api::Completions => "/v1/completions",
            Api::Chat => "/v1/chat/completions",
        }
        .to_owned()
    });
    let tokenize_path = raw.tokenize.as_ref().map(|tokenize| &tokenize.path);
    for path in [&raw.ready, &path].into_iter().chain(tokenize_path) {
        if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
            bail!("`{}` is not a path: it must begin with `/`", path.escape_debug());
        }
    }
    if raw.requests == 0 {
        bail!("`requests` = 0 leaves nothing to measure");
    }
    let ready_within = Duration::try_from_secs_f64(raw.ready_within_s)
        .ok()
        .filter(|limit| !limit.is_zero() && limit.as_secs() < 366 * 86_400)
        .with_context(|| format!("`ready_within_s` = {} is out of range", raw.ready_within_s))?;
    let prompt = match (raw.prompt, raw.token_ids, raw.tokenize) {
        (RawPrompt::TokenIds, _, Some(_)) => {
            bail!("`tokenize` is of no use where prompts are token ids")
        }
        (RawPrompt::TokenIds, ..) if raw.api == Api::Chat => {
            bail!("the chat form takes text alone, no token ids")
        }
        (RawPrompt::TokenIds, ids, None) => {
            let [first, last] = ids.unwrap_or(DEFAULT_TOKEN_IDS);
            if last <= first {
                bail!("`token_ids` = [{first}, {last}] is not a range with two ids or more");
            }
            PromptForm::TokenIds { first, last }
        }
        (RawPrompt::Text, Some(_), _) => bail!("`token_ids` is of no use where prompts are text"),
        (RawPrompt::Text, None, tokenize) => PromptForm::Text { tokenize },
    };
    Ok(Server {
        ready_path: raw.ready,
        ready_within,
        api: raw.api,
        path,
        prompt,
        requests: raw.requests,
        body: raw.body,
        model: Template::parse(&raw.model, &BTreeMap::new()).context("`model`")?,
    })
}

impl Server {
    /// The model's name, as requests give it.
    pub(crate) fn model_name(&self, vars: &CellVars) -> String {
        self.model.render(vars).unwrap_or_default()
    }
}
