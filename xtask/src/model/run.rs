//! `cargo xtask model`: the models that a sweep can name.

use std::path::Path;

use anyhow::Context as _;

use crate::base::columns::render_columns;
use crate::base::outcome::Outcome;
use crate::base::shell::quote_word;
use crate::model::args::{AddArgs, Args, Command, FetchArgs, ListArgs};
use crate::model::fetch::run as model_fetch;
use crate::model::link::file as model_link;
use crate::model::reference::{MODELS_DIR, ModelKind, ResolvedModel};
use crate::model::source::ModelSource;
use crate::model::store::file as model_store;
use crate::sys::terminal;

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    match &args.command {
        Command::List(args) => list(root, args),
        Command::Fetch(args) => fetch(root, args),
        Command::Add(args) => add(root, args),
    }
}

fn list(root: &Path, args: &ListArgs) -> anyhow::Result<Outcome> {
    let models = model_store::read_all_models(root)?;
    let sources = model_link::read_sources(root)?;
    let rows = plan_rows(&models, &sources);
    if args.json {
        let json = serde_json::to_string_pretty(&rows).context("cannot render the list")?;
        terminal::data(&json);
    } else {
        terminal::data(&render_rows(&rows));
    }
    Ok(Outcome::Done)
}

fn fetch(root: &Path, args: &FetchArgs) -> anyhow::Result<Outcome> {
    let source = model_link::find_source(root, &args.name)?;
    let (path, fetched) = model_fetch::fetch(root, &source)
        .with_context(|| format!("cannot fetch `{}`", source.name))?;
    let what = match fetched {
        model_fetch::Fetched::Now => "fetched and verified",
        model_fetch::Fetched::Already => "already there, verified",
    };
    terminal::log(&format!(
        "model: {} {what}; `--models {MODELS_DIR}/{}`",
        source.name, source.name
    ));
    terminal::data(&path.display().to_string());
    Ok(Outcome::Done)
}

fn add(root: &Path, args: &AddArgs) -> anyhow::Result<Outcome> {
    let (name, link, linked) = model_link::link(root, &args.path, args.name.as_deref())
        .with_context(|| format!("cannot add `{}`", args.path.display()))?;
    let what = match linked {
        model_link::Linked::Now => "linked",
        model_link::Linked::Already => "already linked",
    };
    let words = [name.clone()];
    let by_name = model_store::resolve_models(root, &words)?;
    let is_synthetic = by_name.iter().any(|model| model.kind == ModelKind::Synthetic);
    let word = if is_synthetic { format!("{MODELS_DIR}/{name}") } else { name.clone() };
    terminal::log(&format!("model: {name} {what}; `--models {}`", quote_word(&word)));
    terminal::data(&link.display().to_string());
    Ok(Outcome::Done)
}

#[derive(Debug, PartialEq, Eq, serde::Serialize)]
struct Row {
    name: String,
    kind: &'static str,
    path: Option<String>,
    weight_bytes: Option<u64>,
    note: Option<String>,
}

/// The models that are there, then those that could be fetched.
fn plan_rows(models: &[ResolvedModel], sources: &[ModelSource]) -> Vec<Row> {
    let mut rows: Vec<Row> = models
        .iter()
        .map(|model| Row {
            name: model.name.clone(),
            kind: match model.kind {
                ModelKind::Synthetic => "synthetic",
                ModelKind::Gguf => "gguf",
                ModelKind::Directory => "folder",
                ModelKind::Missing => "missing",
            },
            path: Some(model.path.clone()),
            weight_bytes: model.weight_bytes,
            note: model.note.clone(),
        })
        .collect();
    for source in sources {
        let folder = format!("{MODELS_DIR}/{}", source.name);
        let is_here = models.iter().any(|model| Path::new(&model.path).starts_with(&folder));
        if !is_here {
            rows.push(Row {
                name: source.name.clone(),
                kind: "fetchable",
                path: None,
                weight_bytes: Some(source.bytes),
                note: Some(format!("{}: cargo xtask model fetch {}", source.summary, source.name)),
            });
        }
    }
    rows
}

fn render_rows(rows: &[Row]) -> String {
    let mut table = vec![["MODEL", "KIND", "WEIGHTS", "PATH"].map(str::to_owned)];
    for row in rows {
        table.push([
            row.name.clone(),
            row.kind.to_owned(),
            row.weight_bytes.map(render_bytes).unwrap_or_default(),
            row.path.clone().or_else(|| row.note.clone()).unwrap_or_default(),
        ]);
        if let (Some(note), Some(_)) = (&row.note, &row.path) {
            table.push([String::new(), String::new(), String::new(), format!("({note})")]);
        }
    }
    render_columns(&table, |column| column == 2)
}

/// A size for people: in MiB with one decimal, from 1 GiB on in GiB.
fn render_bytes(bytes: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    // Sizes of files are far below 2^53, so nothing that is shown is lost.
    let mib = bytes as f64 / MIB;
    if mib >= 1024.0 { format!("{:.1} GiB", mib / 1024.0) } else { format!("{mib:.1} MiB") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::source::parse_source;

    fn model(name: &str, kind: ModelKind, path: &str, weight_bytes: Option<u64>) -> ResolvedModel {
        ResolvedModel {
            name: name.to_owned(),
            path: path.to_owned(),
            tracked_path: path.to_owned(),
            kind,
            weight_bytes,
            note: (kind == ModelKind::Missing).then(|| "`models/x` is a dangling link".to_owned()),
        }
    }

    #[test]
    fn the_list_is_a_table_with_sizes_and_what_could_be_fetched() {
        let text = include_str!("../../../bench-configs/fetch/smollm2-135m.toml");
        let source = parse_source("smollm2-135m", "s.toml", text).unwrap();
        let models = [
            model("tiny", ModelKind::Synthetic, "bench-configs/models/tiny.toml", None),
            model("big", ModelKind::Directory, "models/big", Some(5 << 30)),
            model("x", ModelKind::Missing, "models/x", None),
        ];
        insta::assert_snapshot!(render_rows(&plan_rows(&models, std::slice::from_ref(&source))), @r#"
            MODEL         KIND        WEIGHTS  PATH
            tiny          synthetic            bench-configs/models/tiny.toml
            big           folder      5.0 GiB  models/big
            x             missing              models/x
                                               (`models/x` is a dangling link)
            smollm2-135m  fetchable  93.8 MiB  SmolLM2-135M-Instruct, Q4_1, 135 M parameters (Apache-2.0): cargo xtask model fetch smollm2-135m
        "#);
        let here = [model("a", ModelKind::Gguf, "models/smollm2-135m/S.gguf", Some(1))];
        assert_eq!(plan_rows(&here, &[source]).len(), 1);
    }

    #[test]
    fn sizes_are_in_binary_units() {
        assert_eq!(render_bytes(98_362_432), "93.8 MiB");
        assert_eq!(render_bytes(0), "0.0 MiB");
        assert_eq!(render_bytes(1 << 30), "1.0 GiB");
    }
}
