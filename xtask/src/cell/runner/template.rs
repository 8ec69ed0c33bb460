//! Templates of arguments: text with placeholders in braces. `{{` and `}}` stand for braces.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};

use crate::base::diagnostic::HintExt as _;
use crate::base::nearest::nearest;
use crate::cell::runner::CellVars;

/// What a template may speak of; see [`CellVars`] for the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placeholder {
    Model,
    ModelPath,
    PromptTokens,
    MaxTokens,
    WarmupTokens,
    Threads,
    Report,
    TargetDir,
    Port,
    Concurrency,
    ContextTokens,
    TotalContextTokens,
}

/// Every placeholder by its name.
const PLACEHOLDERS: &[(&str, Placeholder)] = &[
    ("model", Placeholder::Model),
    ("model_path", Placeholder::ModelPath),
    ("prompt_tokens", Placeholder::PromptTokens),
    ("max_tokens", Placeholder::MaxTokens),
    ("warmup_tokens", Placeholder::WarmupTokens),
    ("threads", Placeholder::Threads),
    ("report", Placeholder::Report),
    ("target_dir", Placeholder::TargetDir),
    ("port", Placeholder::Port),
    ("concurrency", Placeholder::Concurrency),
    ("context_tokens", Placeholder::ContextTokens),
    ("total_context_tokens", Placeholder::TotalContextTokens),
];

impl Placeholder {
    /// Those that have a value for servers alone.
    pub(super) const OF_SERVERS: [Placeholder; 4] = [
        Placeholder::Port,
        Placeholder::Concurrency,
        Placeholder::ContextTokens,
        Placeholder::TotalContextTokens,
    ];

    pub(super) fn name(self) -> &'static str {
        let known = PLACEHOLDERS.iter().find(|(_, placeholder)| *placeholder == self);
        known.map_or("", |(name, _)| name)
    }

    /// Its value in this cell; `None` where it has none.
    fn value(self, vars: &CellVars) -> Option<String> {
        match self {
            Placeholder::Model => Some(vars.model.clone()),
            Placeholder::ModelPath => Some(vars.model_path.clone()),
            Placeholder::PromptTokens => Some(vars.prompt_tokens.to_string()),
            Placeholder::MaxTokens => Some(vars.max_tokens.to_string()),
            Placeholder::WarmupTokens => Some(vars.warmup_tokens.to_string()),
            Placeholder::Threads => vars.threads.map(|threads| threads.to_string()),
            Placeholder::Report => Some(vars.report.clone()),
            Placeholder::TargetDir => Some(vars.target_dir.clone()),
            Placeholder::Port => vars.server.port.map(|port| port.to_string()),
            Placeholder::Concurrency => Some(vars.concurrency().to_string()),
            Placeholder::ContextTokens => Some(vars.context_tokens().to_string()),
            Placeholder::TotalContextTokens => {
                Some(vars.context_tokens().saturating_mul(vars.concurrency()).to_string())
            }
        }
    }
}

/// One piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Placeholder),
    /// A placeholder that the runner has made for itself, with its value.
    Own {
        name: String,
        value: String,
    },
}

impl Piece {
    /// The placeholder's name; text has none.
    fn name(&self) -> Option<&str> {
        match self {
            Piece::Text(_) => None,
            Piece::Value(placeholder) => Some(placeholder.name()),
            Piece::Own { name, .. } => Some(name),
        }
    }
}

/// Text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    /// A template that is this text as it stands, braces included.
    pub(super) fn literal(text: &str) -> Template {
        Template { pieces: vec![Piece::Text(text.to_owned())] }
    }

    /// Parses a template. `own` are the runner's own placeholders, with their values.
    pub(super) fn parse(text: &str, own: &BTreeMap<String, String>) -> anyhow::Result<Template> {
        if text.contains('\0') {
            bail!("`{}` contains a NUL byte, which an argument cannot", text.escape_debug());
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let Some((name, after)) = rest.split_once('}').filter(|_| brace == "{") else {
                return Err(anyhow!("`{text}` has an unmatched `{brace}`"))
                    .hint("write `{{` or `}}` for a literal brace");
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(match own.get(name) {
                Some(value) => Piece::Own { name: name.to_owned(), value: value.clone() },
                None => Piece::Value(find_placeholder(name, own)?),
            });
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Template { pieces })
    }

    /// Whether it speaks of the placeholder of this name.
    pub(super) fn mentions_name(&self, name: &str) -> bool {
        self.pieces.iter().any(|piece| piece.name() == Some(name))
    }

    /// The same with other values of placeholders.
    pub(super) fn with_set(&self, set: &BTreeMap<String, String>) -> Template {
        let replace = |piece: &Piece| {
            let value = piece.name().and_then(|name| set.get(name));
            value.map_or_else(|| piece.clone(), |value| Piece::Text(value.clone()))
        };
        Template { pieces: self.pieces.iter().map(replace).collect() }
    }

    /// Whether it can only ever be the empty text.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether it speaks of this.
    pub(super) fn mentions(&self, wanted: Placeholder) -> bool {
        self.pieces.contains(&Piece::Value(wanted))
    }

    /// The text for this cell; `None` where a placeholder has no value.
    pub(super) fn render(&self, vars: &CellVars) -> Option<String> {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => Some(text.clone()),
                Piece::Value(placeholder) => placeholder.value(vars),
                Piece::Own { value, .. } => Some(value.clone()),
            })
            .collect()
    }
}

/// One argument, or some that are left out together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Argument {
    One(Template),
    Group(Vec<Template>),
}

impl Argument {
    /// The same with other values of placeholders.
    pub(super) fn with_set(&self, set: &BTreeMap<String, String>) -> Argument {
        match self {
            Argument::One(template) => Argument::One(template.with_set(set)),
            Argument::Group(templates) => {
                Argument::Group(templates.iter().map(|template| template.with_set(set)).collect())
            }
        }
    }

    /// Whether any part of it speaks of the placeholder of this name.
    pub(super) fn mentions_name(&self, name: &str) -> bool {
        match self {
            Argument::One(template) => template.mentions_name(name),
            Argument::Group(templates) => templates.iter().any(|t| t.mentions_name(name)),
        }
    }

    /// Whether any part of it speaks of this.
    pub(super) fn mentions(&self, wanted: Placeholder) -> bool {
        match self {
            Argument::One(template) => template.mentions(wanted),
            Argument::Group(templates) => templates.iter().any(|t| t.mentions(wanted)),
        }
    }

    /// The arguments for this cell: none if a placeholder in it has no value.
    pub(super) fn render(&self, vars: &CellVars) -> Vec<String> {
        let templates = match self {
            Argument::One(template) => std::slice::from_ref(template),
            Argument::Group(templates) => templates,
        };
        templates.iter().map(|t| t.render(vars)).collect::<Option<Vec<_>>>().unwrap_or_default()
    }
}

/// Whether a runner may have a placeholder of its own of this name.
pub(super) fn is_free_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty()
        && name.chars().all(is_word)
        && !PLACEHOLDERS.iter().any(|(known, _)| *known == name)
}

fn find_placeholder(name: &str, own: &BTreeMap<String, String>) -> anyhow::Result<Placeholder> {
    let known = || PLACEHOLDERS.iter().map(|(name, _)| *name).chain(own.keys().map(String::as_str));
    if let Some((_, placeholder)) = PLACEHOLDERS.iter().find(|(known, _)| *known == name) {
        return Ok(*placeholder);
    }
    let list = known().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ");
    let error = anyhow!("unknown placeholder {{{name}}}; expected one of {list}");
    match nearest(name, known()) {
        Some(near) => Err(error).hint(format!("did you mean {{{near}}}?")),
        None => Err(error),
    }
}
