//! The plan of a sweep: its cells in order, and which of them are faked.
//!
//! Pure. Model-major, length-minor, unless the definition says otherwise: all lengths of a model before
//! the next model, so that a true OOM is known before a longer cell of that model comes up.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use serde::{Deserialize, Serialize};

use crate::base::diagnostic::HintExt as _;
use crate::base::repeated::find_repeated;
use crate::cell::classify::Classification;
use crate::cell::length::{Length, generate_name};
use crate::cell::variants::{Variant, streams_name};
use crate::model::reference::ResolvedModel;

/// Models × variants, generated tokens and streams at the same time × prompt lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grid {
    models: Vec<ResolvedModel>,
    settings: Vec<Setting>,
    /// Every prompt length, in the order of the definition.
    lengths: Vec<u64>,
    /// The prompt lengths by how many tokens are generated after them; `None` is what the whole sweep
    /// generates.
    prompts: BTreeMap<Option<u64>, Vec<u64>>,
    order: Order,
}

/// The order in which cells are measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// All lengths of a model, as they are listed, before the next model.
    #[default]
    ModelMajor,
    /// All models at the shortest length, then at the next: shorter before longer within each model,
    /// so that a true OOM is known before a longer cell comes up.
    Interleaved,
}

/// What is changed of a model's run: by a variant's arguments, by how many tokens are generated, and by
/// how many streams ask a server at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    streams: u64,
    generate: Option<u64>,
    /// The variant of the definition.
    change: Option<String>,
    /// All of it as rows have it; `None` for one stream of the model as it is.
    variant: Option<String>,
}

impl Setting {
    fn new(streams: u64, generate: Option<u64>, change: Option<&str>) -> Setting {
        let tokens = generate.map(generate_name);
        let name = (streams != 1).then(|| streams_name(streams));
        let parts: Vec<&str> =
            change.into_iter().chain(tokens.as_deref()).chain(name.as_deref()).collect();
        let variant = (!parts.is_empty()).then(|| parts.join("+"));
        Setting { streams, generate, change: change.map(str::to_owned), variant }
    }
}

/// One measurement: a model at a prompt length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell<'grid> {
    pub(crate) model: &'grid ResolvedModel,
    /// Prompt length in tokens.
    pub(crate) len: u64,
    /// What is changed of the model's run, by name; `None` for the model as it is.
    pub(crate) variant: Option<&'grid str>,
}

impl Cell<'_> {
    /// The name that rows, backstop and record know it by: `model`, or `model+variant`.
    pub(crate) fn name(&self) -> String {
        match self.variant {
            None => self.model.name.clone(),
            Some(variant) => format!("{}+{variant}", self.model.name),
        }
    }
}

/// A cell that is not launched but yields a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FakeCell {
    pub(crate) model: String,
    pub(crate) len: u64,
    pub(crate) class: Classification,
}

/// Makes a grid.
///
/// # Errors
/// When two models have one name: rows, backstop and record know a model by its name alone.
pub(crate) fn plan_grid(models: Vec<ResolvedModel>, lengths: Vec<u64>) -> anyhow::Result<Grid> {
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    let repeated = find_repeated(&names);
    if !repeated.is_empty() {
        let list: Vec<String> = repeated
            .iter()
            .map(|name| {
                let same = models.iter().filter(|model| model.name == *name);
                let paths: Vec<String> = same.map(|model| format!("`{}`", model.path)).collect();
                format!("`{name}` ({})", paths.join(", "))
            })
            .collect();
        return Err(anyhow::anyhow!("these models are listed more than once: {}", list.join("; ")))
            .hint("name each model once; a glob may match one that is also named");
    }
    Ok(Grid {
        models,
        settings: vec![Setting::new(1, None, None)],
        prompts: BTreeMap::from([(None, lengths.clone())]),
        lengths,
        order: Order::default(),
    })
}

impl Grid {
    pub(crate) fn models(&self) -> &[ResolvedModel] {
        &self.models
    }

    pub(crate) fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    /// The cells, in the order in which they are measured.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let mut cells: Vec<Cell<'_>> = self
            .rows()
            .flat_map(|(model, setting)| {
                let variant = setting.variant.as_deref();
                self.prompts_of(setting).iter().map(move |&len| Cell { model, len, variant })
            })
            .collect();
        if self.order == Order::Interleaved {
            cells.sort_by_key(|cell| cell.len);
        }
        cells.into_iter()
    }

    /// The same in another order.
    pub(crate) fn in_order(self, order: Order) -> Grid {
        Grid { order, ..self }
    }

    /// What has a row of its own in a table over lengths: each model with each setting.
    fn rows(&self) -> impl Iterator<Item = (&ResolvedModel, &Setting)> {
        let settings =
            || self.settings.iter().filter(|setting| !self.prompts_of(setting).is_empty());
        self.models.iter().flat_map(move |model| settings().map(move |setting| (model, setting)))
    }

    /// The prompt lengths of a setting.
    fn prompts_of(&self, setting: &Setting) -> &[u64] {
        self.prompts.get(&setting.generate).map_or(&[], Vec::as_slice)
    }

    /// The names in rows, in order.
    pub(crate) fn row_names(&self) -> Vec<String> {
        let name = |(model, setting): (_, &Setting)| {
            Cell { model, len: 0, variant: setting.variant.as_deref() }.name()
        };
        self.rows().map(name).collect()
    }

    pub(crate) fn cell_count(&self) -> usize {
        self.rows().map(|(_, setting)| self.prompts_of(setting).len()).sum()
    }

    /// The same over these lengths, of which some say how many tokens are generated; the others, and those
    /// that say it as well, generate `max_tokens`. What generates fewer comes first.
    pub(crate) fn with_pairs(self, lengths: &[Length], max_tokens: u64) -> Grid {
        let mut prompts: BTreeMap<Option<u64>, Vec<u64>> = BTreeMap::new();
        let mut columns: Vec<u64> = Vec::new();
        for length in lengths {
            let generate = length.generate().filter(|count| *count != max_tokens);
            prompts.entry(generate).or_default().push(length.prompt());
            if !columns.contains(&length.prompt()) {
                columns.push(length.prompt());
            }
        }
        let mut generates: Vec<Option<u64>> = prompts.keys().copied().collect();
        generates.sort_by_key(|generate| generate.unwrap_or(max_tokens));
        let settings = self.settings.iter().flat_map(|setting| {
            let with = |generate: &Option<u64>| {
                Setting::new(setting.streams, *generate, setting.change.as_deref())
            };
            generates.iter().map(with).collect::<Vec<_>>()
        });
        Grid { settings: settings.collect(), lengths: columns, prompts, ..self }
    }

    /// The same for each of these numbers of streams.
    pub(crate) fn with_concurrency(self, counts: &[u64]) -> Grid {
        let settings = self.settings.iter().flat_map(|setting| {
            let change = setting.change.as_deref();
            counts.iter().map(move |&count| Setting::new(count, setting.generate, change))
        });
        Grid { settings: settings.collect(), ..self }
    }

    /// Each of these variants, and the model as it is beside them where that is wanted.
    pub(crate) fn with_variants(self, variants: &[Variant], plain: bool) -> Grid {
        let names = variants.iter().map(|variant| Some(variant.name.as_str()));
        let names: Vec<Option<&str>> = plain.then_some(None).into_iter().chain(names).collect();
        let settings = names.into_iter().flat_map(|name| {
            let with =
                move |setting: &Setting| Setting::new(setting.streams, setting.generate, name);
            self.settings.iter().map(with)
        });
        Grid { settings: settings.collect(), ..self }
    }

    /// The variant of the definition that a cell is of; `None` for the model as it is.
    pub(crate) fn change_of(&self, cell: Cell<'_>) -> Option<&str> {
        self.setting_of(cell).and_then(|setting| setting.change.as_deref())
    }

    /// How many tokens are generated in a cell, where that is not what the whole sweep generates.
    pub(crate) fn generate_of(&self, cell: Cell<'_>) -> Option<u64> {
        self.setting_of(cell).and_then(|setting| setting.generate)
    }

    /// How many streams ask at the same time in a cell.
    pub(crate) fn concurrency_of(&self, cell: Cell<'_>) -> u64 {
        self.setting_of(cell).map_or(1, |setting| setting.streams)
    }

    fn setting_of(&self, cell: Cell<'_>) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.variant.as_deref() == cell.variant)
    }
}

/// Reads `model:len[,model:len…]`, all of them out of memory. A name may hold commas and colons: an
/// entry ends where the text so far names a cell of the grid.
///
/// # Errors
/// When an entry does not name a cell of this run: a fake that does nothing would prove nothing.
pub(crate) fn parse_fake_ooms(text: &str, cells: &[Cell<'_>]) -> anyhow::Result<Vec<FakeCell>> {
    let mut fakes = Vec::new();
    let mut pending: Option<String> = None;
    for piece in text.split(',') {
        let entry = match pending.take() {
            Some(start) => format!("{start},{piece}"),
            None => piece.to_owned(),
        };
        match parse_cell_name(entry.trim()) {
            Some((model, len)) if is_cell(cells, model, len) => {
                let (model, class) = (model.to_owned(), Classification::Oom);
                fakes.push(FakeCell { model, len, class });
            }
            _ => pending = Some(entry),
        }
    }
    if let Some(entry) = pending.filter(|entry| !entry.trim().is_empty()) {
        return bail_no_cell(entry.trim(), "MODEL:LEN", cells);
    }
    Ok(fakes)
}

/// Reads `MODEL:LEN:CLASS`, where the class is a token such as `FAIL:bench`.
pub(crate) fn parse_fake_cell(text: &str, cells: &[Cell<'_>]) -> anyhow::Result<FakeCell> {
    let with_class = Classification::ALL
        .into_iter()
        .find_map(|class| Some((text.strip_suffix(class.token())?.strip_suffix(':')?, class)));
    let Some((cell, class)) = with_class else {
        let known: Vec<_> = Classification::ALL.iter().map(|class| class.token()).collect();
        bail!("`{text}` does not end in a class; the classes are {}", known.join(", "));
    };
    match parse_cell_name(cell) {
        Some((model, len)) if is_cell(cells, model, len) => {
            Ok(FakeCell { model: model.to_owned(), len, class })
        }
        _ => bail_no_cell(cell, "MODEL:LEN:CLASS", cells),
    }
}

/// Splits `model:len` at the last colon.
fn parse_cell_name(text: &str) -> Option<(&str, u64)> {
    let (model, len) = text.rsplit_once(':')?;
    Some((model, len.trim().parse().ok()?))
}

fn is_cell(cells: &[Cell<'_>], model: &str, len: u64) -> bool {
    cells.iter().any(|cell| cell.len == len && cell.name() == model)
}

fn bail_no_cell<T>(text: &str, form: &str, cells: &[Cell<'_>]) -> anyhow::Result<T> {
    let mut models: Vec<String> = cells.iter().map(Cell::name).collect();
    models.dedup();
    let lengths: BTreeSet<u64> = cells.iter().map(|cell| cell.len).collect();
    let lengths: Vec<String> = lengths.iter().map(u64::to_string).collect();
    Err(anyhow::anyhow!("fake `{text}` does not name a cell of this run")).hint(format!(
        "write {form}; the models are {}, the lengths {}",
        models.join(", "),
        lengths.join(", ")
    ))
}

#[cfg(test)]
pub(crate) mod tests;
