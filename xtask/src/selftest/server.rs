//! What the scripted server is told to do: a stand-in for servers that speak the OpenAI form, good and
//! bad, so that every ending of a request can be had at will.
//!
//! It owns the script's format and what the server computes without computing: counts of tokens, and
//! what a prefix cache would have held. Tests use it; a sweep never does by itself.

use serde::Deserialize;

pub(crate) mod args;
mod reply;
mod run;

pub(crate) use run::run;

/// A script: the first launch that matches says what happens.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// A file that gains a line, `MODEL CONCURRENCY`, with every launch.
    pub(crate) launch_log: Option<String>,
    /// A file that gains a line, `NUMBER TOKENS CACHED`, with every completion that was asked for.
    pub(crate) request_log: Option<String>,
    #[serde(default, rename = "launch")]
    pub(crate) launches: Vec<Launch>,
}

/// One start of the server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Launch {
    /// Only launches of this model.
    pub(crate) model: Option<String>,
    /// Only launches for so many streams.
    pub(crate) concurrency: Option<u64>,

    /// Text for stderr before anything else.
    pub(crate) stderr: String,
    /// It ends with this code instead of listening.
    pub(crate) exit: Option<i32>,
    /// A signal that it sends itself instead of listening.
    pub(crate) signal: Option<i32>,
    /// So many requests for its health are answered with 503 before the first 200; `-1` for all.
    pub(crate) unready: i64,
    /// It accepts connections and answers none.
    pub(crate) mute: bool,
    /// It takes no notice of SIGTERM.
    pub(crate) ignore_sigterm: bool,
    /// Processes that are started and would outlive it by a minute.
    pub(crate) grandchildren: u64,
    /// Tokens that it adds to every prompt.
    pub(crate) template_tokens: u64,
    /// Tokens that each word of a text is.
    pub(crate) tokens_per_word: Option<u64>,
    /// It keeps every prompt, and takes from there what a later one has in common with its beginning.
    pub(crate) prefix_cache: bool,
    /// What a token of the prompt takes that is not in the cache.
    pub(crate) prefill_us: u64,
    /// From each piece of text to the next, on a clock that does not drift; 4000 where nothing is said.
    pub(crate) step_us: Option<u64>,
    #[serde(rename = "request")]
    pub(crate) requests: Vec<Reply>,
}

/// How a completion is answered. What is left out is as it should be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Reply {
    /// Only the request with this number, counted from 0 in this launch.
    pub(crate) number: Option<u64>,

    pub(crate) stderr: String,
    /// Milliseconds before anything is answered.
    pub(crate) wait_ms: u64,
    /// A status other than 200, with `body` and no stream.
    pub(crate) status: Option<u16>,
    pub(crate) body: String,
    /// Tokens in each piece; 1 where nothing is said.
    pub(crate) tokens_per_piece: Option<u64>,
    /// Bytes in each packet; a piece in each where nothing is said.
    pub(crate) packet_bytes: Option<usize>,
    /// Text of every piece.
    pub(crate) text: Option<String>,
    /// Generated tokens instead of as many as were asked for.
    pub(crate) tokens: Option<u64>,
    /// After so many pieces …
    pub(crate) after: Option<u64>,
    /// … this stands in the stream as it is,
    pub(crate) raw: String,
    /// … this is written to stderr,
    pub(crate) then_stderr: String,
    /// … the connection is closed,
    pub(crate) close: bool,
    /// … nothing more comes, and the connection stays open,
    pub(crate) hang: bool,
    /// … or the server ends with this code, or by this signal.
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// No counts of tokens.
    pub(crate) no_usage: bool,
    /// A count of prompt tokens that is not true.
    pub(crate) prompt_tokens: Option<u64>,
    /// No reason why it ended, and no `[DONE]`.
    pub(crate) no_end: bool,
}

impl Script {
    pub(crate) fn plan_launch(&self, model: &str, concurrency: u64) -> Launch {
        let matches = |launch: &&Launch| {
            launch.model.as_ref().is_none_or(|wanted| wanted == model)
                && launch.concurrency.is_none_or(|wanted| wanted == concurrency)
        };
        self.launches.iter().find(matches).cloned().unwrap_or_default()
    }
}

impl Launch {
    pub(crate) fn plan_reply(&self, number: u64) -> Reply {
        let matches = |reply: &&Reply| reply.number.is_none_or(|wanted| wanted == number);
        self.requests.iter().find(matches).cloned().unwrap_or_default()
    }

    /// The tokens of a prompt: ids as they are, words by their text, after what the template adds.
    pub(crate) fn tokenize(&self, prompt: &serde_json::Value) -> Vec<String> {
        let template = (0..self.template_tokens).map(|number| format!("<{number}>"));
        template.chain(self.tokenize_plain(prompt)).collect()
    }

    /// The same without the template.
    pub(crate) fn tokenize_plain(&self, prompt: &serde_json::Value) -> Vec<String> {
        match prompt {
            serde_json::Value::Array(ids) => ids.iter().map(ToString::to_string).collect(),
            other => {
                let parts = self.tokens_per_word.unwrap_or(1);
                let text = other.as_str().unwrap_or_default();
                let of_word =
                    |word: &str| (0..parts).map(move |_| word.to_owned()).collect::<Vec<_>>();
                text.split_whitespace().flat_map(of_word).collect()
            }
        }
    }
}

/// How many tokens a prompt has in common with the beginning of one that was kept.
pub(crate) fn common_prefix(kept: &[Vec<String>], prompt: &[String]) -> u64 {
    let common =
        |other: &Vec<String>| other.iter().zip(prompt).take_while(|(a, b)| a == b).count() as u64;
    kept.iter().map(common).max().unwrap_or(0)
}
